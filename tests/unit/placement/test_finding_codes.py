"""Documents: the pages list exactly the codes of the findings of their commands, and gauges have their real names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pyhooks.core import paths
from pyhooks.lab.mbeans import BROKERS_WITHOUT_RACK, OBSERVED_REJECTIONS, PROPERTY_ABOVE_CLUSTER_VALUE
from readiness_codes import source_codes

CHECK, MONITORING = (paths.REPO / "kip" / name for name in ("check.md", "monitoring.md"))
SOURCES = sorted((paths.REPO / "pyhooks" / "placement").glob("*.py"))
ROW = re.compile(r"^\| ((?:`[a-z-]+`(?:, )?)+) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)
CODE_ROW = re.compile(r"^\| ((?:`[a-z-]+`(?:, )?)+) \| (?:obstacle|unknown|notice)[^|]* \| [^|]+ \|$", re.MULTILINE)


def code_patterns(source: Path) -> Iterator[str]:
    """Yield patterns of the finding codes in a module; the fields of an f-string match any word."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Finding", "_Note"):
            code = node.args[1]
            if isinstance(code, ast.Constant):
                yield re.escape(str(code.value))
            elif isinstance(code, ast.JoinedStr):
                yield "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w+" for p in code.values)
            else:
                # a finding that merges notes has the code of the first
                assert ast.unparse(code) == "first.code", ast.unparse(code)


def test_the_documents_name_the_gauges() -> None:
    controller = f"`kafka.controller:type=KafkaController,name={BROKERS_WITHOUT_RACK}`"
    broker = f"`kafka.server:type=KafkaServer,name={PROPERTY_ABOVE_CLUSTER_VALUE}`"
    observed = f"`kafka.server:type=BrokerTopicMetrics,name={OBSERVED_REJECTIONS}`"
    proposal = (paths.REPO / "kip" / "KIP-1290.md").read_text(encoding="utf-8")
    assert [name for name in (controller, broker, observed) if name not in proposal] == []
    assert [name for name in (controller, broker) if name not in MONITORING.read_text(encoding="utf-8")] == []


def test_the_page_of_the_check_lists_every_code() -> None:
    listed = [code for row in ROW.findall(CHECK.read_text(encoding="utf-8")) for code in re.findall(r"[a-z-]+", row)]
    assert len(listed) == len(set(listed)) > 30
    patterns = {pattern for source in SOURCES for pattern in code_patterns(source)}
    assert {code for code in listed if not any(re.fullmatch(pattern, code) for pattern in patterns)} == set()
    assert {pattern for pattern in patterns if not any(re.fullmatch(pattern, code) for code in listed)} == set()


def listed_codes(document: str) -> set[str]:
    """Return the codes in the table of a document; each must be listed once."""
    rows = CODE_ROW.findall((paths.REPO / "kip" / document).read_text(encoding="utf-8"))
    listed = [code for row in rows for code in re.findall(r"[a-z-]+", row)]
    assert len(listed) == len(set(listed))
    return set(listed)


def test_the_pages_list_every_code() -> None:
    assert listed_codes("preflight.md") == source_codes("preflight_judgement")
    assert listed_codes("rolling-restarts.md") == source_codes("restart_judgement")
