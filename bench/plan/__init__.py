"""Plans: what a run measures, read from the TOML files, and the rules of its verdicts."""
