"""The formal model of ``kip/formal``: Alloy runs its commands, and what it finds is judged and drawn."""
