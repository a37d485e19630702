"""Runner of the formal model: parsed commands and instances, outcomes, pictures and exit statuses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alloy_source import source
from pyhooks.cli import app
from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.formal import alloy, instance, model_source, trace, trace_picture
from pyhooks.formal.alloy import CommandOutcome
from pyhooks.formal.cli import TARGET_S, exit_status, judge_duration
from pyhooks.formal.model_source import AlloyCommand
from pyhooks.patchset import maven

SMALL = """\
module small
-- Nothing is lost
-- in two lines.
Safe: check NothingIsLost for 3 but exactly 2 steps expect 0

-- A part of the patch is missing.
Lost: run {
  some Broker and { all b: Broker | b for b }
} for 2 but exactly 1 Record,
  exactly 6 steps expect 1
"""
SIGNATURES = (
    "Rack", "Record", "AcksAll", "Epoch", "Broker", "Isr", "Elr", "LastKnown", "Current", "Active", "R", "M", "Up",
    "Unclean", "Named", "Committed", "Acked", "Appended", "Now", "Whom",
)  # fmt: skip
# Two brokers in two racks have an acknowledged record; then the leader loses its disk and leads without the record.
FIXED: Mapping[str, Sequence[str]] = {
    "Rack": ["Rack$0", "Rack$1"],
    "Record": ["Record$0"],
    "AcksAll": ["Record$0"],
    "Epoch": ["Epoch$0", "Epoch$1"],
    "Broker": ["Broker$0", "Broker$1"],
    "Named": ["Broker$0", "Broker$1"],
    "Current": ["Epoch$0"],
    "Active": ["Broker$0", "Broker$1"],
    "Up": ["Broker$0", "Broker$1"],
    "Isr": ["Broker$0", "Broker$1"],
    "R": ["Two$0"],
    "M": ["One$0"],
}
ACKNOWLEDGED = {"Committed": ["Record$0"], "Acked": ["Record$0"], "Appended": ["Record$0"]}
# the leader is Broker$1, in Rack$1
STATES: Sequence[Mapping[str, Sequence[str]]] = [
    {"Now": ["Append$0"], "Whom": ["Broker$1"]},
    {"Now": ["Fetch$0"], "Whom": ["Broker$0"], "Appended": ["Record$0"], "log": ["Broker$1 Record$0"]},
    {
        "Now": ["Destroy$0"], "Whom": ["Broker$1"], **ACKNOWLEDGED, "log": ["Broker$0 Record$0", "Broker$1 Record$0"],
        "hw": ["Broker$1 Record$0"],
    },
    {
        "Now": ["Register$0"], "Whom": ["Broker$1"], **ACKNOWLEDGED, "log": ["Broker$0 Record$0"], "Up": ["Broker$0"],
        "Unclean": ["Broker$1"],
    },
    {"Now": ["Stutter$0"], **ACKNOWLEDGED, "log": ["Broker$0 Record$0"], "Isr": ["Broker$1"], "Elr": ["Broker$0"]},
    {"Now": ["Stutter$0"], **ACKNOWLEDGED, "log": ["Broker$0 Record$0"], "Isr": ["Broker$1"], "Elr": ["Broker$0"]},
]  # fmt: skip
FIELDS: Mapping[str, Sequence[str]] = {
    "leads": ["Epoch$0 Broker$1"],
    "rack": ["Broker$0 Rack$0", "Broker$1 Rack$1"],
    "view": ["Broker$0 Epoch$0", "Broker$1 Epoch$0"],
    "log": [],
    "hw": [],
}


def xml(states: Sequence[Mapping[str, Sequence[str]]] = STATES) -> str:
    """Return an instance in Alloy's XML, without the parts that are not parsed."""

    def instance_xml(changes: Mapping[str, Sequence[str]]) -> str:
        elements = ['<sig label="Int" ID="1" builtin="yes"/>']
        for name in SIGNATURES:
            atoms = "".join(f'<atom label="{atom}"/>' for atom in changes.get(name, FIXED.get(name, [])))
            elements.append(f'<sig label="this/{name}" ID="2">{atoms}<type ID="3"/></sig>')
        for name, default in FIELDS.items():
            rows = [row.split() for row in changes.get(name, default)]
            tuples = "".join(
                "<tuple>" + "".join(f'<atom label="{atom}"/>' for atom in row) + "</tuple>" for row in rows
            )
            elements.append(f'<field label="{name}" ID="4">{tuples}<types><type ID="3"/></types></field>')
        return "<instance>" + "".join(elements) + "</instance>"

    return "<alloy>" + "".join(map(instance_xml, states)) + "</alloy>"


def counter_example() -> tuple[trace.TraceStep, ...]:
    return trace.steps(instance.parse(xml()))


def test_commands_are_parsed_with_their_comments(tmp_path: Path) -> None:
    assert model_source.parse_commands(source(tmp_path, SMALL)) == (
        AlloyCommand("Safe", "check", "Nothing is lost in two lines.", "3 but exactly 2 steps", False),
        AlloyCommand("Lost", "run", "A part of the patch is missing.", "2 but exactly 1 Record, exactly 6 steps", True),
    )


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("-- A part of the patch is missing.\n", "\n", "Lost has no comment"),
        (" expect 0", "", "command Safe is not as"),
        (SMALL, "module small\n", "has no command"),
    ],
)
def test_incomplete_commands_are_rejected(tmp_path: Path, old: str, new: str, error: str) -> None:
    with pytest.raises(RackgateError, match=error):
        model_source.parse_commands(source(tmp_path, SMALL.replace(old, new)))


def test_the_model_has_the_documented_commands() -> None:
    commands = {command.name: command for command in model_source.parse_commands()}
    assert not any(commands[name].expected for name in ("First", "Step", "Step4", "Short"))
    assert all(commands[name].expected for name in ("NoHighWatermarkGate", "GateOnMaximalIsr", "NoRackAwareElr"))
    assert {command.kind for command in commands.values() if not command.expected} == {"check"}


def features() -> list[str]:
    """Return the parts of the patch that the model can omit."""
    text = model_source.MODEL.read_text(encoding="utf-8")
    (block,) = re.findall(r"one sig ([\w,\s]+?)\s+extends Feature", text)
    return [name.strip() for name in block.split(",")]


def test_each_removable_part_has_a_counter_example() -> None:
    """Limits L1: R unknown to the controller; L2: brokers without a rack; L3: killed replicas that are forgotten."""
    text = model_source.MODEL.read_text(encoding="utf-8")
    runs = {
        name: set(missing.split(" + "))
        for name, missing in re.findall(r"^(\w+): run \{\n  without\[(.+?)\]", text, re.M)
    }
    assert runs["NoMetadataR"] == {"MetadataR"}
    assert runs["UnnamedRackCounts"] == {"NoUnnamedRack"}
    assert runs["NoKilledMemory"] == {"KilledMemory"}
    expected = {command.name for command in model_source.parse_commands() if command.expected}
    removed = set().union(*(runs[name] for name in runs if name in expected))
    # without the gate before the append, the one at the high watermark suffices
    assert set(features()) - removed == {"AppendGate"}


def test_commands_are_chosen_by_name(tmp_path: Path) -> None:
    commands = model_source.parse_commands(source(tmp_path, SMALL))
    assert model_source.select_commands(commands, ["Lost"]) == commands[1:]
    assert model_source.select_commands(commands, []) == commands
    with pytest.raises(RackgateError, match=r"Lots: .*Safe, Lost"):
        model_source.select_commands(commands, ["Lots"])


def test_an_instance_is_parsed_state_by_state() -> None:
    states = instance.parse(xml())
    assert len(states) == len(STATES)
    assert states[1].join("Broker1", "log") == {"Record0"}
    assert states[1].lone("Broker0", "rack") == "Rack0"
    assert states[3].atoms("Unclean") == {"Broker1"}
    assert states[0].one("R") == "Two0"
    with pytest.raises(RackgateError, match="no Feature"):
        states[0].atoms("Feature")
    with pytest.raises(RackgateError, match="2 atoms in Up, not one"):
        states[0].one("Up")


@pytest.mark.parametrize("text", ["<alloy>", "<alloy></alloy>", ""])
def test_an_invalid_instance_is_rejected(text: str) -> None:
    with pytest.raises(RackgateError):
        instance.parse(text)


def test_a_trace_is_written_with_numbers_and_racks() -> None:
    steps = counter_example()
    # the first leader becomes replica 1 in rack a
    assert [replica.name for replica in steps[0].replicas] == ["1a", "2b"]
    assert [step.event for step in steps] == [
        "", "1a appends r1\n(acks=all)", "2b fetches", "1a destroyed", "1a is back",
    ]  # fmt: skip
    assert steps[2].acked == (1,)
    assert [replica.hw for replica in steps[2].replicas] == [1, 0]


def test_a_record_is_lost_once_the_leader_is_up_without_it() -> None:
    steps = counter_example()
    assert steps[3].replicas[0].lost
    assert not steps[3].replicas[0].up
    assert steps[3].missing == ()
    assert steps[4].missing == (1,)
    assert steps[4].replicas[1].in_elr


def test_brokers_without_a_rack_keep_their_site() -> None:
    changed = [dict(state, Named=["Broker$1"]) for state in STATES]
    replicas = trace.steps(instance.parse(xml(changed)))[0].replicas
    assert [(replica.name, replica.rack) for replica in replicas] == [("1a", "a"), ("2?", "b")]


def test_all_members_of_the_last_known_elr_are_named(tmp_path: Path) -> None:
    changed = [*STATES[:-1], dict(STATES[-2], Now=["Fetch$0"], LastKnown=["Broker$0", "Broker$1"])]
    changed[-2] = dict(STATES[-2], Now=["Fetch$0"])
    steps = trace.steps(instance.parse(xml(changed)))
    assert [step.last_known for step in steps[-2:]] == [(), ("1a", "2b")]
    picture, _ = trace_picture.write(steps, "A title", tmp_path, "trace")
    assert "last known 1a 2b" in picture.read_text(encoding="utf-8")


def test_an_event_without_a_description_is_an_error() -> None:
    unknown = [dict(STATES[0], Now=["Explode$0"]), *STATES[1:]]
    with pytest.raises(RackgateError, match="Explode"):
        trace.steps(instance.parse(xml(unknown)))


def test_changed_configs_are_described_by_their_values() -> None:
    changed = [dict(STATES[0], Now=["Alter$0"], Whom=[]), dict(STATES[0], Now=["Stutter$0"], R=["One$0"])]
    assert [step.event for step in trace.steps(instance.parse(xml(changed)))] == ["", "R 2 → 1"]


def test_every_event_of_the_model_has_a_description() -> None:
    text = model_source.MODEL.read_text(encoding="utf-8")
    (events,) = [block.split("extends Event")[0] for block in text.split("one sig ")[1:] if "extends Event" in block]
    names = [name.strip() for name in events.split(",")]
    assert "Destroy" in names
    for name in names:
        changed = [dict(STATES[0], Now=[f"{name}$0"]), dict(STATES[0], Now=["Stutter$0"])]
        assert len(trace.steps(instance.parse(xml(changed)))) == (1 if name == "Stutter" else 2)


def test_the_picture_shows_the_loss_and_is_reproducible(tmp_path: Path) -> None:
    first, bitmap = trace_picture.write(counter_example(), "A title", tmp_path / "one", "trace")
    again, _ = trace_picture.write(counter_example(), "A title", tmp_path / "two", "trace")
    text = first.read_text(encoding="utf-8")
    assert text == again.read_text(encoding="utf-8")
    assert bitmap.read_bytes().startswith(b"\x89PNG")
    for label in ("A title", "1a destroyed", "rack b", "r1 is lost", "ELR 2b", "r1 acked"):
        assert label in text, label
    lossless, _ = trace_picture.write(counter_example()[:4], "A title", tmp_path, "lossless")
    assert "is lost" not in lossless.read_text(encoding="utf-8")


RUN = AlloyCommand("Lost", "run", "comment", "2", True)


def write_receipt(folder: Path, content: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "receipt.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_receipt_states_whether_an_instance_was_found(tmp_path: Path) -> None:
    write_receipt(tmp_path, {"commands": {"Lost": {"type": "run"}}})
    assert alloy.find_instance(tmp_path, RUN) is None
    write_receipt(tmp_path, {"commands": {"Lost": {"solution": [{"duration": 3}]}}})
    with pytest.raises(RackgateError, match="did not write it"):
        alloy.find_instance(tmp_path, RUN)
    (tmp_path / "Lost-solution-0.xml").write_text(xml(), encoding="utf-8")
    assert alloy.find_instance(tmp_path, RUN) == tmp_path / "Lost-solution-0.xml"


@pytest.mark.parametrize("content", [{}, {"commands": {"Other": {}}}, []])
def test_an_incomplete_receipt_is_an_error(tmp_path: Path, content: object) -> None:
    write_receipt(tmp_path, content)
    with pytest.raises(RackgateError, match="receipt"):
        alloy.find_instance(tmp_path, RUN)


@pytest.mark.parametrize(
    ("script", "found", "problem"),
    [
        (
            'echo satisfied against expectation; echo \'{"commands": {"Lost": {}}}\' >$OUT/receipt.json; exit 1',
            False,
            "",
        ),
        ('echo \'{"commands": {"Lost": {}}}\' >$OUT/receipt.json', False, ""),
        # after any other failure its receipt cannot be trusted
        (
            'echo \'{"commands": {"Lost": {}}}\' >$OUT/receipt.json; echo Type error; exit 1',
            None,
            "ended with status 1",
        ),
        ("exit 0", None, "no receipt"),
        ("sleep 20", None, "did not end within 1 s"),
    ],
)
def test_the_outcome_follows_from_the_receipt_not_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: bool | None, problem: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\nOUT={tmp_path}/Lost\n{script}\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setattr(maven, "java_home", lambda: tmp_path)
    limit_s = 1.0 if "sleep" in script else 60.0
    outcome = alloy.execute(tmp_path, tmp_path, RUN, tmp_path / "Lost", solver="sat4j", limit_s=limit_s)
    assert outcome.found is found
    assert problem in outcome.problem
    assert not outcome.as_expected


def test_the_exit_status_distinguishes_unexpected_from_unknown() -> None:
    expected, unexpected = CommandOutcome(RUN, True, 1.0), CommandOutcome(RUN, False, 1.0)
    assert exit_status([expected]) == 0
    assert exit_status([expected, unexpected]) == 1
    assert exit_status([expected, unexpected, CommandOutcome(RUN, None, 1.0, problem="out of time")]) == 2


def test_the_target_applies_to_all_commands_completed() -> None:
    other = AlloyCommand("Safe", "check", "comment", "2", False)
    both = [CommandOutcome(RUN, True, 1.0), CommandOutcome(other, False, 1.0)]
    assert judge_duration(both, [RUN, other], TARGET_S) == "met"
    assert judge_duration(both, [RUN, other], TARGET_S + 1) == "missed"
    # a subset of the commands or an abandoned command does not meet the target
    assert judge_duration(both[:1], [RUN, other], 1.0) == "unknown"
    abandoned = CommandOutcome(other, None, 1.0, problem="out of time")
    assert judge_duration([both[0], abandoned], [RUN, other], 2.0) == "unknown"
    assert judge_duration([both[0], abandoned], [RUN, other], TARGET_S + 1) == "missed"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", r"alloy\.toml: alloy: is missing"),
        ('[alloy]\nid = "a:b:1"\n', r"alloy\.toml: alloy\.sha256: is missing"),
        (
            '[alloy]\nid = "a:b:1"\nsha256 = "' + 64 * "0" + '"\nsha = "1"\n',
            r"alloy\.sha: unknown key; known keys: id, sha256",
        ),
    ],
)
def test_an_invalid_pin_is_rejected(tmp_path: Path, text: str, error: str) -> None:
    pin = tmp_path / "alloy.toml"
    pin.write_text(text, encoding="utf-8")
    with pytest.raises(RackgateError, match=error):
        alloy.read_pin(pin)


def test_a_jar_with_another_hash_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    (tmp_path / "alloy").mkdir()
    (tmp_path / "alloy" / "b-1.jar").write_bytes(b"another")
    pin = tmp_path / "alloy.toml"
    pin.write_text(f'[alloy]\nid = "a:b:1"\nsha256 = "{"0" * 64}"\n', encoding="utf-8")
    with pytest.raises(RackgateError, match=r"wrong hash.*alloy\.toml"):
        alloy.fetch(pin)


def test_commands_are_listed_without_a_run() -> None:
    finished = CliRunner().invoke(app, ["formal", "--list", "--only", "Step"])
    assert finished.exit_code == 0, finished.output
    assert "Step" in finished.output
    assert "NoRackAwareElr" not in finished.output
