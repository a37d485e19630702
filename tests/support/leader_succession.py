"""Check that the right broker leads after a rack's disks were destroyed, and that each step took effect.

The *holder* is the broker that was unavailable during the destruction and has all acknowledged records. Reads
``MomentDetails`` at the moments ``written`` (all records are acknowledged), ``holder away``, ``destroyed`` and ``holder
back``, and ``DestroyDetails`` of each destroyed broker.
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
    """A destroyed disk: directory ids of the broker's log directory before and after; formatting assigns a new id."""

    broker: int
    directory_before: str
    directory_after: str


def check_succession(events: Sequence[Event], *, holder: int, destroyed: Collection[int]) -> Verdict:
    """Check that the holder of all acknowledged records is the leader at the end.

    The verdict is unknown unless each step took effect:

    * all brokers were in sync when the records were written;
    * only the brokers to be destroyed were in sync while the holder was unavailable;
    * every destroyed disk was replaced by a new one;
    * all brokers were in sync at the end.

    Args:
        events: a complete history.
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
