"""Kafka's exceptions as Python exceptions, with Java's names and hierarchy.

``except errors.NotEnoughRacksException``, ``except errors.RetriableException`` and ``except
errors.JavaError`` catch the same exceptions as the corresponding Java clauses. All classes of
``org.apache.kafka.common.errors`` are available by their simple names. Other exceptions of Kafka's clients
are available by full name: ``errors.named("org.apache.kafka.common.config.ConfigException")``.

The hierarchy is that of the built distribution, also for exceptions of other releases' clients.
``retriable`` follows the release that threw the exception. Among 2.8, 3.9 and 4.4, only
ConcurrentTransactionsException of 2.8 differs: it became retriable later.

Classes are created on first access, from the built distribution, without a JVM.
"""

from __future__ import annotations

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.java_exception import ERRORS, JavaError, error_names, named

__all__ = ["JavaError", "named"]


def __getattr__(name: str) -> type[JavaError]:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    try:
        return named(f"{ERRORS}.{name}")
    except RackgateError as error:
        raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *error_names()])
