"""What people see of the system tests: progress on a terminal, timelines, and the page of a run."""
