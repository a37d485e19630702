"""Names of the errors of stock Kafka clients, Java and librdkafka; input of ``pyhooks.checkers.known_errors``."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable

from pyhooks.core.errors import RackgateError
from pyhooks.history.event_log import History
from pyhooks.history.events import CONFLUENT, PATCHED, TEST, KnownErrorsDetails
from pyhooks.history.outcomes import ERRORS
from pyhooks.patchset.distribution import Distribution

# Name that a client uses for an unknown error code.
UNKNOWN = {f"{ERRORS}.UnknownServerException", "UNKNOWN"}


def error_names(client: str) -> frozenset[str]:
    """Return the names of all errors that a client can report, except the one for unknown error codes.

    For Java clients of any release, these are the errors of the stock Kafka that the distribution is based on.

    Args:
        client: ``confluent``, or the release of a stock Java client.

    Raises:
        RackgateError: no distribution, or the client is the patched one.
    """
    if client == PATCHED:
        raise RackgateError("the patched client knows errors that others don't")
    return frozenset((_librdkafka_names() if client == CONFLUENT else _java_names()) - UNKNOWN)


def note_known_errors(history: History, clients: Iterable[str]) -> None:
    """Note in a history which errors clients know."""
    for client in clients:
        history.add(KnownErrorsDetails(client=client, names=tuple(sorted(error_names(client)))), process=TEST)


def _java_names() -> set[str]:
    folder = ERRORS.replace(".", "/") + "/"
    entries: set[str] = set()
    for path in (Distribution.load().root / "libs").glob("kafka-clients-*.jar"):
        with zipfile.ZipFile(path) as jar:
            entries |= {name for name in jar.namelist() if name.startswith(folder) and "$" not in name}
    if not entries:
        raise RackgateError("the distribution has no stock clients, or they know no errors")
    return {
        f"{ERRORS}.{name.removeprefix(folder).removesuffix('.class')}" for name in entries if name.endswith(".class")
    }


def _librdkafka_names() -> set[str]:
    from confluent_kafka import KafkaError

    codes = {name: value for name, value in vars(KafkaError).items() if name.lstrip("_").isupper()}
    return {str(KafkaError(value).name()) for value in codes.values() if isinstance(value, int)}
