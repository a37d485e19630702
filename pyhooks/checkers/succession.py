"""Check that the right broker leads after all disks of a rack's brokers were destroyed, and that each step took hold.

Reads ``MomentDetails`` at the moments ``written`` (all records are acknowledged), ``holder away``, ``destroyed`` and
``holder back``, and ``DestroyDetails`` of each destroyed broker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event
from pyhooks.history.events import DestroyDetails, MomentDetails

WRITTEN, AWAY, DESTROYED, BACK = "written", "holder away", "destroyed", "holder back"


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
    wrong: list[str] = []
    missing: list[str] = []
    moments = {one.moment: one for _, one in MomentDetails.each(events)}
    gone = sorted(destroyed)
    everybody = sorted({holder, *destroyed})
    for moment, isr in ((WRITTEN, everybody), (AWAY, gone), (BACK, everybody)):
        if moment not in moments:
            missing.append(f"the partition was not observed at the moment: {moment}")
        elif sorted(moments[moment].isr) != isr:
            missing.append(f"{moment}: ISR {list(moments[moment].isr)}, expected {isr}")
    disks = {one.broker: one for _, one in DestroyDetails.each(events)}
    for broker in gone:
        if broker not in disks:
            missing.append(f"nothing tells that the disk of broker {broker} was destroyed")
        elif disks[broker].directory_before == disks[broker].directory_after:
            missing.append(f"broker {broker} has the disk that it had")
    leader = moments[BACK].leader if BACK in moments else holder
    if leader != holder:
        wrong.append(f"broker {leader} leads, and not {holder}, which has what was acknowledged")
    return Verdict.of("succession", wrong=wrong, missing=missing)
