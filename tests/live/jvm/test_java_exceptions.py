"""Java exceptions as Python exceptions, by name, by throwable and by a helper's report; one class each."""

from __future__ import annotations

import concurrent.futures
import pickle
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.jvm import java_exception, kafka_errors
from pyhooks.jvm.java_exception import ERRORS, RETRIABLE
from pyhooks.jvm.kafka_errors import JavaError
from pyhooks.patchset import recipe
from pyhooks.patchset.class_file import parent
from pyhooks.patchset.client_classpaths import client_classpath
from pyhooks.patchset.distribution import Distribution


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


THROWABLE = Kind("java.lang.Throwable", Kind("java.lang.Object"))
EXCEPTION = Kind("java.lang.Exception", THROWABLE)
RUNTIME = Kind("java.lang.RuntimeException", EXCEPTION)
API = Kind(f"{ERRORS}.ApiException", Kind("org.apache.kafka.common.KafkaException", RUNTIME))
RACKS = Kind(f"{ERRORS}.NotEnoughRacksException", Kind(RETRIABLE, API))


def test_class_text_and_retriable() -> None:
    error = JavaError.of(Throwable(RACKS, "1 rack"))
    assert (error.java_class, error.text, error.retriable) == (RACKS.name, "1 rack", True)
    assert str(error) == "org.apache.kafka.common.errors.NotEnoughRacksException: 1 rack"


def test_an_error_that_kafka_does_not_retry() -> None:
    error = JavaError.of(Throwable(API))
    assert (error.text, error.retriable) == ("", False)


def test_wrappers_are_removed() -> None:
    execution = Kind("java.util.concurrent.ExecutionException", EXCEPTION)
    completion = Kind("java.util.concurrent.CompletionException", RUNTIME)
    inner = Throwable(RACKS, "inner")
    assert JavaError.of(Throwable(execution, "o", Throwable(completion, "m", inner))).java_class == RACKS.name
    # a wrapper around nothing is all there is to tell
    assert JavaError.of(Throwable(execution, "alone")).java_class == execution.name
    # any other exception is reported as itself, whatever its cause
    assert JavaError.of(Throwable(API, "outer", inner)).java_class == API.name


def test_an_unknown_class_is_described_by_its_throwable() -> None:
    base = Kind("org.example.StoreException", RUNTIME)
    error = JavaError.of(Throwable(Kind("org.example.FullException", base), "disk full"))
    assert [kind.__name__ for kind in type(error).__mro__[:5]] == [
        "FullException", "StoreException", "RuntimeException", "Exception", "JavaError",
    ]  # fmt: skip
    assert isinstance(JavaError.of(Throwable(base)), type(error).__mro__[1])
    assert type(JavaError.of(Throwable(Kind("org.example.FullException", base)))) is type(error)


def test_a_throwable_without_a_known_parent_is_a_java_error() -> None:
    error = JavaError.of_classes(["org.example.Odd"], "")
    assert type(error).__mro__[1] is JavaError
    assert not error.retriable


def test_the_same_class_by_name_and_by_throwable() -> None:
    assert type(JavaError.of(Throwable(RACKS, "1 rack"))) is kafka_errors.NotEnoughRacksException
    assert issubclass(kafka_errors.NotEnoughRacksException, kafka_errors.RetriableException)
    assert issubclass(kafka_errors.RetriableException, kafka_errors.ApiException)
    assert not issubclass(kafka_errors.InvalidTopicException, kafka_errors.RetriableException)
    with pytest.raises(kafka_errors.RetriableException) as caught:
        raise JavaError.of(Throwable(RACKS, "1 rack"))
    assert isinstance(caught.value, JavaError)
    config = kafka_errors.named("org.apache.kafka.common.config.ConfigException")
    assert issubclass(config, kafka_errors.named("org.apache.kafka.common.KafkaException"))


def test_order_does_not_matter() -> None:
    """In a new process that first sees an earlier Kafka's throwable, the class is still the distribution's."""
    script = (
        "from pyhooks.jvm.java_exception import JavaError\n"
        f"old = JavaError.of_classes(['{RACKS.name}', 'java.lang.RuntimeException', 'java.lang.Throwable'], '')\n"
        "from pyhooks.jvm import kafka_errors as errors\n"
        "assert type(old) is errors.NotEnoughRacksException\n"
        "assert isinstance(old, errors.RetriableException)\n"
        # whether to retry is what the Kafka that threw it thinks
        "assert not old.retriable\n"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=paths.REPO, check=False).returncode == 0


def test_invalid_names() -> None:
    with pytest.raises(AttributeError, match="NoSuchException is no exception of Kafka's clients"):
        _ = kafka_errors.NoSuchException
    # an enum in the same package is no exception either
    with pytest.raises(RackgateError, match="is no exception"):
        kafka_errors.named("org.apache.kafka.common.protocol.Errors")
    assert not hasattr(kafka_errors, "__path__")


def test_every_error_of_kafka_exists_without_a_jvm() -> None:
    names = [name for name in dir(kafka_errors) if name.endswith("Exception")]
    assert len(names) > 140
    for name in names:
        found = getattr(kafka_errors, name)
        assert issubclass(found, JavaError)
        assert found.__name__ == name
    assert "NotEnoughRacksException" in names


def test_an_error_can_be_pickled() -> None:
    error = JavaError.of(Throwable(RACKS, "1 rack"))
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is kafka_errors.NotEnoughRacksException
    assert (again.java_class, again.text, again.retriable) == (RACKS.name, "1 rack", True)


def test_concurrent_threads_get_one_class() -> None:
    names = [f"org.example.Many{number}Exception" for number in range(50)] * 4
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        kinds = list(pool.map(lambda name: type(JavaError.of_classes([name, RACKS.name], "")), names))
    assert len(set(kinds)) == 50


def hierarchy(jars: list[Path]) -> dict[str, str]:
    """Class to parent of what a client's jars have in Kafka's package of errors."""
    found: dict[str, str] = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith(f"{ERRORS.replace('.', '/')}/") and name.endswith(".class"):
                    found.setdefault(name.removesuffix(".class").replace("/", "."), parent(archive.read(name)))
    return found


def retriable(name: str, above: dict[str, str]) -> bool:
    while name in above:
        if name == RETRIABLE:
            return True
        name = above[name]
    return False


def test_releases_agree_on_retriable_errors() -> None:
    """So that ``except errors.RetriableException`` means the same for the exceptions of other releases' clients."""
    root = Distribution.load().root
    own = hierarchy([*root.glob("overlay/clients-*.jar"), *root.glob("libs/kafka-clients-*.jar")])
    differing = set()
    for role in sorted(recipe.CLIENT_ROLES):
        jars = [Path(path) for path in client_classpath(role.removeprefix("client-")).split(":")]
        above = hierarchy([jar for jar in jars if jar.name.startswith("kafka-clients-")])
        assert len(above) > 100
        differing |= {(role, name) for name in set(above) & set(own) if retriable(name, above) != retriable(name, own)}
    # the one that errors.py tells of
    assert differing == {("client-2.8", f"{ERRORS}.ConcurrentTransactionsException")}


def test_without_a_distribution_the_throwable_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def none() -> tuple[zipfile.ZipFile, ...]:
        raise RackgateError(f"no built Kafka in {tmp_path}")

    monkeypatch.setattr(java_exception, "_jars", none)
    monkeypatch.setattr(java_exception, "_kinds", {java_exception.ROOT: JavaError})
    error = JavaError.of(Throwable(RACKS, "1 rack"))
    assert [kind.__name__ for kind in type(error).__mro__[:3]] == [
        "NotEnoughRacksException", "RetriableException", "ApiException",
    ]  # fmt: skip
    assert error.retriable
