"""Fault injection, with proof that each fault took effect and was healed."""
