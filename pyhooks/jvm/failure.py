"""A Java exception as a Python exception, by its Java class name and whether Kafka says that it can be retried."""

from __future__ import annotations

from typing import Any

# These only carry the exception of another thread.
WRAPPERS = frozenset({"java.util.concurrent.ExecutionException", "java.util.concurrent.CompletionException"})
RETRIABLE = "org.apache.kafka.common.errors.RetriableException"


class JavaError(Exception):
    """What Java threw.

    Attributes:
        java_class: full name of the exception's class.
        text: its message, or empty.
        retriable: it extends Kafka's RetriableException, so a producer with retries left would try again.
    """

    def __init__(self, java_class: str, text: str, *, retriable: bool) -> None:
        super().__init__(f"{java_class}: {text}")
        self.java_class = java_class
        self.text = text
        self.retriable = retriable

    @staticmethod
    def of(throwable: Any) -> JavaError:
        """The failure that a Java throwable tells of, out of its wrappers.

        Args:
            throwable: a java.lang.Throwable, of jpype or of py4j alike.
        """
        while str(throwable.getClass().getName()) in WRAPPERS and throwable.getCause() is not None:
            throwable = throwable.getCause()
        message = throwable.getMessage()
        return JavaError(
            str(throwable.getClass().getName()),
            "" if message is None else str(message),
            retriable=RETRIABLE in _ancestors(throwable.getClass()),
        )


def _ancestors(java_class: Any) -> list[str]:
    names = []
    while java_class is not None:
        names.append(str(java_class.getName()))
        java_class = java_class.getSuperclass()
    return names
