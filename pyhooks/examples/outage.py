"""Kill a rack: with R=2, a topic on racks a, a, b rejects writes until the rack is back.

Usage: python outage.py FOLDER. The folder gets the history and the logs of the lab.
"""

import sys
from collections import Counter
from pathlib import Path

from pyhooks.api import (
    FaultTarget,
    History,
    ProduceDetails,
    ProducerPlan,
    TopicSpec,
    create_topics,
    fault_applied,
    judge,
    observe_topics,
    open_lab,
    produce,
    read_all,
    wait_isr,
)

with open_lab("az3-outside", run_dir=Path(sys.argv[1])) as lab:
    history = History(lab.history_path)
    settings = {"min.insync.replicas": "2", "min.insync.racks": "2"}
    create_topics(lab.admin, [TopicSpec("orders", (1, 2, 3), settings)])
    racks = {broker.node_id: broker.site for broker in lab.brokers()}
    plan = ProducerPlan(lab.bootstrap, ("orders",), rate_per_s=2, seconds=5)

    with observe_topics(lab.bootstrap, ["orders"], racks, history, interval_s=0.2):
        produce(plan, history)
        with fault_applied(lab, "kill", FaultTarget.rack(lab, "b"), history):
            wait_isr(lab.admin, "orders", frozenset({1, 2}))
            produce(plan, history)
        wait_isr(lab.admin, "orders", frozenset({1, 2, 3}))
        produce(plan, history)
    read_all(lab.bootstrap, ["orders"], history, values=True)

    events = tuple(history.events())
    outcomes = Counter((event.outcome, record.exception) for event, record in ProduceDetails.each(events))
    for (outcome, exception), count in outcomes.items():
        print(f"{count} records: {outcome}, {exception or 'acknowledged'}")
    verdicts, _ = judge(events, ["faults", "delivery", "offsets", "rejections"])
    for verdict in verdicts:
        print(f"{verdict.checker}: {verdict.valid}", *verdict.because)
