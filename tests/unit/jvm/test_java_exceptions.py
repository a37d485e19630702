"""Java exceptions as a Python exception: class names, message, wrappers and pickling."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from pyhooks.jvm.java_exception import ERRORS, RETRIABLE, JavaError


@dataclass(frozen=True)
class JavaClass:
    """Fake ``java.lang.Class``."""

    name: str
    parent: JavaClass | None = None

    def getName(self) -> str:  # noqa: N802 - Java's name
        return self.name

    def getSuperclass(self) -> JavaClass | None:  # noqa: N802
        return self.parent


@dataclass(frozen=True)
class Throwable:
    """Fake ``java.lang.Throwable``."""

    java_class: JavaClass
    message: str | None = None
    cause: Throwable | None = None

    def getClass(self) -> JavaClass:  # noqa: N802
        return self.java_class

    def getMessage(self) -> str | None:  # noqa: N802
        return self.message

    def getCause(self) -> Throwable | None:  # noqa: N802
        return self.cause


THROWABLE = JavaClass("java.lang.Throwable", JavaClass("java.lang.Object"))
EXCEPTION = JavaClass("java.lang.Exception", THROWABLE)
RUNTIME = JavaClass("java.lang.RuntimeException", EXCEPTION)
API = JavaClass(f"{ERRORS}.ApiException", JavaClass("org.apache.kafka.common.KafkaException", RUNTIME))
RACKS = JavaClass(f"{ERRORS}.NotEnoughRacksException", JavaClass(RETRIABLE, API))


def test_class_text_and_retriable() -> None:
    error = JavaError.of(Throwable(RACKS, "1 rack"))
    assert (error.java_class, error.text, error.retriable) == (RACKS.name, "1 rack", True)
    assert str(error) == "org.apache.kafka.common.errors.NotEnoughRacksException: 1 rack"


def test_an_exception_that_is_not_retriable() -> None:
    error = JavaError.of(Throwable(API))
    assert (error.text, error.retriable) == ("", False)


def test_wrappers_are_removed() -> None:
    execution = JavaClass("java.util.concurrent.ExecutionException", EXCEPTION)
    completion = JavaClass("java.util.concurrent.CompletionException", RUNTIME)
    inner = Throwable(RACKS, "inner")
    assert JavaError.of(Throwable(execution, "o", Throwable(completion, "m", inner))).java_class == RACKS.name
    # a wrapper without a cause is reported itself
    assert JavaError.of(Throwable(execution, "no cause")).java_class == execution.name
    # any other exception is reported itself, whatever its cause
    assert JavaError.of(Throwable(API, "outer", inner)).java_class == API.name


def test_superclasses_are_those_of_the_throwable() -> None:
    error = JavaError.of(Throwable(RACKS, "1 rack"))
    assert error.classes == (
        RACKS.name, RETRIABLE, API.name, "org.apache.kafka.common.KafkaException", RUNTIME.name, EXCEPTION.name,
        THROWABLE.name, "java.lang.Object",
    )  # fmt: skip
    assert error.extends(RACKS.name)
    assert error.extends(API.name)
    assert not error.extends(f"{ERRORS}.NotEnoughReplicasException")


def test_retriable_follows_the_release_that_threw_the_exception() -> None:
    assert not JavaError([RACKS.name, RUNTIME.name, THROWABLE.name], "").retriable
    assert JavaError([RACKS.name, RETRIABLE], "").retriable


def test_an_error_can_be_pickled() -> None:
    error = JavaError.of(Throwable(RACKS, "1 rack"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (again.classes, again.text, again.retriable) == (error.classes, "1 rack", True)
    assert str(again) == str(error)
