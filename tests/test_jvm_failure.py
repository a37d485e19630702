from __future__ import annotations

from dataclasses import dataclass

from pyhooks.jvm.failure import RETRIABLE, JavaError


@dataclass(frozen=True)
class Kind:
    """Stands for java.lang.Class."""

    name: str
    parent: Kind | None = None

    def getName(self) -> str:  # noqa: N802 - Java's name
        return self.name

    def getSuperclass(self) -> Kind | None:  # noqa: N802
        return self.parent


@dataclass(frozen=True)
class Throwable:
    """Stands for java.lang.Throwable."""

    kind: Kind
    message: str | None = None
    cause: Throwable | None = None

    def getClass(self) -> Kind:  # noqa: N802
        return self.kind

    def getMessage(self) -> str | None:  # noqa: N802
        return self.message

    def getCause(self) -> Throwable | None:  # noqa: N802
        return self.cause


API = Kind("org.apache.kafka.common.errors.ApiException", Kind("java.lang.Exception"))
RACKS = Kind("org.apache.kafka.common.errors.NotEnoughRacksException", Kind(RETRIABLE, API))


def test_class_text_and_retriable() -> None:
    error = JavaError.of(Throwable(RACKS, "1 rack"))
    assert (error.java_class, error.text, error.retriable) == (RACKS.name, "1 rack", True)
    assert str(error) == "org.apache.kafka.common.errors.NotEnoughRacksException: 1 rack"


def test_an_error_that_kafka_does_not_retry() -> None:
    error = JavaError.of(Throwable(API))
    assert (error.text, error.retriable) == ("", False)


def test_wrappers_are_taken_off() -> None:
    execution = Kind("java.util.concurrent.ExecutionException", Kind("java.lang.Exception"))
    completion = Kind("java.util.concurrent.CompletionException", Kind("java.lang.RuntimeException"))
    inner = Throwable(RACKS, "inner")
    assert JavaError.of(Throwable(execution, "o", Throwable(completion, "m", inner))).java_class == RACKS.name
    # a wrapper around nothing is all there is to tell
    assert JavaError.of(Throwable(execution, "alone")).java_class == execution.name
    # any other exception is told as itself, whatever caused it
    assert JavaError.of(Throwable(API, "outer", inner)).java_class == API.name
