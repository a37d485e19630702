"""Checks of the patch series: Kafka's tests, prefixes, mutants, JMH, reproducible builds."""
