"""Simulation of a cluster over years: outages, ISRs, ELRs, losses."""
