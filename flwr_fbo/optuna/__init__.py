"""Optuna: studies that use a federation's knowledge, take part in one, or are written from a run.

Needs ``flwr-fbo[optuna]``. Nothing else in this package imports Optuna.
"""

from __future__ import annotations

try:
    import optuna as _optuna  # noqa: F401
except ImportError as error:
    raise ImportError(
        "flwr_fbo.optuna needs Optuna, which cannot be imported "
        f"({error}): install it with `pip install 'flwr-fbo[optuna]'`"
    ) from error

from flwr_fbo.optuna.export import export_run
from flwr_fbo.optuna.live import task
from flwr_fbo.optuna.sampler import FederatedSampler

__all__ = ["FederatedSampler", "export_run", "task"]
