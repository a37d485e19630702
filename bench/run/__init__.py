"""Runs: labs or an existing cluster, the cells measured in them, stored data."""
