"""Reports of system tests: progress on a terminal, timeline pictures, and the HTML page of a run."""
