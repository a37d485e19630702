"""Output of applications while the ISR of their topic is sufficient, and while it is not."""

from __future__ import annotations

from collections.abc import Iterable

from pyhooks.checkers.application_output import Arrival, Output, check_outputs
from pyhooks.checkers.cluster_view import ClusterView
from pyhooks.checkers.verdict import Findings, Verdict
from written_histories import S, two_requirements

REQUIRED = {"two": 2, "one": 1}


def output(topic: str, seconds: Iterable[int], until_s: int = 105) -> Output:
    """Return an application with output in the first half of these seconds."""
    return Output(topic, topic, tuple(Arrival(at_s * S, at_s * S + S // 2) for at_s in seconds), until_s * S)


def check(*outputs: Output, observed: bool = True, healed: bool = True) -> Verdict:
    findings = Findings()
    check_outputs(outputs, ClusterView.of(two_requirements(REQUIRED, observed=observed, healed=healed)), findings)
    return findings.verdict("x")


TWO, ONE = output("two", [*range(20), *range(90, 105)]), output("one", [*range(20), *range(28, 105)])


def test_output_that_follows_the_racks_is_valid() -> None:
    assert check(TWO, ONE).valid == "true"
    assert TWO.longest_pause_s == 71.0
    assert output("two", []).longest_pause_s == 0


def test_output_with_too_few_racks_is_wrong() -> None:
    verdict = check(output("two", [*range(20), 40, 41, *range(90, 105)]), ONE)
    assert verdict.because == ("two: output arrived 2 times while two had ISR [1, 2] in rack(s) a: too few",)


def test_output_that_began_before_the_topic_had_too_few_is_not_judged() -> None:
    early = Output("two", "two", (*TWO.arrivals[:20], Arrival(25 * S, 35 * S), *TWO.arrivals[20:]), TWO.until_ns)
    assert check(early, ONE).valid == "true"


def test_an_application_that_stops_with_enough_racks_is_wrong() -> None:
    verdict = check(TWO, output("one", [*range(20), *range(90, 105)]))
    assert verdict.valid == "false"
    assert verdict.because[0] == (
        "one: no output arrived within 20 s while one had ISR [1, 2] in rack(s) a: enough"
    )  # fmt: skip


def test_an_interrupted_application_has_longer_to_resume() -> None:
    assert check(output("two", [*range(20), 100, 101]), ONE).valid == "true"


def test_an_application_that_does_not_resume_is_unknown() -> None:
    verdict = check(output("two", range(20)), ONE)
    assert verdict.because == ("two: no output is known after its topic had too few replicas or racks",)


def test_time_before_the_first_and_after_the_last_is_not_judged() -> None:
    assert check(TWO, ONE, output("one", range(85, 87), until_s=87)).valid == "true"


def test_missing_evidence_is_unknown() -> None:
    stopped = "no application was observed while the ISR of its topic was insufficient"
    control = "no output in an outage with a sufficient ISR, the control"
    assert check().because == (stopped, control)
    assert check(TWO).because == (control,)
    assert check(ONE).because == (stopped,)
    assert check(TWO, ONE, observed=False).because == (stopped, control)
    assert check(TWO, ONE, output("one", [])).because == ("one: no output",)
