"""Random search: every agent draws its points uniformly from the whole space."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_fbo.core.protocol import Request
from flwr_fbo.methods.thompson.server import ThompsonServer


class RandomSearchServer(ThompsonServer):
    """The server of random search: each agent evaluates ``parallel`` random points a round."""

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request for the next random points, for each agent that is present."""
        if self.round == 0:
            return super().requests(present)
        values, expects = {"count": self.settings.parallel, "home": -1}, self._all_expected()
        return {n: Request("explore", self.round, values, {}, expects) for n in present}
