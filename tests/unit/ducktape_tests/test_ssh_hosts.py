"""SSH hosts on the nodes of a lab: configuration, cluster file and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from ducktape_tests import sshhosts
from pyhooks.lab.lab import LAB_VARIABLE


def test_daemon_listens_on_one_address_and_accepts_no_password(tmp_path: Path) -> None:
    lines = sshhosts.config("10.77.1.10", tmp_path / "host", tmp_path / "authorized").splitlines()
    options = dict(line.split(" ", 1) for line in lines)
    assert len(options) == len(lines), "repeated option"
    assert options["ListenAddress"] == "10.77.1.10"
    assert options["PasswordAuthentication"] == options["KbdInteractiveAuthentication"] == "no"
    assert options["AuthorizedKeysFile"] == str(tmp_path / "authorized")


def test_host_entry(tmp_path: Path) -> None:
    host = sshhosts.host_entry("broker-1", "10.77.1.10", tmp_path / "key")
    assert host["externally_routable_ip"] == host["ssh_config"]["hostname"] == "10.77.1.10"
    assert host["ssh_config"]["port"] == sshhosts.PORT
    assert host["ssh_config"]["identityfile"] == str(tmp_path / "key")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hosts.json"], "usage"),
        (["hosts.json", "true", "x"], "usage"),
        (["hosts.json", "--", "true"], "not inside a lab"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(LAB_VARIABLE, raising=False)
    assert sshhosts.main([str(tmp_path / arguments[0]), *arguments[1:]]) == 2
    output = capsys.readouterr().err
    assert message in output
    assert output.count("\n") == 1
    assert not (tmp_path / "hosts.json").exists()
