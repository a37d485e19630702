"""Malformed files: a reader accepts one, or fails with exit status 2 and a one-line error that names the file."""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from bench.plan import outage_plan, scenarios
from bench.report import figures, run_page
from bench.run import topic_cleanup
from bench.run.run_store import RunStore
from bench_results import made_up
from ducktape_tests import matrix, plan, results
from ducktape_tests.kafkatest import cases
from ducktape_tests.kafkatest.results import ArmResult
from outage_benchmark_results import result
from pyhooks import cli
from pyhooks.core import files, paths, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.evidence import artifacts, claims
from pyhooks.faults import registry
from pyhooks.formal import alloy, model_source
from pyhooks.history.event_log import Event, History
from pyhooks.lab import network, topology
from pyhooks.lab.lab import LAB_VARIABLE, Lab
from pyhooks.lab.topology import Quality
from pyhooks.patchset import recipe, stages
from pyhooks.patchset.distribution import MANIFEST, Distribution
from pyhooks.verify import mutants, upstream_suite
from untyped_events import event_now

UNUSUAL_VALUES: tuple[Any, ...] = ([], {}, None, True, -1, 0, 1e308, 10**18, "", "x", "\u0000", [[]], {"x": 1}, "a\nb")
UNUSUAL_TOML_VALUES = (
    "[]",
    "{}",
    "true",
    "-1",
    "0",
    "1e308",
    "9223372036854775807",
    '""',
    '"x"',
    "nan",
    "inf",
    "[[]]",
    "1979-05-27",
)
NESTING_DEPTH = 200_000


@dataclass(frozen=True)
class Reader:
    """Reader of one kind of file, with a valid example.

    Attributes:
        name: file name.
        sample: returns valid content.
        read: reads the file at a path.
    """

    name: str
    sample: Callable[[], str]
    read: Callable[[Path], Any]

    def __str__(self) -> str:
        return self.name


def system_test_run() -> str:
    test = results.PlannedTest("x_test.py::A.test", "az3", 2, "x")
    run = {
        "schema": results.SCHEMA, "started": "2026-01-01T00:00:00+0000", "selections": ["system"],
        "seed": 1290, "jobs": 2,
        "settings": {}, "command": "rackgate system run", "options": "", "cluster_file": "", "duration_s": 95.0,
        "versions": {"kafka": "4.0.0"}, "machine": {"kernel": "6.1", "cpus": 2}, "target_min": 40,
        "tests": [asdict(test)],
    }  # fmt: skip
    return json.dumps(run)


def history_text() -> str:
    return (paths.REPO / "tests/support/lab_histories/restored.jsonl").read_text(encoding="utf-8")


def committed_file(*parts: str) -> Callable[[], str]:
    return lambda: paths.REPO.joinpath(*parts).read_text(encoding="utf-8")


def bench_result_text() -> str:
    return json.dumps(made_up())


def some_mutants() -> str:
    """Return every tenth mutant, because parsing all takes long, and those with rare keys."""
    head, *tables = committed_file(f"patch/{paths.kafka_version()}/mutants.toml")().split("\n[[mutant]]\n")
    rare = [table for table in tables if "\nrecompile = " in table or "\nwith = " in table]
    return "\n[[mutant]]\n".join([head, *dict.fromkeys([*tables[::10], *rare[:5]])]) + "\n"


@cache
def committed_recipe() -> recipe.Recipe:
    return recipe.load()


def outage_result_text() -> str:
    return json.dumps(result())


def run_command(*arguments: str) -> Callable[[Path], None]:
    """Return a reader that runs a ``rackgate`` command. FILE and FOLDER stand for the file's path and folder."""

    def read(path: Path) -> None:
        placeholders = {"FILE": str(path), "FOLDER": str(path.parent)}
        out, error = io.StringIO(), io.StringIO()
        original_argv = sys.argv
        sys.argv = ["rackgate", *(placeholders.get(argument, argument) for argument in arguments)]
        try:
            with redirect_stdout(out), redirect_stderr(error), pytest.raises(SystemExit) as exit_info:
                cli.main()
        finally:
            sys.argv = original_argv
        assert exit_info.value.code in (0, 1, 2, None)
        errors = [line for line in error.getvalue().splitlines() if line.startswith("error: ")]
        if errors:
            assert len(error.getvalue().splitlines()) == 1
            assert "--debug shows the traceback" not in errors[0]
            raise RackgateError(errors[0], exit_status=int(exit_info.value.code or 0))

    return read


def attach_lab(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LAB_VARIABLE, str(path))
        Lab.attach()


def read_slow_sites(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "SLOW_SITES", path)
        network._read_slow_sites()


def stored_attribute(name: str) -> Callable[[Path], Any]:
    return lambda path: getattr(RunStore(path.parent), name)


@cache
def committed_claims() -> claims.Claims:
    return claims.load()


def check_facts(path: Path) -> None:
    loaded = committed_claims()
    run = loaded.runs[path.stem]
    single_run = claims.Claims(
        loaded.documents, {run.id: run}, {key: c for key, c in loaded.claims.items() if c.runs == (run.id,)}
    )
    artifacts.faults(single_run, artifacts.read_results(single_run, path.parent), path.parent)


def check_claims(path: Path) -> None:
    loaded = committed_claims()
    faults = [
        fault
        for fault in artifacts.faults(loaded, artifacts.EvidenceResults({}, {}, {}, {}), path.parent)
        if str(path) in fault
    ]
    if faults:
        raise RackgateError(faults[0])


def render_bench_report(path: Path) -> None:
    # Drawing the real pictures takes seconds.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "pictures", blank_pictures(figures.pictures))
        patch.setattr(run_page, "inline_svg", lambda *_: "")
        run_command("bench", "report", "FILE", "--out", str(path.parent / "page"))(path)


def render_outage_page(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "timeline", lambda *_: Figure((1, 1)))
        patch.setattr(run_page, "inline_svg", lambda *_: "")
        run_command("bench", "outages", "--page-only", "--out", "FOLDER")(path)


def blank_pictures(pictures: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda result: {name: lambda _: Figure((1, 1)) for name in pictures(result)}


TOML = [
    Reader("scenarios.toml", committed_file("bench/scenarios.toml"), lambda path: scenarios.load("full", path)),
    Reader("outages.toml", committed_file("bench/outages.toml"), lambda path: outage_plan.load("full", path)),
    Reader("claims.toml", committed_file("kip/claims.toml"), claims.load),
    Reader("kafka.toml", committed_file(f"patch/{paths.kafka_version()}/kafka.toml"), recipe.load),
    Reader(
        "mutants.toml",
        some_mutants,
        lambda path: mutants.load(path, committed_recipe()),
    ),
    Reader(
        "upstream.toml",
        committed_file(f"patch/{paths.kafka_version()}/upstream.toml"),
        lambda path: upstream_suite.load(committed_recipe(), path),
    ),
    Reader("suite.toml", committed_file("ducktape_tests/suite.toml"), plan.load),
    Reader("kafkatest.toml", committed_file("ducktape_tests/kafkatest/suite.toml"), cases.KafkaSuite.read),
    Reader("matrix.toml", committed_file("ducktape_tests/matrix.toml"), matrix.listed),
    Reader("alloy.toml", committed_file("kip/formal/alloy.toml"), alloy.read_pin),
    Reader("az3.toml", committed_file("pyhooks/lab/topologies/az3.toml"), topology.load),
]
JSON = [
    Reader("results.json", bench_result_text, render_bench_report),
    Reader("compared.json", bench_result_text, run_command("bench", "compare", "FILE", "FILE")),
    Reader("outages/results.json", outage_result_text, render_outage_page),
    Reader("system/run.json", system_test_run, run_command("system", "page", "FOLDER")),
    Reader("facts.json", committed_file("kip/evidence/facts.json"), check_facts),
    Reader("claims.json", committed_file("kip/evidence/claims.json"), check_claims),
    Reader(
        "run.json",
        lambda: '{"run_id": "r", "started": "2026-01-01T00:00:00+00:00", "conditions": {}}',
        stored_attribute("duration_s"),
    ),
    Reader("rates.json", lambda: '{"k": {"rate": 1.0}}', stored_attribute("rates")),
    Reader("left.json", lambda: '{"b:9092": ["t"]}', topic_cleanup._topics_left),
    Reader(
        MANIFEST,
        lambda: '{"files": {"a": "b"}, "kafka_version": "4", "patch_hash": "h", "overlay": [], "patches": []}',
        lambda path: Distribution(path.parent).manifest,
    ),
    Reader("slow.json", lambda: json.dumps({"a": asdict(Quality(rtt_ms=1.0))}), read_slow_sites),
    Reader(
        "fault.json",
        lambda: json.dumps(dict.fromkeys(registry.FaultRecord.__dataclass_fields__, "")),
        registry._read,
    ),
    Reader("lab.json", lambda: json.dumps({"run_dir": "r", "source": {}}), attach_lab),
    Reader(
        "case.json",
        lambda: json.dumps({"schema": 1, **asdict(ArmResult("t", "gate", "fail", 1.5, "r", "c", "4.0.0"))}),
        ArmResult.load,
    ),
    Reader("timings.json", lambda: '{"a": 1.5}', stages.durations),
]
LINES = [
    Reader("judged.jsonl", history_text, run_command("judge", "FILE", "--json")),
    Reader("read.jsonl", history_text, lambda path: list(History(path).events())),
]
TEXT = [Reader("isr.als", committed_file("kip/formal/isr.als"), model_source.parse_commands)]
ALL_READERS = [*TOML, *JSON, *LINES, *TEXT]
# Durations are only estimates: their reader ignores malformed content.
LENIENT = {"timings.json"}
# Written and deleted by commands inside a lab, on the lab's own file system.
LAB_FILES = {"slow.json", "fault.json"}
OPTIONAL_FILES = {
    "claims.json",
    "facts.json",
    "run.json",
    "rates.json",
    "left.json",
    "slow.json",
    "fault.json",
    "read.jsonl",
}


def read_error(reader: Reader, path: Path) -> str:
    """Return the error of reading a file, or an empty string."""
    try:
        reader.read(path)
    except RackgateError as error:
        message, status = str(error), error.exit_status
    else:
        return ""
    assert path.name in message or str(path.parent) in message
    assert message.isprintable()
    assert len(message) < 600 + 2 * len(str(path))
    assert status == 2
    return message


# Commands that write pages require the project's marker in the folder before they read a file in it.
MARKED_FOLDERS = {"outages": run_folder.OUTAGES, "system": run_folder.SYSTEM}


def prepare_path(folder: Path, reader: Reader) -> Path:
    path = folder / reader.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if (kind := MARKED_FOLDERS.get(path.parent.name)) is not None:
        run_folder.claim(path.parent, kind)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("malformed")


def parametrize_readers(readers: list[Reader]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("reader", readers, ids=str)


@parametrize_readers([reader for reader in ALL_READERS if reader.name not in ("lab.json", "fault.json")])
def test_a_valid_file_is_read(tmp_path: Path, reader: Reader) -> None:
    path = prepare_path(tmp_path, reader)
    path.write_text(reader.sample(), encoding="utf-8")
    assert read_error(reader, path) == ""


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "not UTF-8": b'{"a": "\xff\xfe"}\n',
    "NUL": b"\0" * 512,
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "deep list": b"[" * NESTING_DEPTH,
    "deep table": b'{"a":' * NESTING_DEPTH,
    "deep TOML": b"a = " + b"[" * NESTING_DEPTH,
    "lone surrogate": b'{"a": "\\ud800"}',
    "long number": b'{"a": ' + b"9" * 5000 + b"}",
    "long TOML number": b"a = " + b"9" * 5000,
}


@parametrize_readers(ALL_READERS)
@pytest.mark.parametrize("kind", MALFORMED)
def test_a_file_of_another_format_is_rejected(folder: Path, reader: Reader, kind: str) -> None:
    if reader in TEXT and kind not in ("not UTF-8", "UTF-16"):
        return
    path = prepare_path(folder, reader)
    path.write_bytes(MALFORMED[kind])
    error = read_error(reader, path)
    if reader.name not in LENIENT and not (reader in LINES and kind == "empty"):
        assert error


@parametrize_readers(ALL_READERS)
def test_a_byte_order_mark_is_rejected(folder: Path, reader: Reader) -> None:
    path = prepare_path(folder, reader)
    path.write_bytes(b"\xef\xbb\xbf" + reader.sample().encode())
    assert read_error(reader, path) or reader.name in LENIENT or reader in TEXT


@parametrize_readers(ALL_READERS)
@pytest.mark.parametrize("kind", ["folder", "dangling link", "link to itself", "unreadable", "missing"])
def test_a_path_that_is_not_a_readable_file_is_rejected(tmp_path: Path, reader: Reader, kind: str) -> None:
    path = prepare_path(tmp_path, reader)
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "unreadable":
        # Root ignores permission bits, so use a file whose read fails.
        path.symlink_to("/proc/self/mem")
    error = read_error(reader, path)
    missing = kind in ("missing", "dangling link") or (kind == "link to itself" and reader.name in LAB_FILES)
    if reader.name not in LENIENT and not (missing and reader.name in OPTIONAL_FILES):
        assert error


@parametrize_readers([*JSON, *LINES])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_invalid_numbers_are_rejected_or_kept_as_text(folder: Path, reader: Reader, number: str) -> None:
    path = prepare_path(folder, reader)
    text = reader.sample().replace("1.0", number).replace("1.5", number).replace("95.0", number)
    path.write_text(text, encoding="utf-8")
    read_error(reader, path)


@parametrize_readers(JSON)
def test_a_key_that_occurs_twice_is_rejected(folder: Path, reader: Reader) -> None:
    path = prepare_path(folder, reader)
    text = reader.sample()
    key = next(iter(json.loads(text)))
    path.write_text(f"{{{json.dumps(key)}: 1, {text.lstrip()[1:]}", encoding="utf-8")
    error = read_error(reader, path)
    assert reader.name in LENIENT or "twice" in error


def key_paths(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the key path of each part of a JSON value."""
    yield keys
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from key_paths(part, (*keys, key))


def replace_part(value: Any, keys: tuple[Any, ...], new: Any) -> Any:
    """Return a copy of a JSON value with the part at ``keys`` replaced, or removed if ``new`` is ``...``."""
    if not keys:
        return {} if new is ... else new
    result = copy.deepcopy(value)
    inner = result
    for key in keys[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = new
    return result


@parametrize_readers(JSON)
@given(data=st.data())
@settings(max_examples=60)
def test_json_with_an_unusual_value_is_rejected_or_read(folder: Path, reader: Reader, data: st.DataObject) -> None:
    path = prepare_path(folder, reader)
    value = json.loads(reader.sample())
    # Each depth is equally likely, regardless of how many values it has.
    depth = data.draw(st.integers(0, 6))
    same_depth = [keys for keys in key_paths(value) if len(keys) == depth]
    keys = data.draw(st.sampled_from(same_depth or [()]))
    new = data.draw(st.sampled_from([*UNUSUAL_VALUES, ...]))
    path.write_text(json.dumps(replace_part(value, keys, new)), encoding="utf-8")
    read_error(reader, path)


@parametrize_readers(LINES)
@given(data=st.data())
@settings(max_examples=60)
def test_a_history_with_an_unusual_value_is_rejected_or_judged(
    folder: Path, reader: Reader, data: st.DataObject
) -> None:
    path = prepare_path(folder, reader)
    lines = reader.sample().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    value = json.loads(lines[number])
    keys = data.draw(st.sampled_from(list(key_paths(value))))
    lines[number] = json.dumps(replace_part(value, keys, data.draw(st.sampled_from([*UNUSUAL_VALUES, ...]))))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    read_error(reader, path)


@parametrize_readers(TOML)
@given(data=st.data())
@settings(max_examples=60)
def test_toml_with_an_unusual_line_is_rejected_or_read(folder: Path, reader: Reader, data: st.DataObject) -> None:
    path = prepare_path(folder, reader)
    lines = reader.sample().splitlines()
    number = data.draw(st.sampled_from([at for at, line in enumerate(lines) if "=" in line or line.startswith("[")]))
    line = lines[number]
    replacement = data.draw(st.sampled_from([*UNUSUAL_TOML_VALUES, "delete", "repeat"]))
    key, equals, _ = line.partition("=")
    lines[number] = {"delete": "", "repeat": f"{line}\n{line}"}.get(
        replacement, f"{key}{equals} {replacement}" if equals else ""
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    read_error(reader, path)


@parametrize_readers(ALL_READERS)
@given(data=st.data())
@settings(max_examples=30)
def test_a_truncated_file_is_rejected_or_read(folder: Path, reader: Reader, data: st.DataObject) -> None:
    path = prepare_path(folder, reader)
    content = reader.sample().encode()
    cut = data.draw(st.integers(0, len(content) - 1))
    path.write_bytes(content[:cut])
    error = read_error(reader, path)
    if reader in JSON and reader.name not in LENIENT and cut < len(content.rstrip()):
        assert error


def test_a_truncated_history_has_a_prefix_of_the_events(tmp_path: Path) -> None:
    content = (paths.REPO / "tests/support/lab_histories/restored.jsonl").read_bytes()
    path = tmp_path / "h.jsonl"
    path.write_bytes(content)
    all_events = list(History(path).events())
    for cut in range(0, len(content), 97):
        path.write_bytes(content[:cut])
        events = list(History(path).events())
        lines = content[:cut].count(b"\n")
        assert events[:lines] == all_events[:lines]
        assert [event.op for event in events[lines:]] in ([], ["torn"], [all_events[lines].op])


@pytest.mark.parametrize("value", [[], {}, None, "1", 1.5, True])
@pytest.mark.parametrize("key", ["mono_ns", "wall_ms", "process", "op", "outcome", "rack", "data"])
def test_an_event_field_of_the_wrong_type_is_an_error(key: str, value: Any) -> None:
    valid = json.loads(event_now("p", "o", "ok", rack="a").line())
    if (key, value) in (("rack", None), ("outcome", None), ("data", {})) or (
        key in ("process", "op", "rack") and value == "1"
    ):
        return
    with pytest.raises(ValueError, match=key):
        Event.parse(json.dumps(valid | {key: value}))


def test_a_null_character_in_a_path_is_an_error() -> None:
    with pytest.raises(RackgateError, match="null"):
        files.read_json(Path("a\0b"), "nothing writes it")


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "a\udc80b"])
def test_control_characters_in_a_file_name_are_escaped_in_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["bench", "report", str(tmp_path / name)])
    assert exit_info.value.code == 2
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1
    assert stderr.rstrip("\n").isprintable()
    assert "missing" in stderr
