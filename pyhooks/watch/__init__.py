"""Live view of a cluster by racks, in separate steps: collect observations, derive snapshots, render them."""
