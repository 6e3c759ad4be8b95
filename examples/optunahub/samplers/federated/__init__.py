"""The OptunaHub package: a sampler that knows what a finished federation learned."""

from flwr_fbo.optuna import FederatedSampler

__all__ = ["FederatedSampler"]
