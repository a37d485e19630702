"""Brokers of Kafka 3.9, from published jars that are pinned by SHA-256."""

from __future__ import annotations

import os
from pathlib import Path

from pyhooks.patchset import recipe
from pyhooks.patchset.artifacts import Download, read_pins
from pyhooks.patchset.client_classpaths import fetch_artifacts
from pyhooks.patchset.recipe import Artifact

JARS = Path(__file__).with_name("kafka_3_9_jars.sha256")
# Kafka 3.9 logs by log4j 1
LOG4J = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def kafka_3_9_classpath(folder: Path) -> str:
    """Return the class path of Kafka 3.9.2; download missing jars, and write its log configuration to ``folder``."""
    jars = fetch_artifacts(recipe.load(), [_artifact(path, digest) for path, digest in read_pins(JARS).items()])
    (folder / "log4j.properties").write_text(LOG4J, encoding="utf-8")
    return os.pathsep.join([str(folder), *jars])


def _artifact(path: str, digest: str) -> Artifact:
    jar = Download.parse(path, Path())
    coordinates = [jar.group, jar.name, jar.version, *filter(None, [jar.classifier])]
    return Artifact(":".join(coordinates), digest, ("runtime",))
