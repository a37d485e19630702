"""Clients that write what they saw into a history."""
