"""Build of the overlay: pinned artifacts, a git tree with the patch series, Maven, and a small jar for each module."""
