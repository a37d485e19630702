"""Benchmark of the KIP's claims: paced load and analysis on Spark, verdicts with intervals, a report."""
