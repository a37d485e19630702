"""Event history of a run: written by workloads and faults, read by checkers, with the meaning of outcomes."""
