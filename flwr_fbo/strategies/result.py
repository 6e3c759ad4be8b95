"""The result that ``start`` returns: Flower's own result, with what tuning adds to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flwr.serverapp.strategy import Result as FlowerResult

from flwr_fbo.core.space import Value
from flwr_fbo.privacy.statement import PrivacyStatement
from flwr_fbo.runs.result import Result


@dataclass
class TuningResult(FlowerResult):
    """The result of a run, as a subclass of Flower's own result.

    Parameters
    ----------
    recommended : dict, optional
        One setting for all agents, computed from the releases; None without releases.
    privacy : PrivacyStatement, optional
        The guarantee of the run; printed, it is one line of text.
    rounds : int
        The number of rounds after the initial points.
    run_dir : Path, optional
        The directory with all files of the run.
    details : Result, optional
        The whole content of ``result.json``.

    Notes
    -----
    ``train_metrics_clientapp`` of Flower's result holds the server's view of each round: how many
    agents were asked and replied, and epsilon. Scores stay with the agents.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from flwr_fbo import Float, RandomSearch, task
    >>> from flwr_fbo.clients.client_app import simulated_client_app
    >>> from flwr_fbo.simulation.in_process_grid import InProcessGrid
    >>> folder = Path(tempfile.mkdtemp())
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> grid = InProcessGrid(simulated_client_app(hill, folder / "agents"), nodes=2)
    >>> result = RandomSearch(space=hill.space, num_agents=2, run_dir=folder).start(grid)
    >>> print(result.privacy)
    none: no noise is added to what agents send
    >>> result.rounds, result.recommended
    (20, None)
    """

    recommended: dict[str, Value] | None = None
    privacy: PrivacyStatement | None = None
    rounds: int = 0
    run_dir: Path | None = None
    details: Result | None = None
