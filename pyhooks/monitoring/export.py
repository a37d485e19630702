"""Files of ``rackgate monitoring export``: written once, replaced only while they are unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import json_text, read_object, write
from pyhooks.monitoring.alerts import JOB, alert_rules
from pyhooks.monitoring.dashboard import dashboard
from pyhooks.monitoring.exported_metrics import exporter_configuration
from pyhooks.monitoring.yaml_text import yaml_text

EXPORTER, ALERT_RULES, DASHBOARD, SCRAPING = "jmx-exporter.yml", "alert-rules.yml", "dashboard.json", "prometheus.yml"
# SHA-256 of the files that were written, to tell them from others and from changed ones.
MANIFEST = ".rackgate-monitoring.json"
PORT = 7071
_ADVICE = "delete it if the files beside it may be replaced"


@dataclass(frozen=True)
class ExportedFile:
    """One of the files.

    Attributes:
        purpose: its use, in one line.
    """

    name: str
    purpose: str
    text: str


def monitoring_files() -> tuple[ExportedFile, ...]:
    """Return all files."""
    contents = (
        (
            EXPORTER,
            f"configuration of the JMX exporter's agent: -javaagent:jmx_prometheus_javaagent.jar={PORT}:{EXPORTER}",
            exporter_configuration(),
        ),
        (ALERT_RULES, "alert rules for Prometheus (rule_files)", alert_rules()),
        (SCRAPING, "example of a configuration of Prometheus: replace the targets and racks by yours", _scraping()),
    )
    return (
        *(ExportedFile(name, purpose, yaml_text(value, purpose)) for name, purpose, value in contents),
        ExportedFile(DASHBOARD, "dashboard for Grafana: Dashboards, New, Import", json_text(dashboard())),
    )


def _scraping() -> dict[str, object]:
    def targets(names: list[str], **labels: str) -> dict[str, object]:
        return {"targets": [f"{name}:{PORT}" for name in names], "labels": labels}

    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [ALERT_RULES],
        "scrape_configs": [
            {
                "job_name": JOB,
                "static_configs": [
                    targets(["broker-1.example", "broker-2.example"], rack="a", role="broker"),
                    targets(["broker-3.example", "broker-4.example"], rack="b", role="broker"),
                    targets(["broker-5.example"], rack="c", role="broker"),
                    targets(["controller-101.example", "controller-102.example"], role="controller"),
                ],
            }
        ],
    }


def export_files(folder: Path) -> tuple[ExportedFile, ...]:
    """Write all files into a folder, which is created if it is missing, and return them.

    Raises:
        RackgateError: a file exists that was not written by this function or was changed since, or can't be written;
            nothing is written then.
    """
    exported = monitoring_files()
    manifest = folder / MANIFEST
    written = read_object(manifest, _ADVICE) if manifest.exists() else {}
    for file in exported:
        _check_replaceable(folder / file.name, file, written)
    hashes = {file.name: _sha256(file.text.encode()) for file in exported}
    write({**{folder / file.name: file.text for file in exported}, manifest: json_text(hashes)})
    return exported


def _check_replaceable(path: Path, file: ExportedFile, written: Mapping[str, object]) -> None:
    if not path.exists() and not path.is_symlink():
        return
    try:
        present = path.read_bytes()
    except OSError as error:
        raise RackgateError(f"{path}: can't be read: {error.strerror}; use another folder") from error
    if path.is_symlink() or (_sha256(present) != written.get(file.name) and present != file.text.encode()):
        raise RackgateError(
            f"{path}: exists, and was not written by this command or was changed since; move it, or use another folder"
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
