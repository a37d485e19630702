"""Shared parts of pages and pictures."""
