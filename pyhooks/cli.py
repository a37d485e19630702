"""The command ``rackgate``: puts the rooms' commands together and turns failures into one line."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from pyhooks import __version__
from pyhooks.core import exit_status

# What each word leads to: an app whose group or command has that name, then the apps that other rooms add to it.
ROOMS = {
    "build": ("pyhooks.verify.cli:build_app",),
    "check": ("pyhooks.placement.check_cli:check_app",),
    "watch": ("pyhooks.watch.cli:watch_app",),
    "judge": ("pyhooks.checkers.cli:judge_app",),
    "plan": ("pyhooks.placement.model_cli:plan_app",),
    "formal": ("pyhooks.formal.cli:formal_app",),
    "evidence": ("pyhooks.evidence.cli:evidence_app",),
    "patch": ("pyhooks.verify.cli:patch_app",),
    "lab": ("pyhooks.lab.cli:lab_app", "pyhooks.workload.cli:set_app"),
    "rack": ("pyhooks.faults.cli:rack_app",),
    "broker": ("pyhooks.faults.cli:broker_app",),
    "bench": ("bench.cli:bench_app",),
    "system": ("ducktape_tests.cli:system_app",),
    "model": (
        "pyhooks.placement.model_cli:model_app",
        "pyhooks.simulation.cli:simulate_app",
        "pyhooks.simulation.speed:speed_app",
        "pyhooks.simulation.replay_cli:replay_app",
    ),
}


@cache
def _enter(word: str) -> Any:
    """The group or command of a word, imported now."""
    first, *more = (getattr(import_module(module), name) for module, name in (way.split(":") for way in ROOMS[word]))
    for app in more:
        first.add_typer(app)
    alone = typer.Typer()
    alone.add_typer(first)
    return typer.main.get_group(alone).commands[word]


class Rooms(TyperGroup):
    """Imports a room when its word is asked for: all of them take a second, ``rackgate lab status`` a sixth of it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All words, as the help shows them."""
        return [*ROOMS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The group or command of a word; ``None`` if there is none."""
        return _enter(cmd_name) if cmd_name in ROOMS else super().get_command(ctx, cmd_name)


app = typer.Typer(
    cls=Rooms,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="min.insync.racks for Apache Kafka: build it, run it in a lab, break it, measure it.",
    epilog="Examples: rackgate build · rackgate lab run --topology az3-outside -- bash · rackgate bench run ·"
    " rackgate --debug build (tracebacks)",
)


@app.callback()
def _root() -> None:
    """Keeps the words apart; else an app with one command of its own is that command."""


@app.command("version")
def version_command() -> None:
    """Prints the version."""
    Console().print(f"kafka-rackgate {__version__}", highlight=False)


def main() -> None:
    """Entry point; ``--debug`` anywhere before ``--`` shows tracebacks."""
    words = sys.argv[1:]
    own = words[: words.index("--")] if "--" in words else words
    if "--debug" in own:
        position = sys.argv.index("--debug")
        del sys.argv[position]
        os.environ[exit_status.DEBUG_VARIABLE] = "1"
    try:
        app(prog_name="rackgate")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - else Python ends with 1, which says that something was found wrong
        sys.exit(exit_status.tell(error, Console(stderr=True, soft_wrap=True, highlight=False)))


if __name__ == "__main__":
    main()
