"""Secrets among the conditions of a run: only a keyed hash is stored, against which guesses cannot be tested."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import itertools
import json
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench import run_conditions
from bench.plan import scenarios
from bench.run import existing_cluster, run_store
from bench.run.existing_cluster import ExistingClusterRequest
from pyhooks.core import run_folder
from pyhooks.core.errors import RackgateError

SECRET = "hunter2"  # noqa: S105 - a fake secret
CONFIG = f'sasl.jaas.config=x required username="ops" password="{SECRET}";\n'
SETTING = "spark.authenticate.secret"
PLAN = scenarios.load("existing")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's state folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def settings(tmp_path: Path) -> ExistingClusterRequest:
    """Return a run with secrets in the command config, in Spark's settings and in the packed environment."""
    config, environment = tmp_path / "client.properties", tmp_path / "env.tar.gz"
    config.write_text(CONFIG, encoding="utf-8")
    environment.write_bytes(SECRET.encode())
    conf = {SETTING: SECRET, "spark.ssl.keyPassword": SECRET, "spark.executor.memory": "2g"}
    return ExistingClusterRequest(
        "k:1",
        config,
        "existing",
        scenarios.SHIPPED,
        "local[2]",
        tmp_path / "out",
        False,
        (),
        None,
        environment,
        conf,
        "c",
    )


def begin_run(settings: ExistingClusterRequest) -> bool:
    """Begin the run; return whether it was resumed."""
    given = existing_cluster._condition_values(settings)
    _, resumed = run_store.begin_run(
        settings.out / "run", PLAN, started=NOW, build="b", given=given, fresh=settings.fresh
    )  # fmt: skip
    return resumed


def create_block(settings: ExistingClusterRequest) -> None:
    """Create a finished block, which must be neither lost nor continued under other conditions."""
    (settings.out / "run" / "raw" / "healthy" / "000.1").mkdir(parents=True, exist_ok=True)


def strings(value: Any) -> set[str]:
    """Return all keys and values of a JSON document, and the parts of values between colons."""
    if isinstance(value, dict):
        return set(value).union(*(strings(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(strings(item) for item in value))
    return {str(value), *str(value).split(":")}


def guess_hashes(secret: bytes, published: set[str]) -> set[str]:
    """Return the hashes of a guess that a reader can compute: plain, salted and keyed with published values."""
    salts = {b"", b"\n", b"\0", b"id"}
    for text in published:
        salts |= {text.encode(), text.encode() + b"\0", f"conf.{text}".encode() + b"\0"}
        if re.fullmatch("([0-9a-f]{2})+", text):
            salts.add(bytes.fromhex(text))
    hashes = set()
    for algorithm, salt in itertools.product(
        ("sha256", "sha512", "sha1", "md5", "blake2b", "blake2s", "sha3_256"), salts
    ):
        for data in (salt + secret, secret + salt):
            hashes.add(hashlib.new(algorithm, data).hexdigest())
        hashes.add(hmac.new(salt, secret, algorithm).hexdigest())
        hashes.update(
            hmac.new(salt, other + secret, algorithm).hexdigest() for other in (f"conf.{SETTING}".encode() + b"\0",)
        )
    return hashes


def test_published_hashes_do_not_confirm_a_guess(state: Path, settings: ExistingClusterRequest) -> None:
    begin_run(settings)
    files = [file for file in settings.out.rglob("*") if file.is_file()]
    assert {file.name for file in files} == {"run.json", run_folder.MARKER}
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    published = {text for file in files for text in strings(json.loads(file.read_text(encoding="utf-8")))}
    key = (state / "rackgate" / "secrets.key").read_text(encoding="ascii").strip()
    assert SECRET not in text
    assert key not in text
    for secret in (SECRET.encode(), CONFIG.encode(), hashlib.sha256(SECRET.encode()).hexdigest().encode()):
        assert not {guess for guess in guess_hashes(secret, published) if guess in text}
    # With the key, the stored hash can be reproduced.
    assert run_conditions.HashKey(bytes.fromhex(key)).hide(f"conf.{SETTING}", SECRET.encode()) in text


def test_guess_hashes_include_plain_and_salted_hashes() -> None:
    plain = hashlib.sha256(SECRET.encode()).hexdigest()
    salted = hashlib.sha256(b"salt" + SECRET.encode()).hexdigest()
    assert {plain, salted} <= guess_hashes(SECRET.encode(), {"salt"})


@pytest.mark.usefixtures("state")
def test_the_same_secret_has_the_same_hash_in_two_runs_of_a_user(settings: ExistingClusterRequest) -> None:
    first, second = (
        existing_cluster._condition_values(settings),
        existing_cluster._condition_values(dataclasses.replace(settings, out=settings.out / "other")),
    )
    assert first == second
    assert run_conditions.differences(first, second) == []
    other = existing_cluster._condition_values(
        dataclasses.replace(settings, conf={**settings.conf, SETTING: "hunter3"})
    )
    assert run_conditions.differences(first, other) == [f"conf.{SETTING}: has another value"]
    # Two settings with the same secret have different hashes.
    assert len(set(first["conf"].values())) == 3


def test_a_run_does_not_resume_with_another_key(
    state: Path, settings: ExistingClusterRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not begin_run(settings)
    create_block(settings)
    assert begin_run(settings)
    before = existing_cluster._condition_values(settings)
    monkeypatch.setenv("XDG_STATE_HOME", str(state.with_name("of another user")))
    after = existing_cluster._condition_values(settings)
    assert not set(before["conf"].values()) & set(after["conf"].values())
    with pytest.raises(RackgateError, match=r"given\.command_config: .*--fresh") as caught:
        begin_run(settings)
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)
    assert (settings.out / "run" / "raw" / "healthy" / "000.1").is_dir()
    assert not begin_run(dataclasses.replace(settings, fresh=True))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    create_block(settings)
    with pytest.raises(RackgateError, match="can't be compared"):
        begin_run(settings)


def test_a_run_does_not_resume_after_its_key_is_lost(state: Path, settings: ExistingClusterRequest) -> None:
    begin_run(settings)
    create_block(settings)
    (state / "rackgate" / "secrets.key").unlink()
    with pytest.raises(RackgateError, match=r"can't be compared: .* --fresh"):
        begin_run(settings)


def test_a_run_with_a_plain_hash_does_not_resume(state: Path, settings: ExistingClusterRequest) -> None:
    begin_run(settings)
    create_block(settings)
    file = settings.out / "run" / "run.json"
    run = json.loads(file.read_text(encoding="utf-8"))
    run["conditions"]["given"]["conf"][SETTING] = hashlib.sha256(SECRET.encode()).hexdigest()
    file.write_text(json.dumps(run), encoding="utf-8")
    with pytest.raises(RackgateError, match=rf"given\.conf\.{SETTING}: [0-9a-f]{{39}}…, now hmac-sha256:.* --fresh"):
        begin_run(settings)
    assert state.exists()


def test_the_key_is_random_and_readable_only_by_this_user(state: Path, tmp_path: Path) -> None:
    key = run_conditions.user_key(tmp_path / "out")
    file = state / "rackgate" / "secrets.key"
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert len(key.value) == 32
    assert run_conditions.user_key(tmp_path / "out") == key
    assert key.value.hex() not in repr(key) + key.id
    file.unlink()
    assert run_conditions.user_key(tmp_path / "out") != key


def test_the_key_is_in_the_user_s_home_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run_conditions.key_file() == tmp_path / ".local" / "state" / "rackgate" / "secrets.key"


@pytest.mark.parametrize("problem", ["readable", "link", "empty", "short", "folder"])
def test_a_key_that_another_user_could_have_read_or_planted_is_rejected(
    state: Path, tmp_path: Path, problem: str
) -> None:
    run_conditions.user_key(tmp_path / "out")
    file = state / "rackgate" / "secrets.key"
    if problem == "readable":
        file.chmod(0o640)
    elif problem == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    elif problem == "folder":
        file.parent.chmod(0o777)
    else:
        file.write_text("" if problem == "empty" else "0" * 63 + "\n", encoding="ascii")
    with pytest.raises(RackgateError, match=r"secrets\.key|/rackgate: its mode") as caught:
        run_conditions.user_key(tmp_path / "out")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
def test_a_key_of_another_user_is_rejected(state: Path, tmp_path: Path) -> None:
    run_conditions.user_key(tmp_path / "out")
    os.chown(state / "rackgate" / "secrets.key", 65534, -1)
    with pytest.raises(RackgateError, match="belongs to user 65534"):
        run_conditions.user_key(tmp_path / "out")


def test_the_key_is_not_created_in_the_output_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "out" / "state"))
    with pytest.raises(RackgateError, match="XDG_STATE_HOME"):
        run_conditions.user_key(tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.key"))


def test_a_run_without_secrets_needs_no_key(state: Path, settings: ExistingClusterRequest) -> None:
    given = existing_cluster._condition_values(
        dataclasses.replace(settings, command_config=None, environment=None, conf={})
    )
    assert given == {"bootstrap": "k:1", "command_config": None, "conf": {}, "environment": None}
    assert not state.exists()
