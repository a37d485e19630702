"""Builds the overlay: pinned artifacts, a git tree with the patch series, Maven, and one small jar a module."""
