"""Check that the right broker leads after all disks of a rack's brokers were destroyed, and that each step took hold.

Reads ``MomentDetails`` at the moments ``written`` (all records are acknowledged), ``holder away``, ``destroyed`` and
``holder back``, and ``DestroyDetails`` of each destroyed broker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyhooks.checkers.verdict import Findings, Verdict
from pyhooks.history.event_log import Details, Event
from pyhooks.history.events import TEST

WRITTEN, AWAY, DESTROYED, BACK = "written", "holder away", "destroyed", "holder back"


class MomentDetails(Details, op="look", process=TEST):
    """State of the only partition at a named moment."""

    moment: str
    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()


class DestroyDetails(Details, op="destroy", process=TEST):
    """A destroyed disk: ids of the broker's log directory before and after; Kafka draws a new one at formatting."""

    broker: int
    directory_before: str
    directory_after: str


def check_succession(events: Sequence[Event], *, holder: int, destroyed: Collection[int]) -> Verdict:
    """Check that the holder of all acknowledged records leads in the end.

    Unknown if a step did not take hold:

    * all brokers in sync when the records were written;
    * only the later destroyed ones in sync while the holder was unavailable;
    * every destroyed disk replaced by a new one;
    * all brokers in sync in the end.

    Args:
        events: a whole history.
        holder: id of the broker that has all acknowledged records and was unavailable when the others were destroyed.
        destroyed: ids of the brokers whose disks were destroyed.
    """
    found = Findings()
    moments = {details.moment: details for _, details in MomentDetails.each(events)}
    others = sorted(destroyed)
    brokers = sorted({holder, *destroyed})
    for moment, isr in ((WRITTEN, brokers), (AWAY, others), (BACK, brokers)):
        if moment not in moments:
            found.missing.append(f"the partition was not observed at the moment: {moment}")
        elif sorted(moments[moment].isr) != isr:
            found.missing.append(f"{moment}: ISR {list(moments[moment].isr)}, expected {isr}")
    disks = {details.broker: details for _, details in DestroyDetails.each(events)}
    for broker in others:
        if broker not in disks:
            found.missing.append(f"no destruction of the disk of broker {broker} is recorded")
        elif disks[broker].directory_before == disks[broker].directory_after:
            found.missing.append(f"broker {broker} has the same disk as before")
    if BACK in moments and (leader := moments[BACK].leader) != holder:
        found.wrong.append(f"broker {leader} leads instead of {holder}, which has all acknowledged records")
    return found.verdict("succession")
