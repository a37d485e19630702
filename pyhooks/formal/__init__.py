"""Formal model of ``kip/formal``: run its commands with Alloy, compare results with expectations, draw instances."""
