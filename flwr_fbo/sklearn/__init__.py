"""scikit-learn: a search over hyperparameters in which several parties help one another."""

from flwr_fbo.sklearn.search import FederatedSearchCV

__all__ = ["FederatedSearchCV"]
