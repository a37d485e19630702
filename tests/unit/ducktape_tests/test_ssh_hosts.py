"""A lab's nodes as hosts of a cluster file: what their daemons and the file say, and what is said without a lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from ducktape_tests import sshhosts
from pyhooks.lab.lab import LAB_VARIABLE


def test_a_daemon_listens_at_its_node_alone_and_lets_nobody_in_by_a_password(tmp_path: Path) -> None:
    lines = sshhosts.config("10.77.1.10", tmp_path / "host", tmp_path / "authorized").splitlines()
    told = dict(line.split(" ", 1) for line in lines)
    assert len(told) == len(lines), "an option twice"
    assert told["ListenAddress"] == "10.77.1.10"
    assert told["PasswordAuthentication"] == told["KbdInteractiveAuthentication"] == "no"
    assert told["AuthorizedKeysFile"] == str(tmp_path / "authorized")


def test_a_host_is_described_as_ducktape_wants_it(tmp_path: Path) -> None:
    host = sshhosts.described("broker-1", "10.77.1.10", tmp_path / "key")
    assert host["externally_routable_ip"] == host["ssh_config"]["hostname"] == "10.77.1.10"
    assert host["ssh_config"]["port"] == sshhosts.PORT
    assert host["ssh_config"]["identityfile"] == str(tmp_path / "key")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["hosts.json"], "usage"),
        (["hosts.json", "true", "x"], "usage"),
        (["hosts.json", "--", "true"], "not inside a lab"),
    ],
)
def test_what_cannot_be_tried_is_told_in_a_line(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(LAB_VARIABLE, raising=False)
    assert sshhosts.main([str(tmp_path / words[0]), *words[1:]]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not (tmp_path / "hosts.json").exists()
