"""Slowed rack, broker or brokers: delay, jitter, loss and rate limit of all paths to it, each proved by ICMP echo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.faults import delay_measurement
from pyhooks.faults.injection import BaseFault, Fault, NetworkPath, Probe, site_of
from pyhooks.lab.topology import Node, Quality

JITTER_MIN_MS = 4.0
# A smaller loss would need thousands of packets to prove; with a larger one hardly any would come back.
LOSS_MIN, LOSS_MAX = 1.0, 90.0
# Over paths that lose more than this in each direction, a few echoes prove nothing.
PROBE_LOSS_MAX = 30.0
RTT_MAX_MS = 1500.0
# With a higher rate a burst takes too little time to be measured; a lower one would leave Kafka no bandwidth.
RATE_MIN_MBIT, RATE_MAX_MBIT = 1.0, 100.0


@dataclass(frozen=True)
class SlowFault(BaseFault):
    """Delay, jitter, loss and rate limit of all paths to the target; paths inside a rack are unaffected.

    Each of several brokers is slowed by itself, so paths between two of them get twice the delay.
    """

    added: Quality  # quality added to that of the links
    kind: str = "slow"

    def __post_init__(self) -> None:
        """Reject a slowdown that could not be proved.

        Raises:
            RackgateError: delay, jitter, loss or rate is out of range, or there is no path to slow.
        """
        added = self.added
        if min(vars(added).values()) < 0:
            raise RackgateError(f"{self.target}: delay, jitter, loss and rate can't be less than 0")
        if added.rtt_ms <= 0:
            raise RackgateError(f"{self.target}: slow needs a round trip above 0 ms, or it can't be proved")
        if added.rtt_ms > RTT_MAX_MS:
            raise RackgateError(
                f"{self.target}: a round trip of more than {RTT_MAX_MS:g} ms is indistinguishable from a cut"
            )
        if added.jitter_ms > added.rtt_ms / 2:
            raise RackgateError(f"{self.target}: a jitter of more than half the round trip can't be proved")
        if 0 < added.jitter_ms < JITTER_MIN_MS:
            raise RackgateError(
                f"{self.target}: a jitter below {JITTER_MIN_MS:g} ms is indistinguishable from a busy machine"
            )
        if added.loss_percent and not LOSS_MIN <= added.loss_percent <= LOSS_MAX:
            raise RackgateError(
                f"{self.target}: a loss of {added.loss_percent:g} % can't be proved: from {LOSS_MIN:g} to"
                f" {LOSS_MAX:g}, or 0; use cut to lose all packets"
            )
        if added.rate_mbit and not RATE_MIN_MBIT <= added.rate_mbit <= RATE_MAX_MBIT:
            raise RackgateError(
                f"{self.target}: a rate of {added.rate_mbit:g} Mbit/s can't be proved: from {RATE_MIN_MBIT:g} to"
                f" {RATE_MAX_MBIT:g}, or 0 for no limit"
            )
        if added.rate_mbit and (added.jitter_ms or added.loss_percent):
            raise RackgateError(f"{self.target}: a rate can't be proved together with jitter or loss")
        if not self.paths():
            raise RackgateError(f"{self.target}: there is no other site whose path could be slowed")

    def _sources(self, node: Node) -> tuple[Node | None, ...]:
        """Return the senders of echoes to a node: clients, a node of each other site, nodes of a broker's own rack."""
        topology, alone = self.cluster.topology, self.target.kind == "broker"
        clients: list[Node | None] = [None] if topology.client_site.name != node.site or alone else []
        intact = {
            site.name: [other for other in site.nodes if other not in self.target.nodes] for site in topology.sites
        }
        rack_mates = intact[node.site] if alone else []
        far = [other for site, nodes in intact.items() if site != node.site for other in nodes[:1]]
        return (*clients, *rack_mates, *far)

    def probes(self) -> dict[str, Probe]:
        """Return probes for the delay, jitter, loss and rate limit of each path to the target."""
        probes: dict[str, Probe] = {}
        for source, node in self.paths():
            name = f"{source.name if source else 'clients'} to {node.name}"
            base = self._base_quality(site_of(self.cluster, source), node.site)
            measure = partial(self.cluster.rtt, node, source)
            probes |= delay_measurement.path_probes(name, base, self.added, measure)
            probes |= delay_measurement.rate_probe(name, base, self.added, measure)
        return probes

    def _base_quality(self, site: str, target_site: str) -> Quality:
        """Return the quality of the path between two sites without this fault."""
        if site == target_site:
            return Quality()
        link = next(link for link in self.cluster.topology.links_of(site) if link.peer(site) == target_site)
        return self.cluster.network.quality(link, self.target.site if self.target.kind == "rack" else "")

    def expects(self, probe: str, *, during: bool) -> bool:  # noqa: ARG002 - the same for every probe
        """Expect slow paths under the fault only."""
        return during

    def paths(self) -> tuple[NetworkPath, ...]:
        """Return the paths of the probes."""
        return tuple((source, node) for node in self.target.nodes for source in self._sources(node))

    def invalidates(self, other: Fault) -> bool:
        """Return whether the other fault's probes would fail because of this loss, jitter or delay.

        Other faults account for the delay that slowed racks add to links, but not for that at a slowed broker's port.
        """
        much = self.added.loss_percent > PROBE_LOSS_MAX
        if isinstance(other, SlowFault):
            much |= self.target.kind == "broker" or not delay_measurement.is_distinguishable(self.added, other.added)
            own = self.added
            much |= bool(other.added.rate_mbit and (own.jitter_ms or own.loss_percent or own.rate_mbit))
        if not much:
            return False
        if self.target.kind == "rack":
            site = self.target.site
            return any((site_of(self.cluster, path[0]) == site) is not (path[1].site == site) for path in other.paths())
        inside = self.target.nodes
        return any((path[0] in inside) is not (path[1] in inside) for path in other.paths())

    def prepare(self) -> Mapping[str, Any]:
        """Return nothing: the heal needs no facts.

        Raises:
            RackgateError: the added quality would not stand out from the current quality of a path.
        """
        for source, node in self.paths():
            base = self._base_quality(site_of(self.cluster, source), node.site)
            name = f"{source.name if source else 'the clients'} to {node.name}"
            delay_measurement.check_distinguishable(str(self.target), name, base, self.added)
        return {}

    def inject(self) -> None:
        """Slow the links."""
        if self.target.kind == "rack":
            self.cluster.network.slow(self.target.name, self.added)
        else:
            for node in self.target.nodes:
                self.cluster.network.slow_node(node, self.added)

    def heal(self, facts: Mapping[str, Any]) -> None:  # noqa: ARG002 - nothing to know
        """Restore the links as they are without this fault."""
        if self.target.kind == "rack":
            self.cluster.network.restore_links(self.target.name)
        else:
            for node in self.target.nodes:
                self.cluster.network.restore_node(node)
