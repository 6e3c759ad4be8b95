"""For a party that comes after a run: start from what the run released, and send nothing.

::

    newcomer = flwr_fbo.join("flwr-fbo-runs/clinics")
    for _ in range(5):
        params = newcomer.ask()
        newcomer.tell(params, my_score(params))
    print(newcomer.best)

Releases are public, so whoever has the run's directory may use them (``config.json``,
``space.json`` and ``releases`` of it are enough). It costs no privacy, neither the run's agents'
nor the newcomer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space, Value
from flwr_fbo.methods.dp_fts_de.server import empty_memory, shared_weights
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.sampler import Advice, ThompsonSampler, advice_of
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.search.regions import Regions

#: Part of the key of a newcomer's generators: no agent of a run has it.
NEWCOMER = 2**31 + 1


class Newcomer:
    """Asks for points and is told scores; its own model begins where the others' ended."""

    def __init__(
        self,
        space: Space,
        settings: DPFTSDESettings,
        features: RandomFeatures,
        advice: Advice,
        seed: int = 0,
    ) -> None:
        alone = replace(settings, acquisition="improvement", advice_use="prior")
        self._sampler = ThompsonSampler(space, alone, features, (seed, NEWCOMER))
        self._sampler.heed(advice)
        self._space = space
        self._asked = 0

    def ask(self) -> dict[str, Value]:
        """Parameters to try next; asked again before anything is told, others are not sought."""
        return self._space.from_unit(self._sampler.ask(self._asked).unit)

    def tell(self, params: Mapping[str, Value], score: float | None) -> None:
        """The score of parameters, those asked for or others; None where there is none."""
        self._sampler.tell(self._space.to_unit(params), score)
        self._asked += 1

    @property
    def best(self) -> tuple[dict[str, Value], float] | None:
        """The best parameters and their score; None before the first."""
        found = self._sampler.best()
        return None if found is None else (self._space.from_unit(found[0]), found[1])


def join(run_dir: str | Path, seed: int = 0) -> Newcomer:
    """A newcomer to a run of dp-fts-de, from the files of its directory."""
    directory = RunDirectory(run_dir)
    config = directory.read_json("config.json")
    if config.get("strategy") != "dp-fts-de":
        raise SettingsError(
            "`run_dir` must be of a run of dp-fts-de, whose releases speak for all, "
            f"but is of {config.get('strategy')!r}"
        )
    keys = DPFTSDESettings.keys()
    settings = DPFTSDESettings.from_mapping({k: v for k, v in config.items() if k in keys})
    released = empty_memory(settings)
    for release in directory.releases.read():
        released.add(release.vector, release.deviation, release.round)
    weights = shared_weights(settings, released)
    if weights is None:
        raise SettingsError(f"`run_dir` must hold releases, but {directory.root} has none yet")
    with np.load(directory.root / "releases" / "features.npz", allow_pickle=False) as arrays:
        features = RandomFeatures(arrays["frequencies"], arrays["phases"])
        regions = Regions(tuple(int(k) for k in arrays["splits"]))
    space = Space.from_dict(directory.read_json("space.json"))
    return Newcomer(space, settings, features, advice_of(weights, regions, settings), seed)
