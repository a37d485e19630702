"""Kafka's exceptions as Python exceptions of the same hierarchy, by the names that Java has for them.

``except errors.NotEnoughRacksException``, ``except errors.RetriableException`` and ``except errors.JavaError`` catch
what Java's own clauses would. All of ``org.apache.kafka.common.errors`` is here under its simple name; the class of
another exception of Kafka's clients is ``errors.named("org.apache.kafka.common.config.ConfigException")``.

The hierarchy is the built distribution's, for exceptions of other releases' clients too. What their own Kafka says
about retrying is in ``retriable``; of 2.8, 3.9 and 4.4 it differs for 2.8's ConcurrentTransactionsException alone,
which became retriable later.

A class is made when it is first asked for, from the built distribution, without a JVM.
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
