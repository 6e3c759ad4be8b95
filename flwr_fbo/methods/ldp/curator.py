r"""CTL(epsilon), Curator 1: the mechanism that makes the rewards of a run private.

The mechanisms are in :mod:`flwr_fbo.privacy.local`. Two changes to the paper make the guarantee
hold in fact:

- The reward is clipped to [-(B+R), B+R] first. Lemma 1 needs ``|y| <= B + R``. With the clip,
  epsilon-LDP holds for any reward and any noise, bounded or not. (For unbounded noise the
  paper's appendix only has (epsilon, delta)-LDP, with delta the probability that the bound fails.)
- The noise is exact and on a lattice that is the same for all rewards. With a floating-point sum
  of reward and noise, the low bits of the sum would give the reward away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.local import GaussianReward, LaplaceReward


def curator(values: Mapping[str, Any]) -> LaplaceReward | GaussianReward:
    """Return the mechanism that a setup's values describe, or raise PrivacyError.

    The values are ``bound``, ``noise-bound``, ``epsilon``, ``mechanism`` and ``delta``. An agent
    checks all of them, because it does not trust the server that sent them.
    """
    clip = checks.positive("bound", values["bound"])
    clip += checks.positive("noise-bound", values["noise-bound"])
    epsilon = checks.positive("epsilon-per-answer", values["epsilon-per-answer"])
    if values["mechanism"] == "laplace":
        return LaplaceReward(clip, epsilon)
    if values["mechanism"] == "gaussian":
        return GaussianReward(
            clip, epsilon, checks.open_unit("delta-per-answer", values["delta-per-answer"])
        )
    raise checks.PrivacyError(
        f"`mechanism` must be laplace or gaussian, but got {values['mechanism']!r}"
    )
