"""Exit status of a run and the reasons for it: the only place that decides whether a run found something wrong.

A run fails by what the gate or the records show: acknowledged records are lost, duplicated or were never sent; an arm
rejects records, or accepts them, contrary to its ISR; an arm with R=2 lost records that it promises to keep. What was
to be judged and could not be is unknown, never a pass. Latency verdicts and a missed time target do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, Literal

from bench.analysis.availability import REJECTED, REJECTIONS, UNKNOWN
from bench.analysis.record_check import KIND_LABELS, KINDS
from bench.analysis.verdicts import sentence
from bench.plan.outage_plan import FAULT_LABELS
from pyhooks.kafka import gate

ReasonVerdict = Literal["failed", "unknown"]
# A failure outweighs any number of unknowns.
STATUSES: Mapping[ReasonVerdict, int] = {"failed": 1, "unknown": 2}
EXIT_STATUS = (
    "Exit status: 0 no failure was found; 1 records are lost, duplicated or invented, or an arm accepts or rejects"
    " records contrary to its ISR; 2 that is unknown, or an error ended the command."
)
DUPLICATES_BY_CLIENT = (
    "librdkafka can duplicate records by itself (librdkafka 4953, kip/found.md), which can't be distinguished here."
)


@dataclass(frozen=True)
class ExitReason:
    """Reason why a run does not end with 0: a failure, or something that could not be judged."""

    verdict: ReasonVerdict
    subject: str
    text: str

    @property
    def sentence(self) -> dict[str, str]:
        """The reason in the form of the sentences of ``bench.analysis.verdicts``."""
        return sentence("judgement", self.verdict, self.subject, self.text)


def exit_status(reasons: Sequence[ExitReason]) -> int:
    """Return 0 without a reason, 1 if something failed, else 2."""
    return min((STATUSES[reason.verdict] for reason in reasons), default=0)


def conclude(reasons: Sequence[ExitReason], sentences: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the conclusion of a result: ``exit_status``, and ``verdicts`` that begin with the reasons for it."""
    first = [reason.sentence for reason in sorted(reasons, key=lambda reason: STATUSES[reason.verdict])]
    return {"exit_status": exit_status(reasons), "verdicts": [*first, *(dict(verdict) for verdict in sentences)]}


def run_reasons(result: Mapping[str, Any]) -> list[ExitReason]:
    """Return the reasons against a result of ``rackgate bench run``, from its numbers and its manifest."""
    reasons = list(_end_to_end(result["end_to_end"]))
    for cell in result["cells"]:
        reasons += _of_cell(cell)
    if result["outage"]:
        outage, arms = result["outage"], result["manifest"]["scenario"]["arms"]
        reasons += _of_outage(f"rack {outage['rack']} unavailable", outage, arms)
    return reasons


def outage_reasons(result: Mapping[str, Any]) -> list[ExitReason]:
    """Return the reasons against a result of ``rackgate bench outages``, from its numbers and its manifest."""
    reasons = list(_end_to_end(result["end_to_end"]))
    for lab in result["labs"]:
        for outage in lab["outages"]:
            rack, how = outage["numbers"]["rack"], FAULT_LABELS[outage["fault"]]
            subject = f"{lab['name']}, outage {outage['number']}, rack {rack} {how}"
            reasons += _of_outage(subject, outage["numbers"], result["manifest"]["plan"]["arms"])
    for destruction in result["destructions"]:
        reasons += _of_destruction(destruction)
    return reasons


def _end_to_end(numbers: Mapping[str, Any]) -> Iterator[ExitReason]:
    subject, kinds = "records read back", numbers["kinds"]
    wrong = [kind for kind in KINDS if kinds[kind]["count"]]
    if wrong:
        counts = ", ".join(f"{kinds[kind]['count']:,} {KIND_LABELS[kind]}" for kind in wrong)
        example = next((f", such as {text}" for kind in wrong for text in kinds[kind]["examples"]), "")
        text = f"{counts} of {numbers['acked']:,} acknowledged records{example}."
        yield ExitReason("failed", subject, f"{text} {DUPLICATES_BY_CLIENT}" if "duplicated" in wrong else text)
    if not numbers["acked"]:
        yield ExitReason("unknown", subject, "Nothing was acknowledged, so nothing was checked.")
    if unread := numbers.get("unread", 0):
        text = f"{unread:,} acknowledged records could not be read back, since the run was interrupted."
        yield ExitReason("unknown", subject, text)


def _of_cell(cell: Mapping[str, Any]) -> Iterator[ExitReason]:
    """Check that in every lab the cell's arms did what the gate should do in its state, before and after the blocks."""
    findings = cell["findings"]
    # results of earlier versions have no row for each lab, only that of the last lab
    labs = cell.get("rejections") or [findings]
    if any("rejected" not in lab for lab in labs):
        yield ExitReason("unknown", f"cell {cell['cell']}", "The arms were not probed for rejections.")
        return
    isr = _isr(len(findings["isr"]), findings["isr_racks"])
    for arm in cell["arms"]:
        subject = f"cell {cell['cell']}: {arm['label']}"
        expected = {arm["arm"] in lab["expected_to_reject"] for lab in labs}
        observed = {arm["arm"] in lab[when] for lab in labs for when in ("rejected", "rejected_after") if when in lab}
        # in results of earlier versions an arm whose records all timed out is rejected, too
        rejected = arm["rejected"] and arm["rejected_with"] in REJECTIONS
        # an arm whose whole load was rejected counts as rejected, whatever its probes got
        observed |= {True} if rejected and arm["intended"] else set()
        if False in observed and True in expected:
            yield ExitReason("failed", subject, f"Accepted records, but should reject them: {isr}.")
        if True in observed and False in expected:
            yield ExitReason("failed", subject, f"Rejected records, but should accept them: {isr}.")
        if not rejected and not arm["acked"]:
            error = arm.get("error") or arm.get("rejected_with")
            yield ExitReason("unknown", subject, f"Nothing was acknowledged{f': {error}' if error else ''}.")


def _of_outage(subject: str, outage: Mapping[str, Any], arms: Sequence[Mapping[str, Any]]) -> Iterator[ExitReason]:
    """Check that the topics did during a rack's outage what the gate should do with the observed ISRs."""
    if not outage["proved"]:
        yield ExitReason("unknown", subject, "The fault was not proved to have taken effect and lasted.")
        return
    by_id = {arm["id"]: arm for arm in arms}
    for topic in outage["topics"]:
        arm = by_id[topic["arm"]]
        limits = gate.limits(arm["min_insync_replicas"], arm["min_insync_racks"], len(topic["replicas"]))
        yield from _of_topic(f"{subject}: {topic['label']} ({topic['topic']})", topic, outage, limits)


def _gate_answer(isr: Mapping[str, Any], limits: gate.Limits) -> gate.GateDecision:
    return gate.GateDecision(len(isr["isr"]), frozenset(isr["racks"]), limits.replicas, limits.racks)


def _of_topic(
    subject: str, topic: Mapping[str, Any], outage: Mapping[str, Any], limits: gate.Limits
) -> Iterator[ExitReason]:
    answers = [_gate_answer(isr, limits) for isr in _settled(topic)]
    # whenever they were sent: records that waited must not be acknowledged either
    acked = topic.get("settled_done", topic.get("settled_acked", 0)) + topic["probe"]["settled_acked"]
    most = max((len(answer.racks) for answer in answers), default=None)
    if most is not None and most < limits.racks and limits.racks > 1 and acked:
        text = f"Acknowledged {acked:,} record{_s(acked)} while its ISR was in {most} of {limits.racks} racks."
        yield ExitReason("failed", subject, text)
    elif (leaked := _leaked(topic, outage, limits)) is not None:
        yield ExitReason("failed", subject, leaked)
    elif not topic.get("acked", 0):
        yield ExitReason("unknown", subject, "Nothing was acknowledged, not even before and after the outage.")
    elif topic["behaviour"] == UNKNOWN:
        yield ExitReason("unknown", subject, f"Its behaviour is unknown: {_missing_evidence(topic)}.")
    elif len({answer.passes for answer in answers}) != 1:
        yield ExitReason("unknown", subject, "Its expected behaviour is unknown: its ISR was sufficient only at times.")
    elif (first := answers[0]).passes is (topic["behaviour"] == REJECTED):
        did = "Rejected records, but should accept them" if first.passes else "Accepted records, but should reject them"
        yield ExitReason(
            "failed", subject, f"{did}: {_isr(first.replicas, first.racks)}; M={limits.replicas}, R={limits.racks}."
        )
    # an unknown behaviour and a topic without any ack are reported above
    if topic["behaviour"] != UNKNOWN and topic.get("acked", 0) and topic.get("first_ack_after_heal_s") is None:
        yield _of_silence(subject, topic, outage, limits)


def _of_silence(subject: str, topic: Mapping[str, Any], outage: Mapping[str, Any], limits: gate.Limits) -> ExitReason:
    """Return the reason for a topic whose load got no acknowledgement after the heal began.

    The topic failed if it had to acknowledge: the rack is back, the ISR is sufficient from then on, and the load went
    on for at least the settling time of an outage. Otherwise the outcome is unknown.
    """
    silence = "Nothing was acknowledged after the heal"
    if topic["probe"]["acked_after_heal"]:
        return ExitReason("unknown", subject, f"{silence} except records of the probe.")
    if outage["heal_s"] is None or outage["healed_s"] is None:
        return ExitReason("unknown", subject, f"{silence}, which was not proved.")
    if topic.get("back_after_s") is None:
        return ExitReason(
            "unknown", subject, f"{silence}, and rack {outage['rack']} was not observed in its ISR again."
        )
    enough_s: float | None = None
    for isr in topic["isr"]:
        if isr["at_s"] >= outage["heal_s"]:
            passes = _gate_answer(isr, limits).passes
            enough_s = (isr["at_s"] if enough_s is None else enough_s) if passes else None
    back_s = outage["heal_s"] + topic["back_after_s"]
    if enough_s is None or max(back_s, enough_s) + outage.get("settle_s", 0.0) > outage["length_s"]:
        return ExitReason(
            "unknown", subject, f"{silence}, and its ISR was not sufficient long enough before the load ended."
        )
    text = f"{silence}, although rack {outage['rack']} was back in its ISR after {topic['back_after_s']:.1f} s."
    return ExitReason("failed", subject, text)


def _leaked(topic: Mapping[str, Any], outage: Mapping[str, Any], limits: gate.Limits) -> str | None:
    """Return a text if records were acknowledged without the rack, but every ISR without it is short of R; else None.

    This includes records that waited when the ISR shrank and were acknowledged because of that, before the settled
    outage begins and possibly before the new ISR was observed.
    """
    if limits.racks == 1 or outage["inject_s"] is None or outage["heal_s"] is None:
        return None
    observed = [isr["racks"] for isr in topic["isr"] if outage["inject_s"] < isr["at_s"] < outage["heal_s"]]
    without_rack = dropwhile(lambda racks: outage["rack"] in racks, observed)
    most = max(map(len, without_rack), default=limits.racks)
    # the load's number is missing if none of its records was recorded
    acked = int(topic.get("acked_without_rack", 0) + topic["probe"]["acked_without_rack"])
    if most >= limits.racks or not acked:
        return None
    return (
        f"Acknowledged {acked:,} record{_s(acked)} without rack {outage['rack']} while it was unavailable, and"
        f" every ISR without it was in at most {most} of {limits.racks} racks."
    )


def _settled(topic: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the ISRs that were observed in the settled outage; none without a settled outage."""
    if topic["window_s"] is None:
        return []
    from_s, to_s = topic["window_s"]
    before = [isr for isr in topic["isr"] if isr["at_s"] <= from_s][-1:]
    return [*before, *(isr for isr in topic["isr"] if from_s < isr["at_s"] < to_s)]


def _missing_evidence(topic: Mapping[str, Any]) -> str:
    """Return why the behaviour of a topic is unknown."""
    if topic["window_s"] is None:
        return "the rack was not observed to leave its ISR in time"
    probe = topic["probe"]
    return (
        f"in the settled outage {topic.get('settled_acked', 0):,} of {topic.get('settled_intended', 0):,} records were"
        f" acknowledged, and the probe got {probe['settled_acked']} acks and {probe['settled_rejected']} rejections"
    )


def _isr(brokers: int, racks: Collection[str]) -> str:
    return f"its ISR was {brokers} broker{_s(brokers)} in rack{_s(len(racks))} {', '.join(sorted(racks))}"


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _of_destruction(destruction: Mapping[str, Any]) -> Iterator[ExitReason]:
    """Check that arms with R above 1 kept the records that they had acknowledged."""
    how = FAULT_LABELS[destruction["fault"]]
    racks = f"rack {destruction['destroyed']} destroyed while rack {destruction['unavailable_rack']} was {how}"
    kept = False
    for row in destruction["topics"]:
        subject = f"{racks}: {row['label']}"
        if row["min_insync_racks"] == 1:
            continue
        if row["unknown"]:
            yield ExitReason("unknown", subject, f"The number of lost records is unknown: {row['unknown']}.")
        elif row["lost"]:
            text = f"{row['lost']:,} of {row['acked']:,} acknowledged records are lost, contrary to R."
            yield ExitReason("failed", subject, text)
        else:
            kept = True
    # without a loss it is possible that nothing was destroyed
    if kept and not any(row["lost"] for row in destruction["topics"] if row["min_insync_racks"] == 1):
        text = "No arm with R=1 lost records, so it is not proved that the rack's records were destroyed."
        yield ExitReason("unknown", racks, text)
