"""Random search: every agent draws its points uniformly from the whole space."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_fbo.core.protocol import Request
from flwr_fbo.methods.thompson.server import ThompsonServer


class RandomSearchServer(ThompsonServer):
    """The server of random search: each agent evaluates one random point in each round."""

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request for one more random point, for each agent that is present."""
        if self.round == 0:
            return super().requests(present)
        values, expects = {"count": 1, "home": -1}, self._all_expected()
        return {n: Request("explore", self.round, values, {}, expects) for n in present}
