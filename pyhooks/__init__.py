"""Hooks from Python into a Kafka with a rack-diversity gate: build it, run it, break it, watch it, check it."""

__version__ = "0.1.0"
