"""Faults that prove that they took hold and healed."""
