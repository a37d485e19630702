"""Exceptions that Java threw, as a Python exception that carries the names of the Java classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Wrappers of an exception of another thread.
WRAPPERS = frozenset({"java.util.concurrent.ExecutionException", "java.util.concurrent.CompletionException"})
ERRORS = "org.apache.kafka.common.errors"
RETRIABLE = f"{ERRORS}.RetriableException"


class JavaError(Exception):
    """An exception that Java threw.

    Args:
        classes: full names of its class and superclasses, in order; the hierarchy is that of the Kafka release that
            threw it.
        text: its message, or empty.
    """

    def __init__(self, classes: Sequence[str], text: str) -> None:
        super().__init__(f"{classes[0]}: {text}")
        self.classes = tuple(classes)
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return JavaError, (self.classes, self.text)

    @property
    def java_class(self) -> str:
        """Full name of its class."""
        return self.classes[0]

    @property
    def retriable(self) -> bool:
        """Whether it extends RetriableException, so that a producer with retries left would try again."""
        return self.extends(RETRIABLE)

    def extends(self, name: str) -> bool:
        """Return whether its class is, or extends, the Java class with this full name."""
        return name in self.classes

    @staticmethod
    def of(throwable: Any) -> JavaError:
        """Return the exception of a java.lang.Throwable, from jpype or py4j, without its wrappers."""
        while str(throwable.getClass().getName()) in WRAPPERS and throwable.getCause() is not None:
            throwable = throwable.getCause()
        message = throwable.getMessage()
        return JavaError(_class_names(throwable.getClass()), "" if message is None else str(message))


def _class_names(java_class: Any) -> list[str]:
    names = []
    while java_class is not None:
        names.append(str(java_class.getName()))
        java_class = java_class.getSuperclass()
    return names
