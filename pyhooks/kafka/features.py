"""Cluster features that an R (min.insync.racks) above 1 depends on."""

from __future__ import annotations

from collections.abc import Mapping

RACKS_FEATURE = "min.insync.racks.version"
ELR_FEATURE = "eligible.leader.replicas.version"
UPGRADE = f"kafka-features upgrade --feature {ELR_FEATURE}=1 --feature {RACKS_FEATURE}=1"


def level_of(levels: Mapping[str, int]) -> int:
    """Return the level at which an R above 1 is enforced: 0 unless both features are enabled.

    Args:
        levels: finalized levels by feature; features at level 0 may be missing.
    """
    return min(levels.get(RACKS_FEATURE, 0), levels.get(ELR_FEATURE, 0))
