"""What is known of labs outside of them, without any lab."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks.cluster import labs, tools
from pyhooks.cluster.lab import Lab
from pyhooks.errors import RackgateError


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RACKGATE_STATE", str(tmp_path))
    return tmp_path


def known(name: str, run_dir: Path) -> labs.Known:
    return labs.Known(name, 1, True, "as somebody", "az3.toml", False, str(run_dir), 0.0, 1)


def test_a_machine_without_namespaces_is_told_what_to_enable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 1, "", "unshare failed: Operation not permitted\n")

    monkeypatch.setattr(subprocess, "run", refused)
    monkeypatch.setattr(labs, "_against_us", lambda: [("kernel.odd", "1")])
    with pytest.raises(
        RackgateError, match=r"gives no namespaces \(unshare failed.*\); allow them with 'sysctl -w kernel.odd=1'"
    ):
        labs.way()


@pytest.mark.parametrize("root", [True, False])
def test_root_goes_without_a_user_namespace_where_there_is_none(monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    def choosy(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, int("--user" in words), "", "no user namespaces")

    monkeypatch.setattr(subprocess, "run", choosy)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    if root:
        found = labs.way()
        assert (found.user, "--user" in found.words, found.text.startswith("root, without")) == (False, False, True)
    else:
        with pytest.raises(RackgateError, match="run as root"):
            labs.way()


@pytest.mark.parametrize("root", [True, False])
def test_only_root_can_do_without_a_user_namespace(monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    def willing(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", willing)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    assert labs.way().user
    if root:
        assert "--user" not in labs.way(user=False).words
    else:
        with pytest.raises(RackgateError, match="only root"):
            labs.way(user=False)


def test_what_has_no_lock_does_not_run(state: Path, tmp_path: Path) -> None:
    (state / "old.json").write_text(json.dumps(asdict(known("old", tmp_path))), encoding="utf-8")
    (state / "odd.json").write_text('{"name": "odd"}', encoding="utf-8")
    (one,) = labs.known()
    assert (one.name, one.runs) == ("old", False)
    with pytest.raises(RackgateError, match="no lab runs"):
        labs.find(None)
    with pytest.raises(RackgateError, match="no lab 'old' runs; none does"):
        labs.find("old")
    labs.down(one)
    assert labs.known() == ()


def test_somebody_else_s_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(RackgateError, match="belongs to somebody else"):
        labs.known()


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "x" * 25])
def test_names(name: str) -> None:
    with pytest.raises(RackgateError, match="small letters, digits and dashes"):
        labs.check_name(name)


def test_tools_get_the_brokers_unless_they_are_named() -> None:
    words = tools.command("cp", "topics", ["--list"], "h:1")
    assert words[-4:] == ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", "h:1", "--list"]
    assert tools.command("cp", "kafka-topics.sh", ["--list"], "h:1") == words
    assert "h:1" not in tools.command("cp", "topics", ["--bootstrap-server", "k:2", "--list"], "h:1")
    assert "h:1" not in tools.command("cp", "topics", ["--help"], "h:1")
    assert "h:1" not in tools.command("cp", "dump-log", ["--files", "f"], "h:1")
    # the sub-command has the option
    assert tools.command("cp", "cluster", ["cluster-id"], "h:1")[-3:] == ["cluster-id", "--bootstrap-server", "h:1"]
    with pytest.raises(RackgateError, match="no tool 'topic' of Kafka; there are: acls"):
        tools.command("cp", "topic", [], "h:1")


def test_only_settings_that_are_there_and_forbid_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labs, "SYSCTL", tmp_path)
    for name, value in (("kernel/unprivileged_userns_clone", "1"), ("user/max_user_namespaces", "0")):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(value + "\n", encoding="ascii")
    assert labs._against_us() == [("user.max_user_namespaces", "10000")]


def test_a_process_of_the_same_number_is_not_the_lab(state: Path, tmp_path: Path) -> None:
    """A lab that was killed left its file; its number is another process's by now, which must live on."""
    other = subprocess.Popen(["sleep", "60"])
    try:
        stale = replace(known("old", tmp_path), pid=other.pid, ticks=labs._ticks(other.pid) - 1)
        (state / "old.json").write_text(json.dumps(asdict(stale)), encoding="utf-8")
        with (state / "old.lock").open("w") as lock:
            # a new lab of that name is just starting: it has the lock, and not written its file yet
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert not stale.runs
        labs.down(stale)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_another_lab_cannot_be_meant_from_within_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labs, "in_lab", lambda: True)
    monkeypatch.setattr(Lab, "attach", staticmethod(lambda: SimpleNamespace(name="one")))
    assert labs.inside(None)
    assert labs.inside("one")
    with pytest.raises(RackgateError, match="--lab two: this runs in lab 'one'"):
        labs.inside("two")
