"""Populations and disease parameters of the SEIR model, as coronaSEIR publishes them.

``seir_params.json`` holds ``disease_params``, ``sim`` and ``countries``. A directory holds one JSON
file for each country, with at least ``name`` and ``population``. The rates are the defaults of the
model and the same for every country; only the population differs.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr_fbo.tasks.papers.data.sources import SEIR, DataError
from flwr_fbo.tasks.papers.data.store import require

MAX_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Disease:
    """Rates per day (transmission, onset of infectiousness, recovery), start and length."""

    beta: float = 0.4
    sigma: float = 1 / 2
    gamma: float = 1 / 13
    initial_exposed: float = 1.0  # people
    days: int = 200
    #: The lockdowns in order: first day, and transmission rate from then on.
    lockdown: tuple[tuple[float, float], ...] = ((25, 0.2), (30, 0.12), (35, 0.08))

    def __post_init__(self) -> None:
        rates = {"beta": self.beta, "sigma": self.sigma, "gamma": self.gamma}
        for name, value in {**rates, "initial_exposed": self.initial_exposed}.items():
            if not 0 < value < math.inf:
                raise DataError(f"`{name}` must be positive and finite, but got {value!r}")
        if self.days < 1:
            raise DataError(f"`days` must be >= 1, but got {self.days!r}")


@dataclass(frozen=True)
class Country:
    """A country's name and population."""

    name: str
    population: float


@dataclass(frozen=True)
class SeirData:
    """The disease and the countries of the vaccine task."""

    disease: Disease
    countries: tuple[Country, ...]


def load_seir(data_dir: str | Path | None = None) -> SeirData:
    """Load the disease and all countries, the largest first."""
    return read_seir(require(SEIR, data_dir))


def read_seir(path: Path) -> SeirData:
    """Return the content of ``seir_params.json``, or of a directory of countries' files."""
    if path.is_dir():
        entries = [_json(file) for file in sorted(path.glob("*.json"))]
        return SeirData(Disease(), _countries(entries, path))
    content = _json(path)
    try:
        rates, frame = content["disease_params"], content["sim"]
        disease = Disease(
            beta=float(rates["beta_init"]),
            sigma=float(rates["sigma"]),
            gamma=float(rates["gamma"]),
            initial_exposed=float(frame["initial_exposed"]),
            days=int(frame["sim_length"]),
            # The schedule starts with day 0, whose rate is `beta_init`.
            lockdown=tuple((float(t), float(b)) for t, b in rates["beta_schedule"] if t > 0),
        )
        return SeirData(disease, _countries(content["countries"], path))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: a SEIR parameter is absent or no number: {error!r}") from error


def _countries(entries: list[Any], path: Path) -> tuple[Country, ...]:
    """Return the countries that have inhabitants, the largest first."""
    found = []
    for entry in entries:
        try:
            country = Country(str(entry["name"]), float(entry["population"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: a country lacks name or population: {error!r}") from error
        if not 0 <= country.population < math.inf:
            raise DataError(f"{path}: {country.name} has a population of {country.population}")
        if country.population > 0:  # without inhabitants there is no epidemic
            found.append(country)
    if not found:
        raise DataError(f"{path}: holds no country")
    return tuple(sorted(found, key=lambda c: (-c.population, c.name)))


def _json(path: Path) -> Any:
    if path.stat().st_size > MAX_BYTES:
        raise DataError(f"{path}: exceeds {MAX_BYTES} bytes")
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}: not whole JSON: {error}") from error
