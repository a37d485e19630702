"""Checks of the patch series: Kafka's tests, prefixes of the series, mutants, JMH benchmarks, reproducible builds."""
