r"""The fraction of a vaccine dose that lets the fewest people fall ill (Fed-PNE, equation 51).

Notation

=============  ==========================================================  ==================
paper          here                                                        shape
=============  ==========================================================  ==================
``S, E, I, R`` the state, as shares of the population                      (4,)
``N``          ``country.population``                                      scalar
``beta``       ``disease.beta``: transmissions a day                       scalar
``sigma``      ``disease.sigma``: 1 / days until infectious                scalar
``gamma``      ``disease.gamma``: 1 / days infectious                      scalar
``alpha``      :func:`effectiveness` of a dosage                           scalar
``V``          ``supply / dosage``: vaccinations a day, a share of N       scalar
``x``          ``dosage``, 1 is a full dose                                scalar
=============  ==========================================================  ==================

The paper leaves much open. The decisions here are:

* V = supply / x, with a supply of 0.5 % of the population in full doses a day (``supply``);
* alpha "decreases quadratically" and is 0 from half a dose downwards: alpha = 1 - 4 (1 - x)^2.
  (The other quadratic, 4 (x - 1/2)^2, makes the full dose best and leaves nothing to find.)
* equation 51 goes on vaccinating when nobody is susceptible; here the number of people
  vaccinated in a day is at most the number of susceptible people, min(V, S);
* the "final percentage of infected people" is the share ever infected in 200 days. The share
  infectious on the last day (``outcome = "infectious"``) is nearly 0 for every dosage;
* there are no lockdowns: with those of the model's authors no epidemic is left to vaccinate
  against.

The score is one minus this share, so that the score is maximised; the paper takes 1 for the
unknown optimum. All countries share the rates of the disease, as in the paper's source. Only the
population differs, and sets how long one infected person takes to become an epidemic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.integrate import solve_ivp

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.settings import Settings, above, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.data_task import DataSettings, DataTask
from flwr_fbo.tasks.papers.data.generated import generated_country
from flwr_fbo.tasks.papers.data.seir import Country, Disease, load_seir
from flwr_fbo.tasks.papers.data.sources import SEIR, Source
from flwr_fbo.tasks.task import Params, Partition, Seeks, number

COUNTRIES = 230


@dataclass(frozen=True)
class VaccineSettings(DataSettings):
    """Settings of the vaccine task."""

    supply: float = setting(0.005, "full doses a day for each inhabitant", above(0))
    outcome: Literal["attack", "infectious"] = setting(
        "attack",
        "`attack`: one minus the share ever infected is the score; `infectious`: one minus the "
        "share infectious on the last day",
    )
    lockdown: bool = setting(False, "apply the lockdowns of the model's authors")


class VaccineTask(DataTask):
    """The dosage of a vaccine in one of 230 countries."""

    metric = "share spared"
    seeks: ClassVar[Seeks] = "global"
    score_range = (0.0, 1.0)
    parties = COUNTRIES
    default_agents = 10
    settings: VaccineSettings
    settings_class: ClassVar[type[Settings]] = VaccineSettings
    source: ClassVar[Source | None] = SEIR

    @property
    def space(self) -> Space:
        """Return the space of one parameter: the dosage, as a share of a full dose."""
        return Space({"dosage": Float(0.0, 1.0)})

    def load_share(self, party: int, partition: Partition) -> None:
        """Load one country; each agent has another one, in a random order of all countries."""
        data = load_seir(self.data_directory(partition))
        # The order is shared, so no two agents have the same country.
        order = partition.shared_rng(0).permutation(len(data.countries))
        self.country, self.disease = data.countries[order[party % len(order)]], data.disease

    def generate_share(self, party: int, partition: Partition) -> None:
        """Generate one country."""
        self.country, self.disease = generated_country(partition.rng(1)), Disease()

    def score(self, params: Params) -> float:
        """Return the share of the population that the epidemic spares."""
        s = self.settings
        course = epidemic(
            self.country, number(params, "dosage"), self.disease, s.supply, s.lockdown
        )
        share = course.ever_infected if s.outcome == "attack" else course.infectious
        return 1.0 - share


@dataclass(frozen=True)
class Course:
    """The end of an epidemic, in shares of the population."""

    state: Array  # (4,): S, E, I, R
    ever_infected: float

    @property
    def infectious(self) -> float:
        """Return the share infectious on the last day."""
        return float(self.state[2])


def effectiveness(dosage: float) -> float:
    """Return alpha: 1 for a full dose, 0 from half a dose downwards, quadratic between.

    Examples
    --------
    >>> effectiveness(0.75)
    0.75
    """
    return 1.0 - 4.0 * (1.0 - dosage) ** 2 if dosage > 0.5 else 0.0


def epidemic(
    country: Country,
    dosage: float,
    disease: Disease | None = None,
    supply: float = 0.005,
    lockdown: bool = False,
) -> Course:
    """Return the end of the epidemic that equation 51 describes, from one exposed person."""
    model = disease or Disease()
    if not 0.0 <= dosage <= 1.0:
        raise ValueError(f"`dosage` must be in [0, 1], but got {dosage!r}")
    exposed = min(1.0, model.initial_exposed / country.population)
    alpha = effectiveness(dosage)
    volume = supply / dosage if alpha > 0 else 0.0  # V
    state = np.array([1.0 - exposed, exposed, 0.0, 0.0, exposed])  # S, E, I, R, ever infected
    # Each lockdown changes beta, so the equation is solved from one change to the next.
    changes = model.lockdown if lockdown else ()
    starts = [0.0, *(min(day, model.days) for day, _ in changes)]
    betas = [model.beta, *(beta for _, beta in changes)]
    for beta, start, end in zip(betas, starts, [*starts[1:], model.days], strict=True):
        if end > start:
            state = _advance(state, end - start, beta, model, alpha, volume)
    state = np.clip(state, 0.0, 1.0)  # the solver may end a rounding error outside
    return Course(state[:4], float(state[4]))


def _advance(
    state: Array, days: float, beta: float, model: Disease, alpha: float, volume: float
) -> Array:
    """Return the state after some days."""

    def slope(_: float, y: Array) -> list[float]:
        susceptible, exposed, infectious = float(y[0]), float(y[1]), float(y[2])
        infected = beta * susceptible * infectious  # (51), in shares of N
        immune = alpha * min(volume, max(susceptible, 0.0))
        return [
            -infected - immune,
            infected - model.sigma * exposed,
            model.sigma * exposed - model.gamma * infectious,
            model.gamma * infectious + immune,
            infected,
        ]

    solved = solve_ivp(slope, (0.0, days), state, method="LSODA", rtol=1e-8, atol=1e-12)
    if not solved.success:
        raise ArithmeticError(f"the epidemic could not be integrated: {solved.message}")
    return np.asarray(solved.y[:, -1])
