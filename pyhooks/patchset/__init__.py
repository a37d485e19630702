"""Overlay build: pinned artifacts, a git tree with the patch series, Maven, and a small jar for each touched module."""
