"""Outages: racks killed, cut off and destroyed repeatedly."""
