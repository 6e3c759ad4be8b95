"""Optuna's own tests of samplers, on a sampler that shares parameters with the tests' studies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from flwr_fbo.optuna import FederatedSampler


class TestWithSharedNames(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    """The run has x, y, z and a, some of them as the studies of the tests have them."""

    @pytest.fixture
    def sampler(self, past_of_the_suite: Path) -> Callable[[], BaseSampler]:
        return lambda: FederatedSampler(past_of_the_suite, seed=1, warn_independent_sampling=False)


class TestWithOtherNames(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    """The run and the studies of the tests have no parameter in common."""

    @pytest.fixture
    def sampler(self, past: Path) -> Callable[[], BaseSampler]:
        return lambda: FederatedSampler(past, seed=1)
