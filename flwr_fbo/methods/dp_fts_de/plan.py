"""The plan of a private run of DP-FTS-DE: what the run would cost, and its privacy statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.dp_fts_de.final_rounds import FinalRounds
from flwr_fbo.methods.dp_fts_de.public_list import good_score, list_length
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.registry import find_method
from flwr_fbo.privacy.forecast import (
    ListedScores,
    PrivacyForecast,
    SecureForecast,
    forecast_privacy,
)
from flwr_fbo.privacy.statement import PrivacyStatement

#: What a plan assumes where it is not stated: a task with a known range of scores.
KNOWN_RANGE: Mapping[str, Any] = {"reward-low": 0.0, "reward-high": 1.0}


def planned_settings(stated: Mapping[str, Any]) -> DPFTSDESettings:
    """Return the settings of a planned run, from kebab-case keys; a value of None is unset.

    With a noise multiplier and without an epsilon every round releases, as in the paper, unless
    ``releases`` says otherwise, or the finalists come from a public list.
    """
    given = {key: value for key, value in stated.items() if value is not None}
    presets = dict(KNOWN_RANGE)
    if "epsilon" not in given and given.get("finalists-from") != "list":
        presets["releases"] = "all"
    return DPFTSDESettings.from_mapping(given, presets)


def forecast_of(settings: DPFTSDESettings, agents: int, rounds: int) -> PrivacyForecast:
    """Return the noise and the epsilon of a run with these settings, and of similar runs."""
    for key, value, needed in (
        ("accountant", settings.accountant, "pld"),
        ("sampling", settings.sampling, "poisson"),
        ("sensitivity", settings.sensitivity, "exact"),
    ):
        if value != needed:
            raise SettingsError(
                f"`{key}` must be {needed} in a table of costs, but got {value!r}; "
                "--as-statement shows the plan with any settings"
            )
    secure = None
    if settings.secure:
        secure = SecureForecast(settings.secure_threshold, settings.secure_colluding)
    plan, finals = settings.release_plan(agents, rounds), settings.finals(rounds)
    # The last round, T, can release nothing but the scores of the finalists.
    last = rounds if finals is None else max(rounds, finals.end + 1)
    return forecast_privacy(
        agents,
        rounds,
        epsilon=None if settings.noise_multiplier is not None else settings.epsilon,
        noise_multiplier=settings.noise_multiplier,
        sampling_rate=plan.sampling_rate,
        delta=settings.delta_for(agents) if _states_delta(settings) else None,
        schedule=[t in plan.rounds for t in range(last)],
        features=settings.features,
        regions=settings.regions,
        secure=secure,
        final_round=None if finals is None else finals.end,
        listed=_listed_scores(settings, finals),
    )


def _listed_scores(settings: DPFTSDESettings, finals: FinalRounds | None) -> ListedScores | None:
    """Return what releases tell of the public list; None where finalists come from a function."""
    if finals is None or settings.finalists_from != "list":
        return None
    evaluations, count = settings.evaluations_after(finals.start - 1), finals.count

    def listed(agents: int, deviation: float) -> tuple[int, float]:
        length = min(list_length(agents, evaluations, deviation, count), settings.features)
        return length, good_score(evaluations, length)

    return listed


def _states_delta(settings: DPFTSDESettings) -> bool:
    return settings.delta is not None or settings.delta_rule != "strict"


def statement_of(settings: DPFTSDESettings, agents: int, rounds: int) -> PrivacyStatement:
    """Return the privacy statement that a run with these settings writes before it starts."""
    if not settings.private:
        raise SettingsError("a plan needs `epsilon` or `noise-multiplier`, but both are unset")
    # What is released, how often and with which noise does not depend on the space.
    run = RunParameters(Space({"x": Float(0.0, 1.0)}), agents, rounds)
    return find_method("dp-fts-de").make_server(run, settings).statement()
