"""Faults that prove themselves: inject, proof, heal."""
