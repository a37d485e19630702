"""Malformed files: every reader refuses them in one line that names the file, with exit status 2, or reads them."""

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
from outage_benchmark_results import result
from pyhooks import cli
from pyhooks.core import files, paths, run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.evidence import artifacts, claims
from pyhooks.faults import registry
from pyhooks.formal import alloy, model_source
from pyhooks.history.event_log import Event, History
from pyhooks.lab import link_quality, topology
from pyhooks.lab.lab import LAB_VARIABLE, Lab
from pyhooks.lab.topology import Quality
from pyhooks.patchset import recipe, stages
from pyhooks.patchset.artifacts import ArtifactStore
from pyhooks.patchset.distribution import MANIFEST, Distribution
from pyhooks.verify import mutants, upstream_suite
from untyped_events import event_now

TOO_MANY_BYTES = 150_000
ODD: tuple[Any, ...] = ([], {}, None, True, -1, 0, 1e308, 10**18, "", "x", "\u0000", [[]], {"x": 1}, "a\nb")
ODD_TOML = (
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
DEEP = 200_000


@dataclass(frozen=True)
class Reader:
    """Something that reads a file.

    Attributes:
        name: of the file.
        sample: makes a valid content.
        read: reads the file at a path.
    """

    name: str
    sample: Callable[[], str]
    read: Callable[[Path], Any]

    def __str__(self) -> str:
        return self.name


def run_of_system_tests() -> str:
    test = results.PlannedTest("x_test.py::A.test", "az3", 2, "x")
    run = {
        "schema": results.SCHEMA, "started": "2026-01-01T00:00:00+0000", "words": ["system"], "seed": 1290, "jobs": 2,
        "settings": {}, "command": "rackgate system run", "options": "", "cluster_file": "", "took_s": 95.0,
        "versions": {"kafka": "4.3.1"}, "machine": {"kernel": "6.1", "cpus": 2}, "bar_min": 40, "tests": [asdict(test)],
    }  # fmt: skip
    return json.dumps(run)


def history() -> str:
    return (paths.REPO / "tests/support/lab_histories/restored.jsonl").read_text(encoding="utf-8")


def committed(*parts: str) -> Callable[[], str]:
    return lambda: paths.REPO.joinpath(*parts).read_text(encoding="utf-8")


@cache
def bench_result() -> str:
    return json.dumps(made_up())


def outages() -> str:
    return json.dumps(result())


def runs(*arguments: str) -> Callable[[Path], None]:
    """Run a command on a file, as ``main`` does; "FILE" and "FOLDER" among the arguments stand for the file's path."""

    def read(path: Path) -> None:
        stands = {"FILE": str(path), "FOLDER": str(path.parent)}
        out, error = io.StringIO(), io.StringIO()
        before, sys.argv = sys.argv, ["rackgate", *(stands.get(argument, argument) for argument in arguments)]
        try:
            with redirect_stdout(out), redirect_stderr(error), pytest.raises(SystemExit) as ended:
                cli.main()
        finally:
            sys.argv = before
        assert ended.value.code in (0, 1, 2, None)
        errors = [line for line in error.getvalue().splitlines() if line.startswith("error: ")]
        if errors:
            assert len(error.getvalue().splitlines()) == 1
            assert "--debug shows the traceback" not in errors[0]
            raise RackgateError(errors[0], exit_status=int(ended.value.code or 0))

    return read


def attach(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LAB_VARIABLE, str(path))
        Lab.attach()


def slow_sites(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_quality, "FILE", path)
        link_quality._read()


def alloy_pin(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArtifactStore, "fetch", lambda *_: None)
        alloy.fetch(path, path.parent / "jars")


def stored(name: str) -> Callable[[Path], Any]:
    return lambda path: getattr(RunStore(path.parent), name)


@cache
def committed_claims() -> claims.Claims:
    return claims.load()


def book(path: Path) -> None:
    loaded = committed_claims()
    run = loaded.runs[path.stem]
    one = claims.Claims(
        loaded.documents, {run.id: run}, {key: c for key, c in loaded.claims.items() if c.runs == (run.id,)}
    )
    artifacts.faults(one, artifacts.read_results(one, path.parent), path.parent)


def index(path: Path) -> None:
    loaded = committed_claims()
    found = [
        one
        for one in artifacts.faults(loaded, artifacts.EvidenceResults({}, {}, {}, {}), path.parent)
        if str(path) in one
    ]
    if found:
        raise RackgateError(found[0])


def drawn(path: Path) -> None:
    # drawing takes seconds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "pictures", names_of_pictures(figures.pictures))
        patch.setattr(run_page, "inline_svg", lambda *_: "")
        runs("bench", "report", "FILE", "--out", str(path.parent / "page"))(path)


def drawn_outages(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "timeline", lambda *_: Figure((1, 1)))
        patch.setattr(run_page, "inline_svg", lambda *_: "")
        runs("bench", "outages", "--page-only", "--out", "FOLDER")(path)


def names_of_pictures(pictures: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda result: {name: lambda _: Figure((1, 1)) for name in pictures(result)}


TOML = [
    Reader("scenarios.toml", committed("bench/scenarios.toml"), lambda path: scenarios.load("full", path)),
    Reader("outages.toml", committed("bench/outages.toml"), lambda path: outage_plan.load("full", path)),
    Reader("claims.toml", committed("kip/claims.toml"), claims.load),
    Reader("kafka.toml", committed("patch/4.3.1/kafka.toml"), recipe.load),
    Reader("mutants.toml", committed("patch/4.3.1/mutants.toml"), lambda path: mutants.load(path, recipe.load())),
    Reader(
        "upstream.toml", committed("patch/4.3.1/upstream.toml"), lambda path: upstream_suite.load(recipe.load(), path)
    ),
    Reader("suite.toml", committed("ducktape_tests/suite.toml"), plan.load),
    Reader("matrix.toml", committed("ducktape_tests/matrix.toml"), matrix.listed),
    Reader("alloy.toml", committed("kip/formal/alloy.toml"), alloy_pin),
    Reader("az3.toml", committed("pyhooks/lab/topologies/az3.toml"), topology.load),
]
JSON = [
    Reader("results.json", bench_result, drawn),
    Reader("compared.json", bench_result, runs("bench", "compare", "FILE", "FILE")),
    Reader("outages/results.json", outages, drawn_outages),
    Reader("system/run.json", run_of_system_tests, runs("system", "page", "FOLDER")),
    Reader("facts.json", committed("kip/evidence/facts.json"), book),
    Reader("claims.json", committed("kip/evidence/claims.json"), index),
    Reader(
        "run.json",
        lambda: '{"run_id": "r", "started": "2026-01-01T00:00:00+00:00", "conditions": {}}',
        stored("took_s"),
    ),
    Reader("rates.json", lambda: '{"k": {"rate": 1.0}}', stored("rates")),
    Reader("left.json", lambda: '{"b:9092": ["t"]}', topic_cleanup._topics_left),
    Reader(
        MANIFEST,
        lambda: '{"files": {"a": "b"}, "kafka_version": "4", "patch_hash": "h", "overlay": [], "patches": []}',
        lambda path: Distribution(path.parent).manifest,
    ),
    Reader("slow.json", lambda: json.dumps({"a": asdict(Quality(rtt_ms=1.0))}), slow_sites),
    Reader(
        "fault.json",
        lambda: json.dumps(dict.fromkeys(registry.FaultRecord.__dataclass_fields__, "")),
        registry._read,
    ),
    Reader("lab.json", lambda: json.dumps({"run_dir": "r", "source": {}}), attach),
    Reader("timings.json", lambda: '{"a": 1.5}', stages.durations),
]
LINES = [
    Reader("judged.jsonl", history, runs("judge", "FILE", "--json")),
    Reader("read.jsonl", history, lambda path: list(History(path).events())),
]
TEXT = [Reader("isr.als", committed("kip/formal/isr.als"), model_source.parse_commands)]
EVERY = [*TOML, *JSON, *LINES, *TEXT]
# Estimates, and files that may be missing: a plan for that is part of each.
LENIENT = {"timings.json"}
# written and removed by commands of a lab, on its own file system
OF_THE_LAB = {"slow.json", "fault.json"}
MAY_BE_MISSING = {
    "claims.json",
    "facts.json",
    "run.json",
    "rates.json",
    "left.json",
    "slow.json",
    "fault.json",
    "read.jsonl",
}


def refused(reader: Reader, path: Path) -> str:
    """Read a file; return why it was refused, or nothing."""
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


# Commands that write pages refuse a folder without their marker before they read anything in it.
MARKED = {"outages": run_folder.OUTAGES, "system": run_folder.SYSTEM}


def place(folder: Path, reader: Reader) -> Path:
    path = folder / reader.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if (kind := MARKED.get(path.parent.name)) is not None:
        run_folder.claim(path.parent, kind)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("malformed")


def by_name(readers: list[Reader]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("reader", readers, ids=str)


@by_name([one for one in EVERY if one.name not in ("lab.json", "fault.json")])
def test_a_valid_file_is_read(tmp_path: Path, reader: Reader) -> None:
    path = place(tmp_path, reader)
    path.write_text(reader.sample(), encoding="utf-8")
    assert refused(reader, path) == ""


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "not UTF-8": b'{"a": "\xff\xfe"}\n',
    "NUL": b"\0" * 512,
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "deep list": b"[" * DEEP,
    "deep table": b'{"a":' * DEEP,
    "deep TOML": b"a = " + b"[" * DEEP,
    "half a pair": b'{"a": "\\ud800"}',
    "long number": b'{"a": ' + b"9" * 5000 + b"}",
    "long TOML number": b"a = " + b"9" * 5000,
}


@by_name(EVERY)
@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_of_another_format_is_refused(folder: Path, reader: Reader, kind: str) -> None:
    if reader in TEXT and kind not in ("not UTF-8", "UTF-16"):
        return
    path = place(folder, reader)
    path.write_bytes(BROKEN[kind])
    error = refused(reader, path)
    if reader.name not in LENIENT and not (reader in LINES and kind == "empty"):
        assert error


@by_name(EVERY)
def test_a_byte_order_mark_is_refused(folder: Path, reader: Reader) -> None:
    path = place(folder, reader)
    path.write_bytes(b"\xef\xbb\xbf" + reader.sample().encode())
    assert refused(reader, path) or reader.name in LENIENT or reader in TEXT


@by_name(EVERY)
@pytest.mark.parametrize("kind", ["folder", "dangling link", "link to itself", "unreadable", "missing"])
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, reader: Reader, kind: str) -> None:
    path = place(tmp_path, reader)
    if kind == "folder":
        path.mkdir()
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "unreadable":
        # permission bits do not keep root away; this is a file whose reading fails
        path.symlink_to("/proc/self/mem")
    error = refused(reader, path)
    missing = kind in ("missing", "dangling link") or (kind == "link to itself" and reader.name in OF_THE_LAB)
    if reader.name not in LENIENT and not (missing and reader.name in MAY_BE_MISSING):
        assert error


@by_name([*JSON, *LINES])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_invalid_numbers_are_refused_or_kept_as_text(folder: Path, reader: Reader, number: str) -> None:
    path = place(folder, reader)
    text = reader.sample().replace("1.0", number).replace("1.5", number).replace("95.0", number)
    path.write_text(text, encoding="utf-8")
    refused(reader, path)


@by_name(JSON)
def test_a_key_that_occurs_twice_is_refused(folder: Path, reader: Reader) -> None:
    path = place(folder, reader)
    text = reader.sample()
    key = next(iter(json.loads(text)))
    path.write_text(f"{{{json.dumps(key)}: 1, {text.lstrip()[1:]}", encoding="utf-8")
    error = refused(reader, path)
    assert reader.name in LENIENT or "twice" in error


def paths_of(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the paths of all parts of a JSON value."""
    yield keys
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths_of(one, (*keys, key))


def changed(value: Any, keys: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at the end of a path of keys; without it if that is ``...``."""
    if not keys:
        return {} if new is ... else new
    whole = copy.deepcopy(value)
    inner = whole
    for key in keys[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = new
    return whole


@by_name(JSON)
@given(data=st.data())
@settings(max_examples=60)
def test_values_of_other_types_are_refused_or_read(folder: Path, reader: Reader, data: st.DataObject) -> None:
    path = place(folder, reader)
    value = json.loads(reader.sample())
    # each level as likely as the others, however many values it has
    depth = data.draw(st.integers(0, 6))
    level = [keys for keys in paths_of(value) if len(keys) == depth]
    keys = data.draw(st.sampled_from(level or [()]))
    new = data.draw(st.sampled_from([*ODD, ...]))
    path.write_text(json.dumps(changed(value, keys, new)), encoding="utf-8")
    refused(reader, path)


@by_name(LINES)
@given(data=st.data())
@settings(max_examples=60)
def test_events_of_other_types_are_refused_or_judged(folder: Path, reader: Reader, data: st.DataObject) -> None:
    path = place(folder, reader)
    lines = reader.sample().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    value = json.loads(lines[number])
    keys = data.draw(st.sampled_from(list(paths_of(value))))
    lines[number] = json.dumps(changed(value, keys, data.draw(st.sampled_from([*ODD, ...]))))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    refused(reader, path)


@by_name(TOML)
@given(data=st.data())
@settings(max_examples=60)
def test_lines_of_toml_with_other_values_are_refused_or_read(folder: Path, reader: Reader, data: st.DataObject) -> None:
    path = place(folder, reader)
    lines = reader.sample().splitlines()
    number = data.draw(st.sampled_from([at for at, line in enumerate(lines) if "=" in line or line.startswith("[")]))
    line = lines[number]
    odd = data.draw(st.sampled_from([*ODD_TOML, "delete", "repeat"]))
    key, equals, _ = line.partition("=")
    lines[number] = {"delete": "", "repeat": f"{line}\n{line}"}.get(odd, f"{key}{equals} {odd}" if equals else "")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    refused(reader, path)


@by_name(EVERY)
@given(data=st.data())
@settings(max_examples=30)
def test_a_file_that_is_cut_short_is_refused_or_read(folder: Path, reader: Reader, data: st.DataObject) -> None:
    path = place(folder, reader)
    whole = reader.sample().encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:cut])
    error = refused(reader, path)
    if reader in JSON and reader.name not in LENIENT and cut < len(whole.rstrip()):
        assert error


def test_a_history_that_is_cut_short_has_no_other_events(tmp_path: Path) -> None:
    whole = (paths.REPO / "tests/support/lab_histories/restored.jsonl").read_bytes()
    path = tmp_path / "h.jsonl"
    path.write_bytes(whole)
    every = list(History(path).events())
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        found = list(History(path).events())
        lines = whole[:cut].count(b"\n")
        assert found[:lines] == every[:lines]
        assert [one.op for one in found[lines:]] in ([], ["torn"], [every[lines].op])


@pytest.mark.parametrize("value", [[], {}, None, "1", 1.5, True])
@pytest.mark.parametrize("key", ["mono_ns", "wall_ms", "process", "op", "outcome", "rack", "data"])
def test_an_event_with_a_value_of_another_type_is_not_accepted(key: str, value: Any) -> None:
    whole = json.loads(event_now("p", "o", "ok", rack="a").line())
    if (key, value) in (("rack", None), ("data", {})) or (key in ("process", "op", "rack") and value == "1"):
        return
    with pytest.raises(ValueError, match=key):
        Event.parse(json.dumps(whole | {key: value}))


def test_a_null_character_in_a_path_is_an_error() -> None:
    with pytest.raises(RackgateError, match="null"):
        files.read_json(Path("a\0b"), "nothing writes it")


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "a\udc80b"])
def test_control_characters_in_the_name_of_a_file_reach_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "report", str(tmp_path / name)])
    assert ended.value.code == 2
    stderr = capsys.readouterr().err
    assert stderr.count("\n") == 1
    assert stderr.rstrip("\n").isprintable()
    assert "missing" in stderr
