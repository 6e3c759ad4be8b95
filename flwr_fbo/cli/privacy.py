"""``flwr-fbo privacy`` and ``audit``: what a private run costs, and whether that is true."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from flwr_fbo.cli.common import FAILED, assignments, user_errors


def privacy(
    agents: Annotated[int, typer.Option(help="How many take part.")],
    rounds: Annotated[int, typer.Option(help="Rounds after the initial points.")],
    epsilon: Annotated[float | None, typer.Option(help="Budget; the noise is planned.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="z; with --sampling-rate.")] = None,
    sampling_rate: Annotated[float | None, typer.Option(help="q; planned with --epsilon.")] = None,
    delta: Annotated[float | None, typer.Option(help="N^-1.1 where unset.")] = None,
    features: Annotated[int, typer.Option(help="M, for the noise against the signal.")] = 200,
    regions: Annotated[int, typer.Option(help="P, for the same.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plan a private run: its noise, its epsilon by round, and what else it could cost.

    With --epsilon the releases are those of `flwr-fbo run` for a task that states the range of its
    scores (without, an agent's vector is a tenth shorter); with --noise-multiplier and
    --sampling-rate there is one a round, as in the paper.

    Example: flwr-fbo privacy --agents 200 --rounds 40 --noise-multiplier 1 --sampling-rate 0.25
    """
    with user_errors():
        from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
        from flwr_fbo.privacy.forecast import forecast_privacy

        schedule = None
        if epsilon is not None:
            settings = DPFTSDESettings(
                epsilon=epsilon, delta=delta, sampling_rate=sampling_rate,
                reward_low=0.0, reward_high=1.0,
            )  # fmt: skip
            planned = settings.release_plan(agents, rounds)
            schedule = [t in planned.rounds for t in range(rounds)]
            sampling_rate = planned.sampling_rate
        made = forecast_privacy(
            agents,
            rounds,
            epsilon=epsilon,
            noise_multiplier=noise_multiplier,
            sampling_rate=sampling_rate,
            delta=delta,
            schedule=schedule,
            features=features,
            regions=regions,
        )
        print(json.dumps(made.to_dict()) if as_json else made.to_text())


def audit(
    agents: Annotated[int, typer.Option(help="How many take part.")] = 16,
    epsilon: Annotated[float | None, typer.Option(help="Budget of the run.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="z, instead of it.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of the run.")] = 10,
    trials: Annotated[int, typer.Option(help="Attacks on each of two inputs.")] = 4000,
    confidence: Annotated[float, typer.Option(help="Of the bounds.")] = 0.99,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting of dp-fts-de.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Attack the server's release step, and see whether it tells more than is claimed.

    Exits with 1 when the claim does not stand.

    Example: flwr-fbo audit --noise-multiplier 1 --set sampling-rate=0.5
    """
    with user_errors():
        from flwr_fbo.methods.dp_fts_de.release_audit import audit_server
        from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings

        given: dict[str, Any] = {"features": 4, "regions": 2, **assignments(settings or [])}
        if epsilon is not None:
            given["epsilon"] = epsilon
        if noise_multiplier is not None or epsilon is None:
            given["noise-multiplier"] = 1.0 if noise_multiplier is None else noise_multiplier
        chosen = DPFTSDESettings.from_mapping(given)
        result = audit_server(chosen, agents, rounds, trials=trials, confidence=confidence)
        print(json.dumps(result.to_dict()) if as_json else result.to_text())
        if not result.passed:
            raise typer.Exit(FAILED)
