"""Join after a run: start from the shared function of the run, and send nothing.

::

    newcomer = flwr_fbo.join("flwr-fbo-runs/clinics")
    for _ in range(5):
        params = newcomer.ask()
        newcomer.tell(params, my_score(params))
    print(newcomer.best)

Releases are public, so everybody who has the directory of a run may use them; ``config.json``,
``space.json`` and ``releases`` are enough. Joining costs no privacy, neither of the run's agents
nor of the newcomer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space, Value
from flwr_fbo.methods.dp_fts_de.final_rounds import score_rounds
from flwr_fbo.methods.dp_fts_de.server import empty_memory, shared_weights
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.shared_function import SharedFunction, shared_function_of
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.privacy.releases import Release
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.search.regions import Regions

#: Part of the key of a newcomer's generators; no agent of a run has this number.
NEWCOMER = 2**31 + 1


@dataclass(frozen=True)
class SharedKnowledge:
    """The public outcome of a run: its space, its settings, and its shared function.

    Parameters
    ----------
    space : Space
        The search space of the run.
    settings : DPFTSDESettings
        The settings of the run's agents.
    features : RandomFeatures
        The random features of the run.
    shared : SharedFunction
        The shared function.
    """

    space: Space
    settings: DPFTSDESettings
    features: RandomFeatures
    shared: SharedFunction

    def sampler(self, seed: tuple[int, ...]) -> ThompsonSampler:
        """Return an optimiser with the shared function as its prior mean."""
        # Without rounds there is no p_t, so the shared function is always the prior mean.
        settings = replace(self.settings, acquisition="improvement", advice_use="prior")
        sampler = ThompsonSampler(self.space, settings, self.features, seed)
        sampler.set_shared_function(self.shared)
        return sampler


def read_shared_knowledge(source: str | Path) -> SharedKnowledge:
    """Return what a run of ``dp-fts-de`` published.

    Parameters
    ----------
    source : Path or str
        The directory of the run, or one of its releases (``releases/round-0004.npz``). Of a
        release, the function is the one after its round.
    """
    path = Path(source)
    last = math.inf
    if path.suffix == ".npz":
        last, path = _round_of(path), path.parent.parent
    directory = RunDirectory(path)
    config = directory.read_json("config.json")
    if config.get("strategy") != "dp-fts-de":
        raise SettingsError(
            "`run_dir` must be of a run of dp-fts-de, the strategy that makes releases, "
            f"but is of {config.get('strategy')!r}"
        )
    # config.json also holds the settings of the run and of its task.
    keys = DPFTSDESettings.keys()
    settings = DPFTSDESettings.from_mapping({k: v for k, v in config.items() if k in keys})
    # The same memory as the server's, so the same function as the last one that agents were sent.
    released, releases = empty_memory(settings), _releases_of(directory)
    if not releases:
        raise SettingsError(f"`run_dir` must hold releases, but {directory.root} has none yet")
    arrays = directory.releases.features()
    scored = score_rounds(arrays)
    for release in releases:
        if release.round <= last and release.round not in scored:
            released.add(release.vector, release.deviation, release.round)
    weights = shared_weights(settings, released)
    if weights is None:
        raise SettingsError(
            "`run_dir` must hold a release of the shared function, but those of "
            f"{directory.root} hold scores of settings"
        )
    features = RandomFeatures(arrays["frequencies"], arrays["phases"])
    regions = Regions(tuple(int(k) for k in arrays["splits"]))
    space = Space.from_dict(directory.read_json("space.json"))
    shared = shared_function_of(weights, regions, settings)
    return SharedKnowledge(space, settings, features, shared)


def _round_of(release: Path) -> int:
    """Return the round of a release's file; raise SettingsError for another file."""
    number = release.stem.removeprefix("round-")
    if not release.exists() or not number.isdigit():
        raise SettingsError(
            "a release must be a file such as RUN/releases/round-0004.npz, "
            f"but got {str(release)!r}"
        )
    return int(number)


class Newcomer:
    """A party that tunes by itself, with the shared function of a past run as its prior mean.

    Made by :func:`join`.

    Parameters
    ----------
    space : Space
        The search space of the run.
    settings : DPFTSDESettings
        The settings of the run's agents.
    features : RandomFeatures
        The random features of the run.
    shared : SharedFunction
        The shared function at the end of the run.
    seed : int
        The seed of the newcomer's draws.
    """

    def __init__(
        self,
        space: Space,
        settings: DPFTSDESettings,
        features: RandomFeatures,
        shared: SharedFunction,
        seed: int = 0,
    ) -> None:
        knowledge = SharedKnowledge(space, settings, features, shared)
        self._sampler = knowledge.sampler((seed, NEWCOMER))
        self._space = space
        self._evaluated = 0

    def ask(self) -> dict[str, Value]:
        """Return the parameter values to evaluate next, the same until :meth:`tell` is called."""
        return self._space.from_unit(self._sampler.ask(self._evaluated).unit)

    def tell(self, params: Mapping[str, Value], score: float | None) -> None:
        """Take in the score of parameter values, asked for or not; None is a failure."""
        self._sampler.tell(self._space.to_unit(params), score)
        self._evaluated += 1

    @property
    def best(self) -> tuple[dict[str, Value], float] | None:
        """Return the best parameter values and their score; None before the first score."""
        best = self._sampler.best()
        return None if best is None else (self._space.from_unit(best[0]), best[1])


def join(run_dir: str | Path, seed: int = 0) -> Newcomer:
    """Return a newcomer to a run of ``dp-fts-de``, from the files of the run's directory.

    Parameters
    ----------
    run_dir : Path or str
        The directory of the run, or a copy of its public files.
    seed : int
        The seed of the newcomer's draws.

    Examples
    --------
    >>> import tempfile
    >>> from flwr_fbo import Float, simulate, task
    >>> @task(space={"x": Float(0.0, 1.0)}, score_range=(0.0, 1.0))
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> result = simulate(hill, agents=4, rounds=3, strategy="dp-fts-de", run_dir=folder)
    >>> newcomer = join(folder)
    >>> params = newcomer.ask()  # the maximum of what the four agents learned
    >>> newcomer.tell(params, 1.0 - (params["x"] - 0.3) ** 2)
    >>> params, score = newcomer.best
    >>> score > 0.9
    True
    """
    known = read_shared_knowledge(run_dir)
    return Newcomer(known.space, known.settings, known.features, known.shared, seed)


def _releases_of(directory: RunDirectory) -> list[Release]:
    """Return the releases of a run; raise RunDirectoryError where one is damaged or missing."""
    found, damages = directory.intact_releases()
    if damages:
        raise RunDirectoryError(damages[0])
    return found
