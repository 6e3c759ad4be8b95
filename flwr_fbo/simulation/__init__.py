"""Simulations: a whole federation on one machine."""
