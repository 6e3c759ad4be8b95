"""Flower servers, thin shells over the state machines of flwr_fbo.core."""
