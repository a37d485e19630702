"""Build the metrics agent's jar from source, so that tests need no built distribution."""

from __future__ import annotations

from pathlib import Path

from pyhooks.core import paths, process

SOURCE = paths.REPO / "pyhooks" / "jvm" / "java" / "rackgate" / "hooks" / "MetricsAgent.java"


def compile_java(source: Path, folder: Path) -> None:
    """Compile one source file."""
    command = ["javac", "--release", "17", "-Xlint:all", "-Werror", "-d", str(folder), str(source)]
    process.run(command, task=f"compile {source.name}")


def agent_jar(folder: Path) -> Path:
    """Build the jar in ``folder`` and return its path."""
    classes, manifest, jar = folder / "classes", folder / "manifest", folder / "agent.jar"
    compile_java(SOURCE, classes)
    manifest.write_text("Premain-Class: rackgate.hooks.MetricsAgent\n", encoding="utf-8")
    process.run(["jar", "cfm", str(jar), str(manifest), "-C", str(classes), "."], task="pack the agent")
    return jar
