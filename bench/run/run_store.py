"""Stored data of a run, with which an interrupted run continues: finished blocks, rates and findings.

    run.json                    name and conditions of the run; ``continued`` if it continued after an interruption,
                                ``done`` when its results are written
    rates.json                  loads that labs sustain
    raw/CELL/BLOCK.SESSION/     observations of a finished block (``warmup.SESSION`` for the warm-up), Parquet
    raw/outage/outage.SESSION/  observations of the outage phase
    thrown/CELL/BLOCK.SESSION.N/  observations of blocks whose state did not last; ``_why.json`` in each has the reason
    cells/CELL.SESSION.json     other findings on a cell in one lab
    outage.json                 findings of the outage phase
    labs/SESSION/               logs and history of a lab; ``session.json`` in it describes the lab
    unfinished/                 data that is being written

A *session* is one lab. A folder is moved to ``raw`` when it is complete.

The folder has the marker of ``run_folder.BENCH_RUN``, the folder of results above it that of ``run_folder.BENCH``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import run_conditions
from bench.analysis import pooled_runs
from bench.load import clock_offsets
from bench.plan.scenario import BenchCell, Scenario
from pyhooks.core import run_folder
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import evaluating, put_in_place, read_object, write_json

OUTAGE, WARM_UP = "outage", "warmup"
# Spark ignores files whose names begin with an underscore.
REASON_FILE = "_why.json"
# Fields of run.json and their types.
_REQUIRED = {"run_id": str, "started": str, "conditions": dict}
_OPTIONAL = {"continued": bool, "done": bool, "clock": dict}
REMEDY = "nothing was deleted: restore the file, or delete the run with --fresh"


@dataclass(frozen=True)
class RunStore:
    """Folder of a run's stored data."""

    folder: Path

    @property
    def raw(self) -> Path:
        """Observations of finished blocks."""
        return self.folder / "raw"

    @property
    def run(self) -> dict[str, Any]:
        """Contents of ``run.json``; empty if no run was begun.

        Raises:
            RackgateError: the file is damaged, or missing although there are finished blocks.
        """
        file = self.folder / "run.json"
        if not os.path.lexists(file):
            if any(self.raw.glob("*/*")):
                raise _damaged(file, "missing, and there are finished blocks")
            return {}
        run = _read(file)
        for name, kind in (_REQUIRED | _OPTIONAL).items():
            if not isinstance(run.get(name), kind) and (name in run or name in _REQUIRED):
                raise _damaged(file, f"{name} must be of type {kind.__name__}")
        try:
            datetime.fromisoformat(run["started"])
        except ValueError as error:
            raise _damaged(file, f"started: {error}") from error
        return run

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return str(self.run["run_id"])

    @property
    def rates(self) -> dict[str, Any]:
        """Loads that labs sustain, by ``bench.run.sustained_rate.rate_key``."""
        return _read(self.folder / "rates.json")

    def add_rate(self, key: str, rate: Mapping[str, Any]) -> None:
        """Store the load that a lab sustains."""
        write_json(self.folder / "rates.json", self.rates | {key: dict(rate)})

    @property
    def duration_s(self) -> float | None:
        """Seconds since the run began, including labs and the time between an interruption and the next start.

        Uses the monotonic clock within one boot of the machine, and the wall clock after a reboot. None if the wall
        clock was set back to before the start of the run.
        """
        run = self.run
        with evaluating(self.folder / "run.json", "a run of this version; restart with --fresh"):
            clock = run.get("clock", {})
            if clock.get("boot_id") == clock_offsets.boot_id():
                return time.monotonic() - float(clock["monotonic_s"])
            duration_s = time.time() - datetime.fromisoformat(run["started"]).timestamp()
        return duration_s if duration_s >= 0 else None

    @property
    def continued(self) -> bool:
        """Whether the run was interrupted and continued."""
        return bool(self.run.get("continued"))

    def done(self) -> None:
        """Note that the results are written, so that the next run begins anew."""
        write_json(self.folder / "run.json", self.run | {"done": True})

    # -- blocks ---------------------------------------------------------------------------------------------------

    def unfinished(self, name: str) -> Path:
        """Return an unused path for data that is about to be written."""
        path = self.folder / "unfinished" / name
        run_folder.remove(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def keep(self, path: Path, *where: str) -> None:
        """Move written data to its place in ``raw``."""
        put_in_place(path, self.raw.joinpath(*where))

    def discard(self, path: Path, cell: str, block: int, session: int, reason: str) -> None:
        """Put aside the observations of a block that does not count, with the reason."""
        folder = self.folder / "thrown" / cell
        number = len(list(folder.glob(f"{block:03d}.*")))
        write_json(path / REASON_FILE, {"block": block, "session": session, "why": reason})
        put_in_place(path, folder / f"{block:03d}.{session}.{number}")

    def discarded(self, cell: str, session: int | None = None) -> dict[Path, dict[str, Any]]:
        """Return the discarded blocks of a cell, of one session or of all: folder to block, session and reason."""
        blocks = {path: _read(path / REASON_FILE) for path in sorted((self.folder / "thrown" / cell).glob("*.*.*"))}
        return {path: reason for path, reason in blocks.items() if session in (None, reason["session"])}

    def kept(self, cell: str, session: int | None = None) -> dict[int, Path]:
        """Return the folders of a cell's finished blocks by number, of one session or of all."""
        blocks = {}
        for path in (self.raw / cell).glob("*.*"):
            block, _, measured_in = path.name.partition(".")
            if block != WARM_UP and session in (None, int(measured_in)):
                blocks[int(block)] = path
        return dict(sorted(blocks.items()))

    def warm_up(self, cell: str) -> Path | None:
        """Return the stored warm-up of a cell, or None."""
        return next(iter((self.raw / cell).glob(f"{WARM_UP}.*")), None)

    def progress(self, scenario: Scenario, *, continues: bool) -> str:
        """Return the number of blocks of a run, and how many of them an interrupted run keeps, for display."""
        blocks = sum(cell.scenario.latency.blocks for cell in scenario.cells)
        kept = blocks - sum(len(self.missing(cell)) for cell in scenario.cells)
        return f"continues: {kept} of {blocks} blocks are kept" if continues else f"{blocks} blocks"

    def missing(self, cell: BenchCell) -> list[int]:
        """Return the blocks of a cell that are still to be measured."""
        kept = self.kept(cell.id)
        return [block for block in range(cell.scenario.latency.blocks) if block not in kept]

    # -- findings -------------------------------------------------------------------------------------------------

    def add_cell(self, cell: str, session: int, findings: Mapping[str, Any]) -> None:
        """Store the findings of a session on a cell."""
        write_json(self.folder / "cells" / f"{cell}.{session}.json", findings)

    def cell(self, cell: str) -> list[dict[str, Any]]:
        """Return the findings of all sessions on a cell, in their order."""
        files = (self.folder / "cells").glob(f"{cell}.*.json")
        return [_read(file) for file in sorted(files, key=lambda file: int(file.name.split(".")[1]))]

    @property
    def outage(self) -> dict[str, Any]:
        """Findings of the outage phase; empty if it is still to be run."""
        return _read(self.folder / "outage.json")

    def add_outage(self, findings: Mapping[str, Any]) -> None:
        """Store the findings of the outage phase."""
        write_json(self.folder / "outage.json", findings)

    # -- labs -----------------------------------------------------------------------------------------------------

    def next_session(self) -> int:
        """Return the number of the next lab."""
        return 1 + max((int(path.name) for path in (self.folder / "labs").glob("*")), default=0)

    def lab(self, session: int) -> Path:
        """Return the folder of a lab."""
        return self.folder / "labs" / str(session)

    def add_session(self, session: int, description: Mapping[str, Any]) -> None:
        """Store the description of a lab."""
        write_json(self.lab(session) / "session.json", description)

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """Descriptions of the labs in their order, without those that did not start."""
        files = sorted((self.folder / "labs").glob("*/session.json"), key=lambda file: int(file.parent.name))
        return [_read(file) for file in files]

    # -- missing measurements -------------------------------------------------------------------------------------

    def pending(self, scenario: Scenario, place: tuple[str, str]) -> list[BenchCell]:
        """Return the cells of a place that are not completely measured."""
        cells = [cell for cell in scenario.cells if cell.place == place]
        return [cell for cell in cells if self.missing(cell) or not self.cell(cell.id)]

    def outage_is_due(self, scenario: Scenario, place: tuple[str, str]) -> bool:
        """Return whether the outage phase is still to be run, in a lab of this place."""
        return scenario.outage is not None and place == scenario.places[0] and not self.outage

    def places(self, scenario: Scenario) -> list[tuple[str, str]]:
        """Return the places in which something is still to be measured, in their order."""
        return [
            place for place in scenario.places if self.pending(scenario, place) or self.outage_is_due(scenario, place)
        ]


@contextmanager
def locked_run_folder(out: Path) -> Iterator[Path]:
    """Claim and lock the folder of a run's results within the block; yield the run's own folder below it."""
    with run_folder.held(out, run_folder.BENCH) as folder:
        run_folder.claim(folder / "run", run_folder.BENCH_RUN)
        yield folder / "run"


def begin_run(
    folder: Path, scenario: Scenario, *, started: datetime, build: str, given: Mapping[str, Any], fresh: bool
) -> tuple[RunStore, bool]:
    """Return the store of a new run, or of an interrupted run that continues, and whether it continues.

    ``started`` names a new run; ``build`` identifies the build under test; ``given`` has further command-line values
    that must be equal for a run to continue; ``fresh`` deletes what an interrupted run has left.

    Raises:
        RackgateError: an interrupted run under other conditions has finished blocks; ``run.json`` is damaged; the
            folder has no marker of a benchmark's run; or the plan has changed since a run in the folder of results.
    """
    run_folder.claim(folder, run_folder.BENCH_RUN)
    pooled_runs.check_plan(folder.parent, scenario.as_json())
    store = RunStore(folder)
    now = run_conditions.current_conditions(scenario, build, given)
    # a damaged run.json must not prevent its deletion
    interrupted = {} if fresh else store.run
    if interrupted and not interrupted.get("done"):
        differences = run_conditions.differences(interrupted["conditions"], now)
        if not differences:
            run_folder.remove(folder / "unfinished")
            write_json(folder / "run.json", interrupted | {"continued": True})
            return store, True
        if any(store.raw.glob("*/*")):
            raise RackgateError(
                f"{folder}: contains blocks of an interrupted run under other conditions"
                f" ({run_conditions.differences_text(differences)}): discard them with --fresh, or use another folder"
                " with --out"
            )
    # events and observations of an earlier run must not be mistaken for new ones
    run_folder.empty(folder, run_folder.BENCH_RUN)
    run = {
        "run_id": started.strftime("%Y%m%d-%H%M%S"),
        "started": started.isoformat(timespec="seconds"),
        "conditions": now,
        "clock": {"boot_id": clock_offsets.boot_id(), "monotonic_s": time.monotonic()},
    }
    write_json(folder / "run.json", run)
    return store, False


def _read(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a run; empty if there is no file."""
    return read_object(path, REMEDY) if os.path.lexists(path) else {}


def _damaged(path: Path, defect: str) -> RackgateError:
    return RackgateError(f"{path}: {defect}; {REMEDY}")
