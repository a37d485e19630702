"""Setting of a cell: cluster state, link, load, record size, linger and client."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from bench.plan.cluster_states import STATES
from bench.plan.lab_topology import LINKS
from pyhooks.core.toml_config import Table

LOADS_PERCENT = (20, 50, 80)
# Rate that one task sends on one core (``rackgate bench pacer``), in records/s; and a bound on topic creation.
MAX_PER_TASK, MAX_PARTITIONS = 20_000, 1000
SIZES_BYTES = (100, 1000, 10_000)
LINGERS_MS = (0, 5)
ClientKind = Literal["confluent", "java"]
CLIENTS: tuple[ClientKind, ...] = ("confluent", "java")
CLIENT_LABELS = {"confluent": "confluent-kafka", "java": "Java producer"}
SIZE_LABELS = {100: "100 B", 1000: "1 kB", 10_000: "10 kB"}


@dataclass(frozen=True)
class CellSetting:
    """Setting that all arms of a cell share."""

    state: str = "healthy"  # key of ``bench.plan.cluster_states.STATES``
    link: str = "az"  # key of ``bench.plan.lab_topology.LINKS``, or ``AS_IT_IS`` on an existing cluster
    # percentage of what a connection carries with this link, size, linger and client; None with a fixed rate
    load_percent: int | None = None
    rate_per_s: float | None = 250.0  # fixed rate in records per second; None with ``load_percent``
    record_bytes: int = 1000  # size of a record's value
    linger_ms: int = 0  # the client's ``linger.ms``
    client: ClientKind = "confluent"  # producer that sends the load
    partitions: int = 1  # number of partitions of each topic; the replicas lead them in turn

    @property
    def load_text(self) -> str:
        """Load for display: ``20 % of what a connection carries`` or ``250 records/s``."""
        if self.rate_per_s is None:
            return f"{self.load_percent} % of what a connection carries"
        return f"{self.rate_per_s:g} records/s"

    @property
    def text(self) -> str:
        """All values in one line, for display."""
        values = (
            STATES[self.state].text,
            f"link {self.link}",
            self.load_text,
            SIZE_LABELS[self.record_bytes],
            f"linger {self.linger_ms} ms",
            CLIENT_LABELS[self.client],
            *([f"{self.partitions} partitions"] if self.partitions > 1 else []),
        )
        return ", ".join(values)

    def as_json(self) -> dict[str, Any]:
        """Return the setting as plain JSON; without ``partitions`` if there is one, as in earlier results."""
        fields = asdict(self)
        if self.partitions == 1:
            del fields["partitions"]
        return fields


def read_setting(table: Table) -> CellSetting:
    """Read a setting from the table of a cell.

    Raises:
        RackgateError: a key is missing, a value is not in its list, or there is not exactly one load.
    """
    if table.has("load_percent") is table.has("rate_per_s"):
        raise table.wrong("load_percent", "exactly one of load_percent and rate_per_s is required")
    has_percent = table.has("load_percent")
    return CellSetting(
        state=table.choice("state", tuple(STATES)),
        link=table.choice("link", tuple(LINKS)),
        load_percent=table.choice("load_percent", LOADS_PERCENT) if has_percent else None,
        rate_per_s=None if has_percent else table.number("rate_per_s", 1, MAX_PER_TASK),
        record_bytes=table.choice("record_bytes", SIZES_BYTES),
        linger_ms=table.choice("linger_ms", LINGERS_MS),
        client=table.choice("client", CLIENTS),
    )
