"""Checkers: pure functions from a history to valid, invalid or unknown."""
