r"""CTL(epsilon), Curator 1: which mechanism makes the rewards of a run private.

The mechanisms are :mod:`flwr_fbo.privacy.local`'s. Two changes to the paper, both so that the
guarantee holds in fact:

- The reward is clipped to [-(B+R), B+R] first. Lemma 1 needs ``|y| <= B + R``; with the clip
  epsilon-LDP holds for any reward and any noise, bounded or not. (For unbounded noise the
  paper's appendix only has (epsilon, delta)-LDP, with delta the chance that the bound fails.)
- The noise is exact and on a lattice that is the same for all rewards; a double added to a
  double gives the reward away by its low bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.local import GaussianReward, LaplaceReward


def curator(values: Mapping[str, Any]) -> LaplaceReward | GaussianReward:
    """The mechanism of a run: ``bound``, ``noise-bound``, ``epsilon``, ``mechanism``, ``delta``."""
    clip = checks.positive("bound", values["bound"])
    clip += checks.positive("noise-bound", values["noise-bound"])
    epsilon = checks.positive("epsilon", values["epsilon"])
    if values["mechanism"] == "laplace":
        return LaplaceReward(clip, epsilon)
    if values["mechanism"] == "gaussian":
        return GaussianReward(clip, epsilon, checks.open_unit("delta", values["delta"]))
    raise checks.PrivacyError(
        f"`mechanism` must be laplace or gaussian, but got {values['mechanism']!r}"
    )
