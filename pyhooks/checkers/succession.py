"""Check that the right broker leads after all disks of a rack's brokers were destroyed, and that each step took hold.

The history has, of process ``test``:

- ``look`` events with ``data`` ``{moment, leader, isr, elr}``, at the moments ``written`` (all records are
acknowledged), ``holder away``, ``destroyed`` and ``holder back``;
- one ``destroy`` event for each destroyed broker with ``data`` ``{broker, directory_before, directory_after}``, the ids
of its log directory; Kafka draws a new id when a disk is formatted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyhooks.checkers.verdict import Verdict
from pyhooks.history.event_log import Event

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
    looks = {str(event.data["moment"]): event.data for event in events if (event.process, event.op) == ("test", "look")}
    gone = sorted(destroyed)
    everybody = sorted({holder, *destroyed})
    for moment, isr in ((WRITTEN, everybody), (AWAY, gone), (BACK, everybody)):
        if moment not in looks:
            missing.append(f"nobody looked at the partition when: {moment}")
        elif sorted(looks[moment]["isr"]) != isr:
            missing.append(f"{moment}: ISR {looks[moment]['isr']}, expected {isr}")
    disks = {
        int(event.data["broker"]): event.data for event in events if (event.process, event.op) == ("test", "destroy")
    }
    for broker in gone:
        if broker not in disks:
            missing.append(f"nothing tells that the disk of broker {broker} was destroyed")
        elif disks[broker]["directory_before"] == disks[broker]["directory_after"]:
            missing.append(f"broker {broker} has the disk that it had")
    leader = looks.get(BACK, {}).get("leader", holder)
    if leader != holder:
        wrong.append(f"broker {leader} leads, and not {holder}, which has what was acknowledged")
    return Verdict.of("succession", wrong=wrong, missing=missing)
