"""History of a run: the events that programs write and checkers read, and what outcomes mean."""
