"""Federated Bayesian optimisation with real privacy, as a Flower plugin."""

__version__ = "0.1.0"
