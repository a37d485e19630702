"""Java exceptions as Python exceptions, with Python classes of the same names and the same hierarchy.

The hierarchy is that of the built distribution, read from its class files without a JVM. For a class that
is not in the distribution, the throwable's own superclasses are used. So a Java class always maps to the
same Python class, whether it is first requested by name through ``pyhooks.jvm.kafka_errors``, by a
throwable of jpype, or by one from a gateway with another Kafka release.
"""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.patchset.class_file import parent
from pyhooks.patchset.distribution import Distribution

# Wrappers of an exception of another thread.
WRAPPERS = frozenset({"java.util.concurrent.ExecutionException", "java.util.concurrent.CompletionException"})
ERRORS = "org.apache.kafka.common.errors"
RETRIABLE = f"{ERRORS}.RetriableException"
ROOT = "java.lang.Throwable"
# Java's own exceptions that Kafka's extend or that callers request. The distribution lacks their class files.
_JAVA = {
    "java.lang.Exception": ROOT,
    "java.lang.Error": ROOT,
    "java.lang.RuntimeException": "java.lang.Exception",
    "java.lang.IllegalStateException": "java.lang.RuntimeException",
    "java.io.IOException": "java.lang.Exception",
    "java.util.concurrent.TimeoutException": "java.lang.Exception",
}
# Module of the Python classes of Kafka's errors, also for pickle.
_HOME = "pyhooks.jvm.kafka_errors"


class JavaError(Exception):
    """An exception that Java threw. It stands for java.lang.Throwable; all others are its subclasses.

    Attributes:
        java_class: full name of the exception's class.
        text: its message, or empty.
        retriable: whether it extends RetriableException in the Kafka release that threw it, so that a
            producer with retries left would try again.
    """

    def __init__(self, java_class: str, text: str, *, retriable: bool) -> None:
        super().__init__(f"{java_class}: {text}")
        self.java_class = java_class
        self.text = text
        self.retriable = retriable

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.java_class, self.text, self.retriable)

    @staticmethod
    def of(throwable: Any) -> JavaError:
        """Return the exception of a Java throwable, without its wrappers.

        Args:
            throwable: a java.lang.Throwable, from jpype or py4j.
        """
        while str(throwable.getClass().getName()) in WRAPPERS and throwable.getCause() is not None:
            throwable = throwable.getCause()
        message = throwable.getMessage()
        return JavaError.of_classes(_ancestors(throwable.getClass()), "" if message is None else str(message))

    @staticmethod
    def of_classes(classes: Sequence[str], text: str) -> JavaError:
        """Return the exception for a chain of Java class names.

        Args:
            classes: full names of its class and superclasses, in order, up to java.lang.Throwable or further.
            text: its message, or empty.
        """
        return kind(classes)(classes[0], text, retriable=RETRIABLE in classes)


_kinds: dict[str, type[JavaError]] = {ROOT: JavaError}
_lock = threading.RLock()


def kind(classes: Sequence[str]) -> type[JavaError]:
    """Return the Python class of a Java exception.

    Args:
        classes: as for ``JavaError.of_classes``; superclasses are used only for a class that the distribution lacks.
    """
    name = classes[0]
    with _lock:
        if name not in _kinds:
            chain = _chain(name) or tuple(classes)
            above = chain[1:] if ROOT in chain[1:] else (ROOT,)
            _kinds[name] = _new(name, kind(above))
        return _kinds[name]


def named(name: str) -> type[JavaError]:
    """Return the Python class of a Java exception in the built distribution.

    Args:
        name: full name of the Java class.

    Raises:
        RackgateError: no distribution, or its clients' jar has no such exception.
    """
    chain = _chain(name)
    if ROOT not in chain:
        where = Distribution.load().root
        raise RackgateError(f"{name} is no exception of Kafka's clients in {where}; see dir(pyhooks.jvm.kafka_errors)")
    return kind(chain)


def error_names() -> Iterable[str]:
    """Return the sorted simple names of all exceptions in Kafka's ``errors`` package.

    Raises:
        RackgateError: no distribution.
    """
    folder = ERRORS.replace(".", "/") + "/"
    jars = _jars()
    found = {name for jar in jars for name in jar.namelist() if name.startswith(folder) and "$" not in name}
    simple = sorted(name.removeprefix(folder).removesuffix(".class") for name in found if name.endswith(".class"))
    return [name for name in simple if ROOT in _chain(f"{ERRORS}.{name}")]


def _again(java_class: str, text: str, retriable: bool) -> JavaError:
    return kind([java_class])(java_class, text, retriable=retriable)


def _new(name: str, above: type[JavaError]) -> type[JavaError]:
    package, _, simple = name.rpartition(".")
    members = {"__doc__": f"{name}, as Java threw it.", "__module__": _HOME if package == ERRORS else package}
    return type(simple, (above,), members)


def _chain(name: str) -> tuple[str, ...]:
    """Return the names of a class and its superclasses in the distribution; none if it lacks the class."""
    names = [name]
    while names[-1] != ROOT:
        above = _JAVA.get(names[-1]) or _parent(names[-1])
        if not above:
            return ()
        names.append(above)
    return tuple(names)


def _parent(name: str) -> str:
    if not name.startswith("org.apache.kafka."):
        return ""
    path = f"{name.replace('.', '/')}.class"
    try:
        jars = _jars()
    except RackgateError:
        # Without a distribution no class can be requested by name either, so no conflict is possible.
        return ""
    for jar in jars:
        try:
            content = jar.read(path)
        except KeyError:
            continue
        return parent(content)
    return ""


@lru_cache(maxsize=1)
def _jars() -> tuple[zipfile.ZipFile, ...]:
    """Return the jars with the clients' classes, the overlay's first."""
    root = Distribution.load().root
    return tuple(
        zipfile.ZipFile(path)
        for pattern in ("overlay/clients-*.jar", "libs/kafka-clients-*.jar")
        for path in root.glob(pattern)
    )


def _ancestors(java_class: Any) -> list[str]:
    names = []
    while java_class is not None:
        names.append(str(java_class.getName()))
        java_class = java_class.getSuperclass()
    return names
