"""The command ``rackgate``: puts the rooms' commands together and turns failures into one line."""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console

from bench.cli import bench_app
from ducktape_tests.cli import system_app
from pyhooks import __version__, ending
from pyhooks.build.cli import build_command, patch_app
from pyhooks.check.cli import EPILOG, check_command
from pyhooks.checker.cli import JUDGE_EPILOG, judge_command
from pyhooks.cluster.cli import lab_app
from pyhooks.evidence.cli import EVIDENCE_EPILOG, evidence_command
from pyhooks.fault.cli import broker_app, rack_app
from pyhooks.formal.cli import FORMAL_EPILOG, formal_command
from pyhooks.model.cli import PLAN_EPILOG, model_app, plan_command
from pyhooks.model.simulation.cli import SIMULATE_EPILOG, simulate_command
from pyhooks.model.simulation.replaycli import REPLAY_EPILOG, replay_command
from pyhooks.model.simulation.speed import SPEED_EPILOG, speed_command
from pyhooks.watch.cli import WATCH_EPILOG, watch_command
from pyhooks.workload.cli import SET_EPILOG, set_command

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="min.insync.racks for Apache Kafka: build it, run it in a lab, break it, measure it.",
    epilog="Examples: rackgate build · rackgate lab run --topology az3-outside -- bash · rackgate bench run ·"
    " rackgate --debug build (tracebacks)",
)
app.command("build")(build_command)
app.add_typer(patch_app, name="patch")
app.command("check", epilog=EPILOG)(check_command)
lab_app.command("set", epilog=SET_EPILOG)(set_command)
app.add_typer(lab_app, name="lab")
app.add_typer(rack_app, name="rack")
app.add_typer(broker_app, name="broker")
app.add_typer(bench_app, name="bench")
app.add_typer(system_app, name="system")
app.command("watch", epilog=WATCH_EPILOG)(watch_command)
app.command("judge", epilog=JUDGE_EPILOG)(judge_command)
model_app.command("simulate", epilog=SIMULATE_EPILOG)(simulate_command)
model_app.command("speed", epilog=SPEED_EPILOG)(speed_command)
model_app.command("replay", epilog=REPLAY_EPILOG)(replay_command)
app.add_typer(model_app, name="model")
app.command("plan", epilog=PLAN_EPILOG)(plan_command)
app.command("formal", epilog=FORMAL_EPILOG)(formal_command)
app.command("evidence", epilog=EVIDENCE_EPILOG)(evidence_command)


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
        os.environ[ending.DEBUG_VARIABLE] = "1"
    try:
        app(prog_name="rackgate")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - else Python ends with 1, which says that something was found wrong
        sys.exit(ending.tell(error, Console(stderr=True, soft_wrap=True, highlight=False)))


if __name__ == "__main__":
    main()
