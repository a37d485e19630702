"""Analysis: from raw observations to numbers, verdicts and exit status."""
