"""Availability of each arm in each state, as one table for the report and for other documents.

A record is available if it was acknowledged before the client gave it up, however long it waited. The first rejection
is that of a topic's probe without retries, the first acknowledgement after the heal that of the load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.plan.cluster_states import STATES

HEAD = (
    "state",
    "arm",
    "acked of intended",
    "acked in settled outage",
    "first rejection after fault",
    "first ack after heal",
    "behaviour",
)
NONE = "\N{EN DASH}"
UNKNOWN, NEVER, NOT_STOPPED = "unknown", "none observed", "not interrupted"


@dataclass(frozen=True)
class ArmAvailability:
    """Behaviour of an arm in a state."""

    state: str  # display name of the state
    arm: str  # id of the arm
    label: str  # display name of the arm
    intended: int  # number of intended records
    acked: int  # number of these that were acknowledged
    did: str
    # number of records intended in the settled outage; None in a state without an outage
    settled_intended: int | None = None
    settled_acked: int | None = None  # number of these that were acknowledged in it
    # seconds from the fault to the probe's first rejection; None without a rejection or a fault
    first_rejection_s: float | None = None
    first_ack_s: float | None = None  # seconds from the start of the heal to the load's first acknowledgement; likewise
    # whether the fault is proved, so that the times are valid; None in a state without an outage
    proved: bool | None = None

    @property
    def row(self) -> list[str]:
        """Row with the columns of ``HEAD``."""
        return [
            self.state,
            self.label,
            share_text(self.acked, self.intended),
            NONE if self.settled_intended is None else share_text(self.settled_acked or 0, self.settled_intended),
            self._time(self.first_rejection_s),
            # the heal changes nothing for an arm that continued
            NOT_STOPPED if self.proved and self.did.startswith("continued") else self._time(self.first_ack_s),
            self.did,
        ]

    def _time(self, value: float | None) -> str:
        if self.proved is None:
            return NONE
        if not self.proved:
            return UNKNOWN
        return NEVER if value is None else f"{value:.1f} s"


def share_text(part: int, whole: int) -> str:
    """Format a share, such as ``99.95 % of 2,000``; a rounded share is neither all nor none."""
    if not whole:
        return NONE
    if part in (0, whole):
        return f"{'all' if part else 'none'} of {whole:,}"
    percent = min(99.99, max(0.01, 100 * part / whole))
    return f"{percent:.2f} % of {whole:,}"


def arm_availabilities(result: Mapping[str, Any]) -> list[ArmAvailability]:
    """Return all outcomes of a result: the outage's topics first, then each cell's arms."""
    return [*_of_outage(result["outage"] or {}), *(arm for cell in result["cells"] for arm in _of_cell(cell))]


def _of_outage(outage: Mapping[str, Any]) -> list[ArmAvailability]:
    return [
        ArmAvailability(
            state=f"rack {outage['rack']} unavailable and back",
            arm=topic["arm"],
            label=topic["label"],
            intended=topic.get("intended", 0),
            acked=topic.get("acked", 0),
            settled_intended=topic.get("settled_intended", 0),
            settled_acked=topic.get("settled_acked", 0),
            first_rejection_s=topic["probe"]["first_rejection_after_s"],
            first_ack_s=topic.get("first_ack_after_heal_s"),
            proved=bool(outage["proved"]),
            did=topic["behaviour"],
        )
        for topic in outage.get("topics", ())
    ]


def _of_cell(cell: Mapping[str, Any]) -> list[ArmAvailability]:
    """Return the outcomes of a cell; a rejecting arm got no load, so the exception of its probe describes it."""
    return [
        ArmAvailability(
            state=f"{cell['cell']}: {STATES[cell['state']].text}",
            arm=arm["arm"],
            label=arm["label"],
            intended=arm["intended"],
            acked=arm["acked"],
            did=_did(arm),
        )
        for arm in cell["arms"]
    ]


def _did(arm: Mapping[str, Any]) -> str:
    if arm["rejected"]:
        return f"was rejected: {arm['rejected_with']}"
    if arm["acked"]:
        return "continued"
    return f"{UNKNOWN}: nothing acknowledged" + (f" ({arm['error']})" if arm.get("error") else "")
