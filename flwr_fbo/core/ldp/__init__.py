"""Bayesian optimisation under local differential privacy."""
