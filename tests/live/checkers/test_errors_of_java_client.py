"""Error codes that the stock Java client knows."""

from __future__ import annotations

from pyhooks.core import paths
from pyhooks.workload.known_errors import error_names
from written_histories import REJECTED, TIMEOUT, TOO_FEW


def test_error_codes_of_the_stock_java_client() -> None:
    names = error_names(paths.kafka_version())
    assert {TOO_FEW, TIMEOUT} <= names
    assert not names & {REJECTED, "org.apache.kafka.common.errors.UnknownServerException"}
