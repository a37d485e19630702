"""Runs of Kafka's own tests on stock and overlay: batches, resuming, repetitions and crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from pyhooks.core import process
from pyhooks.core.errors import RackgateError
from pyhooks.core.process import end_processes_in
from pyhooks.patchset import maven, recipe, series
from pyhooks.patchset.artifacts import MavenRepository
from pyhooks.patchset.distribution import Distribution
from pyhooks.patchset.recipe import TEST_ALL
from pyhooks.patchset.workspace import Workspace
from pyhooks.verify import upstream, upstream_runner
from pyhooks.verify.upstream import Batch, ClassDurations, plan_units
from pyhooks.verify.upstream_cases import FAILED, OVERLAY, PASSED, PATCHED, STOCK, ClassResult, judge
from pyhooks.verify.upstream_progress import UpstreamProgress
from pyhooks.verify.upstream_runner import KafkaTestRunner, run_classes
from pyhooks.verify.upstream_suite import Suite
from upstream_results import NAME, result, write_report


def run_units(
    runner: KafkaTestRunner,
    progress: UpstreamProgress,
    units: Sequence[Batch],
    memory: Path,
    run: Any,
    jobs: int = upstream.JOBS,
) -> None:
    """Run batches with a fake for ``run_classes``, without output; ``memory`` is the file of class durations."""
    upstream._run_units(runner, progress, units, Console(quiet=True), ClassDurations(memory), jobs=jobs, run=run)


def test_a_killed_run_is_resumed(tmp_path: Path) -> None:
    progress = UpstreamProgress(tmp_path, tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    progress.load()
    progress.add(STOCK, result(a=PASSED))
    progress.add(OVERLAY, result(a=FAILED))
    with progress.lines.open("a", encoding="utf-8") as file:
        file.write('{"session": "1", "arm": "stock", "cla')  # killed during a write
    again = UpstreamProgress(tmp_path, tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    again.load()
    assert again.done == {(STOCK, NAME, 0), (OVERLAY, NAME, 0)}
    assert again.sessions == 2
    again.add(STOCK, result("x.Y", a=PASSED))
    third = UpstreamProgress(tmp_path, tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    third.load()
    assert (STOCK, "x.Y", 0) in third.done
    assert third.runs.bad() == {NAME: (f"{NAME}.a",)}


def test_a_resumed_run_repeats_unloadable_but_not_crashed_classes(tmp_path: Path) -> None:
    progress = UpstreamProgress(tmp_path, tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    progress.add(
        STOCK, ClassResult("x.Unloadable", 0.0, (), "NoClassDefFoundError: org/apache/kafka/streams/KafkaStreams")
    )
    progress.add(STOCK, ClassResult("x.Crashes", 0.0, (), "The forked VM terminated"))
    assert {name for _, name, _ in progress.done} == {"x.Unloadable", "x.Crashes"}
    again = UpstreamProgress(tmp_path, tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    again.load()
    assert {name for _, name, _ in again.done} == {"x.Crashes"}
    again.add(STOCK, result("x.Unloadable", a=PASSED))
    third = UpstreamProgress(tmp_path, tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    third.load()
    assert third.runs.first[STOCK]["x.Unloadable"].error == ""
    assert third.runs.first[STOCK]["x.Crashes"].error == "The forked VM terminated"


def test_artifacts_of_the_full_run_come_last_and_do_not_change_the_key(tmp_path: Path) -> None:
    plan = recipe.load()
    full_run_only = plan.only_for(TEST_ALL)
    assert "kafka-streams" in {artifact.name for artifact in full_run_only}
    assert not {"connect-runtime", "kafka-clients"} & {
        artifact.name for artifact in full_run_only if not artifact.classifier
    }
    assert set(plan.without(TEST_ALL)) == set(plan.artifacts) - set(full_run_only)
    reduced = replace(plan, artifacts=plan.without(TEST_ALL))
    assert upstream._key(reduced) == upstream._key(plan) != upstream._key(replace(plan, artifacts=plan.artifacts[1:]))
    distribution = Distribution(tmp_path)
    (tmp_path / "libs").mkdir()
    space = Workspace(tmp_path)
    core = plan.module("core")
    classpath = KafkaTestRunner(plan, space, distribution, space.root, space.root).classpath(STOCK, core)
    full_classpath = KafkaTestRunner(plan, space, distribution, space.root, space.root, full_run_only).classpath(
        STOCK, core
    )
    assert full_classpath == [*classpath, *map(space.store.path, full_run_only)]


def test_stock_results_are_reused_for_the_next_series(tmp_path: Path) -> None:
    stock = tmp_path / "stock.jsonl"
    first = UpstreamProgress(tmp_path / "first", stock, tmp_path / "first.jsonl")
    first.add(STOCK, result(a=PASSED))
    first.add(OVERLAY, result(a=FAILED))
    first.add(STOCK, result(a=PASSED), repeat=1)
    spent_s = first.seconds()
    following = UpstreamProgress(tmp_path / "second", stock, tmp_path / "second.jsonl")
    following.load()
    # Repetitions are of the cases that failed with one series, so they stay with it.
    assert following.done == {(STOCK, NAME, 0)}
    assert following.sessions == 2
    assert 0.0 <= following.seconds() <= spent_s + 1.0


def test_a_changed_test_of_the_series_does_not_repeat_published_tests(tmp_path: Path) -> None:
    first = UpstreamProgress(tmp_path, tmp_path / "stock.jsonl", tmp_path / "first.jsonl")
    first.add(OVERLAY, result(a=PASSED))
    first.add(PATCHED, result(a=PASSED))
    first.add(PATCHED, result(a=PASSED), repeat=1)
    following = UpstreamProgress(tmp_path, tmp_path / "stock.jsonl", tmp_path / "second.jsonl")
    following.load()
    assert following.done == {(OVERLAY, NAME, 0)}


def test_results_depend_on_the_overlay_classes_but_not_on_the_series_name(tmp_path: Path) -> None:
    def overlay(name: str, series: str, content: bytes) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        with zipfile.ZipFile(folder / "core-rackgate.jar", "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", f"Rackgate-Series: {series}")
            jar.writestr("kafka/A.class", content)
        return folder

    classes = upstream._classes_of(overlay("one", "1", b"a"))
    assert classes == upstream._classes_of(overlay("two", "2", b"a"))
    assert classes != upstream._classes_of(overlay("three", "1", b"b"))
    assert [row[:2] for row in classes] == [["core-rackgate.jar", "kafka/A.class"]]


def test_sigterm_ends_a_run_like_an_interrupt_and_concurrent_runs_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = series.series_hash(series.load(recipe.load().path.parent))
    monkeypatch.setattr(Distribution, "load", lambda: SimpleNamespace(manifest={"patch_hash": built}))
    monkeypatch.setattr(Workspace, "of", lambda _: Workspace(tmp_path))
    monkeypatch.setattr(upstream, "_key", lambda *_: "jars")

    def start_second_run_then_terminate(_: Path) -> int:
        with pytest.raises(RackgateError, match="another run of Kafka's tests"):
            upstream.upstream(quiet=True)
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("went on")

    monkeypatch.setattr(upstream, "end_processes_in", start_second_run_then_terminate)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        upstream.upstream(quiet=True)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupt_ends_a_jvm_that_is_just_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(tmp_path)
    work = runner.folder / upstream_runner.WORK / "batch"
    work.mkdir(parents=True)
    started, searched, ended = threading.Event(), threading.Event(), []

    def search(folder: Path) -> int:
        count = end_processes_in(folder)
        searched.set()
        return count

    def fake_run(_runner: object, _arm: str, _module: object, wanted: dict[str, object], report: object) -> None:
        (name,) = wanted
        if name == "x.Interrupted":
            assert started.wait(20)
            raise KeyboardInterrupt
        if name == "x.Late":
            started.set()
            # start only after the first search for processes to end
            assert searched.wait(20)
            ended.append(subprocess.run(["sleep", "60"], cwd=work, check=False).returncode)
        report(result(name, a=PASSED))  # type: ignore[operator]

    monkeypatch.setattr(process, "end_processes_in", search)
    progress = UpstreamProgress(tmp_path / "state", tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    progress.load()
    core = recipe.load().module("core")
    units = [Batch(STOCK, core, (f"x.{name}",)) for name in ("First", "Late", "Interrupted", "Never")]
    with pytest.raises(KeyboardInterrupt):
        run_units(runner, progress, units, tmp_path / "timings.json", fake_run, jobs=2)
    assert ended == [-signal.SIGKILL]


def test_finished_classes_are_not_run_again(tmp_path: Path) -> None:
    requested: list[tuple[str, list[str]]] = []

    def fake_run(_runner: object, arm: str, _module: object, wanted: dict[str, object], report: object) -> None:
        requested.append((arm, list(wanted)))
        for name in wanted:
            report(result(name, a=PASSED))  # type: ignore[operator]

    progress = UpstreamProgress(tmp_path / "state", tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    progress.load()
    progress.add(STOCK, result("x.Done", a=PASSED))
    module = recipe.load().module("core")
    units = [Batch(STOCK, module, ("x.Done", "x.Open")), Batch(OVERLAY, module, ("x.Done",))]
    memory = tmp_path / "timings.json"
    run_units(make_runner(tmp_path), progress, units, memory, fake_run)
    assert requested == [(STOCK, ["x.Open"]), (OVERLAY, ["x.Done"])]
    run_units(make_runner(tmp_path), progress, units, memory, fake_run)
    assert len(requested) == 2
    assert json.loads(memory.read_text())[f"{STOCK} x.Open"] == 1.0
    assert ClassDurations(memory).of(Batch(OVERLAY, module, ("x.Open", "x.Other"))) == 8.0 + 1.0 + 4.0
    memory.write_text("[]")
    assert ClassDurations(memory).seconds == {}


def test_batches_run_in_parallel_after_the_first(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=20)
    running: list[str] = []

    def fake_run(_runner: object, arm: str, _module: object, wanted: dict[str, object], report: object) -> None:
        if "x.First" in wanted:
            assert running == []
        else:
            # Exactly two batches run at a time: the barrier times out otherwise.
            both.wait()
        running.append(arm)
        for name in wanted:
            report(result(name, a=PASSED))  # type: ignore[operator]

    progress = UpstreamProgress(tmp_path / "state", tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    progress.load()
    module = recipe.load().module("core")
    units = [Batch(arm, module, (name,)) for name in ("x.First", "x.Second", "x.Third") for arm in (STOCK, OVERLAY)]
    units = [units[0], *units[2:]]
    run_units(make_runner(tmp_path), progress, units, tmp_path / "timings.json", fake_run, jobs=2)
    assert progress.done == {(unit.arm, unit.classes[0], 0) for unit in units}


def test_serial_batches_run_without_others(tmp_path: Path) -> None:
    running: set[str] = set()
    concurrent: dict[str, set[str]] = {}
    both = threading.Barrier(2, timeout=20)

    def fake_run(_runner: object, _arm: str, _module: object, wanted: dict[str, object], report: object) -> None:
        (name,) = wanted
        running.add(name)
        if name in ("x.Second", "x.Third"):
            both.wait()
        concurrent[name] = running - {name}
        if name in ("x.Second", "x.Third"):
            both.wait()
        running.remove(name)
        report(result(name, a=PASSED))  # type: ignore[operator]

    progress = UpstreamProgress(tmp_path / "state", tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    progress.load()
    core = recipe.load().module("core")
    serial = [Batch(STOCK, core, (f"x.{name}",), serial=True) for name in ("SerialOne", "SerialTwo")]
    units = [
        Batch(STOCK, core, ("x.First",)),
        serial[0],
        *(Batch(STOCK, core, (f"x.{n}",)) for n in ("Second", "Third")),
    ]
    run_units(make_runner(tmp_path), progress, [*units, serial[1]], tmp_path / "timings.json", fake_run, jobs=4)
    assert concurrent == {
        "x.First": set(), "x.Second": {"x.Third"}, "x.Third": {"x.Second"}, "x.SerialOne": set(), "x.SerialTwo": set()
    }  # fmt: skip


def test_the_first_batch_is_a_single_fast_class(tmp_path: Path) -> None:
    core = recipe.load().module("core")
    durations = ClassDurations(tmp_path / "timings.json", {f"{STOCK} x.Long": 900.0, f"{STOCK} x.Short": 1.0})
    batches = [Batch(OVERLAY, core, ("x.Long", "x.Short", "x.Unknown")), Batch(STOCK, core, ("x.Other",))]
    assert upstream._lead(batches, durations) == [
        Batch(OVERLAY, core, ("x.Short",)), Batch(OVERLAY, core, ("x.Long", "x.Unknown")), batches[1]
    ]  # fmt: skip
    assert upstream._lead(batches[1:], durations) == batches[1:]
    assert upstream._lead([], durations) == []


def test_no_batch_starts_after_a_failed_batch(tmp_path: Path) -> None:
    requested: list[str] = []

    def fake_run(_runner: object, _arm: str, _module: object, wanted: dict[str, object], report: object) -> None:
        (name,) = wanted
        requested.append(name)
        if name == "x.Bad":
            raise RackgateError("Maven failed")
        report(result(name, a=PASSED))  # type: ignore[operator]

    progress = UpstreamProgress(tmp_path / "state", tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    progress.load()
    runner = make_runner(tmp_path)
    units = [Batch(STOCK, recipe.load().module("core"), (f"x.{name}",)) for name in ("Fine", "Bad", *"abcdefgh")]
    with pytest.raises(RackgateError, match="Maven failed"):
        run_units(runner, progress, units, tmp_path / "timings.json", fake_run, jobs=1)
    assert requested[:2] == ["x.Fine", "x.Bad"]
    # The pool may have started the next batch before the failure was reported.
    assert len(requested) < len(units)
    assert runner.ended.is_set()


def test_a_stopped_class_has_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(tmp_path)

    def fake_batch(*_: object) -> upstream_runner._Crash:
        runner.ended.set()
        return upstream_runner._Crash("The forked VM terminated")

    monkeypatch.setattr(upstream_runner, "_batch", fake_batch)
    reported: list[ClassResult] = []
    with pytest.raises(RackgateError, match=r"^1 .*core on stock"):
        run_classes(runner, STOCK, recipe.load().module("core"), {"x.A": ()}, reported.append)
    assert reported == []


def make_runner(folder: Path) -> KafkaTestRunner:
    """Return a runner without a distribution."""
    plan = recipe.load()
    return KafkaTestRunner(plan, Workspace(folder / "space"), None, folder / "state", folder / "out")  # type: ignore[arg-type]


def test_failed_cases_are_repeated_five_times_on_every_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[tuple[str, dict[str, object]]] = []

    def fake_run(_runner: object, arm: str, _module: object, wanted: dict[str, object], report: object) -> None:
        requested.append((arm, dict(wanted)))
        report(result(a=PASSED if arm == STOCK else FAILED))  # type: ignore[operator]

    monkeypatch.setattr(upstream, "run_classes", fake_run)
    progress = UpstreamProgress(tmp_path / "state", tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    progress.load()
    progress.add(STOCK, result(a=PASSED, b=PASSED))
    progress.add(OVERLAY, result(a=FAILED, b=PASSED))
    suite = Suite("list", {"core": (NAME,)}, {})
    upstream._repeat(make_runner(tmp_path), progress, suite, {}, Console(quiet=True))
    assert requested == [(arm, {NAME: ("a",)}) for _ in range(5) for arm in (STOCK, OVERLAY)]
    assert str(progress.runs.tally(OVERLAY, f"{NAME}.a")) == "0 of 6 passed"
    assert [row["test"] for row in judge(progress.runs, {})["missed"]] == [f"{NAME}.a"]
    resumed = UpstreamProgress(tmp_path / "state", tmp_path / "stock.jsonl", tmp_path / "patched.jsonl")
    resumed.load()
    upstream._repeat(make_runner(tmp_path), resumed, suite, {}, Console(quiet=True))
    assert len(requested) == 10


def test_classes_are_selected_by_a_part_of_their_name() -> None:
    core, tools = recipe.load().module("core"), recipe.load().module("tools")
    units = [
        Batch(STOCK, core, ("x.A", "x.AB")),
        Batch(OVERLAY, tools, ("y.C",)),
        Batch(STOCK, core, ("x.B",), serial=True),
    ]
    assert upstream.narrowed(units, ()) == units
    assert upstream.narrowed(units, ["B"]) == [Batch(STOCK, core, ("x.AB",)), units[2]]
    assert upstream.narrowed(units, ["y.", "x.A"]) == units[:2]
    with pytest.raises(RackgateError, match=r"'z\.Absent'"):
        upstream.narrowed(units, ["B", "z.Absent"])


def test_batches_alternate_between_the_arms() -> None:
    plan = recipe.load()
    classes = {"core": ("a.A", "a.X", "a.P", "a.B", "a.C"), "clients": ("c.C",)}
    suite = Suite("list", classes, {}, frozenset({"a.X"}), frozenset({"a.P"}))
    units = plan_units(plan, suite, {"core": ("a.A",)}, batch=2)
    assert [(unit.module.name, unit.arm, unit.classes) for unit in units] == [
        ("clients", STOCK, ("c.C",)), ("clients", OVERLAY, ("c.C",)),
        ("core", STOCK, ("a.A", "a.B")), ("core", OVERLAY, ("a.A", "a.B")),
        ("core", STOCK, ("a.C",)), ("core", OVERLAY, ("a.C",)),
        ("core", STOCK, ("a.P",)), ("core", OVERLAY, ("a.P",)),
        ("core", STOCK, ("a.X",)), ("core", OVERLAY, ("a.X",)),
        ("core", PATCHED, ("a.A",)),
    ]  # fmt: skip
    assert {unit.classes for unit in units if unit.serial} == {("a.X",)}


def test_a_crash_keeps_the_results_of_other_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[str]] = []

    def fake_batch(
        _runner: object, _arm: str, _module: object, remaining: dict[str, object], report: object
    ) -> upstream_runner._Crash:
        batches.append(list(remaining))
        for name in list(remaining):
            if name == "x.Crash":
                return upstream_runner._Crash("The forked VM terminated")
            del remaining[name]
            report(result(name, a=PASSED))  # type: ignore[operator]
        return upstream_runner._Crash("")

    monkeypatch.setattr(upstream_runner, "_batch", fake_batch)
    reported: list[ClassResult] = []
    wanted: dict[str, tuple[str, ...]] = dict.fromkeys(("x.Before", "x.Crash", "x.After"), ())
    run_classes(make_runner(tmp_path), STOCK, recipe.load().module("core"), wanted, reported.append)
    assert batches == [["x.Before", "x.Crash", "x.After"], ["x.Crash"], ["x.After"]]
    assert {class_result.name: class_result.error for class_result in reported} == {
        "x.Before": "", "x.Crash": "The forked VM terminated", "x.After": "",
    }  # fmt: skip


def test_unloadable_classes_are_skipped_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[str]] = []

    def fake_maven(_self: object, _pom: Path, _goals: object, *, log: Path, **_: object) -> None:
        wanted = [name for name in ("x.Bad", "x.Fine", "x.Worse") if f"{name}." in log.with_name("pom.xml").read_text()]
        batches.append(wanted)
        bad = [name for name in wanted if name != "x.Fine"]
        if bad:
            log.write_text(
                "[ERROR] TestEngine with ID 'junit-jupiter' encountered a critical issue during test discovery:\n"
                + "".join(f"(1) ClassSelector [className = '{n}', classLoader = null] resolution failed\n" for n in bad)
                + "Cause: java.lang.NoClassDefFoundError: io/y/Data\n"
            )
            raise RackgateError("Maven failed")
        write_report(log.with_name("reports"), "x.Fine", '<testcase classname="x.Fine" name="a"/>')

    def render(_template: str, target: Path, **values: Any) -> Path:
        target.write_text("".join(f"{name}." for name in values["wanted"]))
        return target

    monkeypatch.setattr(MavenRepository, "maven", fake_maven)
    monkeypatch.setattr(maven, "render", render)
    monkeypatch.setattr(KafkaTestRunner, "classes", lambda *_: tmp_path)
    monkeypatch.setattr(KafkaTestRunner, "classpath", lambda *_: [])
    reported: list[ClassResult] = []
    wanted: dict[str, tuple[str, ...]] = dict.fromkeys(("x.Bad", "x.Fine", "x.Worse"), ())
    run_classes(make_runner(tmp_path), STOCK, recipe.load().module("core"), wanted, reported.append)
    assert batches == [["x.Bad", "x.Fine", "x.Worse"], ["x.Fine"]]
    assert {class_result.name: class_result.error for class_result in reported} == {
        "x.Bad": "NoClassDefFoundError: io/y/Data", "x.Fine": "", "x.Worse": "NoClassDefFoundError: io/y/Data",
    }  # fmt: skip


def test_results_are_reported_while_the_tests_run(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    reported: list[ClassResult] = []
    remaining: dict[str, Sequence[str]] = dict.fromkeys(("x.First", "x.Second", "x.Never"), ())
    with upstream_runner._harvest(raw, dict(remaining), None, reported.append):
        assert reported == []
        write_report(raw, "x.First", '<testcase classname="x.First" name="a"/>')
        write_report(raw, "x.Second", '<testcase classname="x.Second" name="a"/>')
    assert sorted(class_result.name for class_result in reported) == ["x.First", "x.Second"]
    reported.clear()
    unreported = dict(remaining)
    with upstream_runner._harvest(raw, unreported, tmp_path / "kept", reported.append):
        pass
    assert list(unreported) == ["x.Never"]
    assert (tmp_path / "kept" / "TEST-x.First.xml").exists()


def test_changed_tests_without_compiled_classes_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaTestRunner, "classes", lambda *_: tmp_path / "elsewhere")
    with pytest.raises(RackgateError, match=f"{tmp_path / 'elsewhere'}: "):
        upstream.series_tests({"core": ("a.ATest", "a.BTest")}, make_runner(tmp_path))


def test_an_interrupt_keeps_completed_classes(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    reported: list[ClassResult] = []
    remaining: dict[str, Sequence[str]] = dict.fromkeys(("x.First", "x.Second"), ())

    def write(name: str, after: Path) -> Path:
        file = raw / name
        file.write_text("", encoding="utf-8")
        later_ns = after.stat().st_mtime_ns + 1
        os.utime(file, ns=(later_ns, later_ns))
        return file

    def interrupt() -> None:
        with pytest.raises(KeyboardInterrupt), upstream_runner._harvest(raw, remaining, None, reported.append):
            raise KeyboardInterrupt

    first = write_report(raw, "x.First", '<testcase classname="x.First" name="a"/>')
    nested = write("x.First$Inner-output.txt", write("x.First-output.txt", first))
    interrupt()
    assert reported == [], "a nested class may still be running"
    write("x.Second-output.txt", nested)
    interrupt()
    assert [class_result.name for class_result in reported] == ["x.First"]
    assert list(remaining) == ["x.Second"]


def test_only_processes_in_the_work_folder_are_ended(tmp_path: Path) -> None:
    (tmp_path / "work" / "deep").mkdir(parents=True)
    with (
        subprocess.Popen(["sleep", "60"], cwd=tmp_path / "work" / "deep") as inside,
        subprocess.Popen(["sleep", "60"], cwd=tmp_path) as outside,
    ):
        assert end_processes_in(tmp_path / "work") == 1
        assert inside.wait(timeout=10) == -9
        assert outside.poll() is None
        outside.kill()
