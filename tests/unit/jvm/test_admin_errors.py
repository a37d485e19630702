"""Admin client: errors of requests that must not be taken for an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyhooks.jvm.admin import UNSUPPORTED, Admin
from pyhooks.jvm.java_exception import ERRORS, JavaError


def admin_whose_requests_fail(monkeypatch: pytest.MonkeyPatch, java_class: str) -> Admin:
    def fail(_: Admin, __: Any) -> Any:
        raise JavaError([java_class], "Cluster authorization failed.")

    monkeypatch.setattr(Admin, "_get", fail)
    admin = object.__new__(Admin)
    admin._java = SimpleNamespace(describeMetadataQuorum=lambda: SimpleNamespace(quorumInfo=lambda: None))
    return admin


def test_a_principal_that_may_not_describe_the_quorum_does_not_learn_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(JavaError, match="Cluster authorization failed"):
        admin_whose_requests_fail(monkeypatch, f"{ERRORS}.ClusterAuthorizationException").voters()
    assert admin_whose_requests_fail(monkeypatch, UNSUPPORTED).voters() is None
