"""The features of a cluster on which an R above 1 depends."""

from __future__ import annotations

from collections.abc import Mapping

RACKS_FEATURE = "min.insync.racks.version"
ELR_FEATURE = "eligible.leader.replicas.version"
UPGRADE = f"kafka-features upgrade --feature {ELR_FEATURE}=1 --feature {RACKS_FEATURE}=1"


def level_of(levels: Mapping[str, int]) -> int:
    """The level at which an R above 1 is in force: 0 unless both features are on.

    Args:
        levels: finalized levels by feature; those at level 0 may be left out.
    """
    return min(levels.get(RACKS_FEATURE, 0), levels.get(ELR_FEATURE, 0))
