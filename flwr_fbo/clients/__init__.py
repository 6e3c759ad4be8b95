"""Flower clients, thin shells over the agents of flwr_fbo.core."""
