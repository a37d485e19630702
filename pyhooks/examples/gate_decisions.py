"""Decide which outages of one rack stop writes to a partition. Needs neither cluster nor Java."""

from pyhooks.api import decide

RACKS = {1: "a", 2: "a", 3: "b"}

for required in (1, 2):
    for lost in ("a", "b"):
        isr = [broker for broker, rack in RACKS.items() if rack != lost]
        decision = decide(isr, RACKS, min_replicas=1, min_racks=required, replicas=len(RACKS))
        result = "accepts" if decision.passes else "rejects"
        print(f"R={required}, without rack {lost}: {result} writes")
