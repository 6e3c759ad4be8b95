"""``flwr-fbo privacy`` and ``audit``: what a private run costs, and whether that is true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flwr_fbo.cli.common import FAILED, assignments, user_errors
from flwr_fbo.core.settings import SettingsError

if TYPE_CHECKING:
    from flwr_fbo.privacy.forecast import PrivacyForecast
    from flwr_fbo.privacy.publishing import PublishedModel
    from flwr_fbo.privacy.trainings import Training


def privacy(
    agents: Annotated[int | None, typer.Option(help="How many take part.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds after the initial points.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Budget; the noise is planned.")] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="z; with --sampling-rate.")] = None,
    sampling_rate: Annotated[float | None, typer.Option(help="q; planned with --epsilon.")] = None,
    delta: Annotated[float | None, typer.Option(help="min(1e-5, 1/(10 N)) where unset.")] = None,
    features: Annotated[int, typer.Option(help="M, for the noise against the signal.")] = 200,
    regions: Annotated[int, typer.Option(help="P, for the same.")] = 1,
    publish: Annotated[
        Path | None,
        typer.Option(
            metavar="JOURNAL",
            help="Instead of planning: the cost of publishing a model of this journal.",
        ),
    ] = None,
    training_epsilon: Annotated[
        float | None, typer.Option(help="With --publish: epsilon of one evaluation's training.")
    ] = None,
    training_delta: Annotated[
        float, typer.Option(help="With --publish: delta of one evaluation's training.")
    ] = 0.0,
    training_event: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --publish: a dp-accounting event as JSON, instead of --training-epsilon.",
        ),
    ] = None,
    retrained: Annotated[
        bool,
        typer.Option("--retrained", help="With --publish: the winner was trained once more."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plan a private run: its noise, its epsilon by round, and what else it could cost.

    With --epsilon the releases are those of `flwr-fbo run` for a task that states the range of its
    scores (without, an agent's vector is a tenth shorter); with --noise-multiplier and
    --sampling-rate there is one a round, as in the paper.

    With --publish the command says instead what a party's published model costs the people in its
    data: all trainings of the search count, not only the winner's. --delta is then the total
    delta; where unset, 1e-5, or twice what the trainings have together.

    Example: flwr-fbo privacy --agents 200 --rounds 40 --noise-multiplier 1 --sampling-rate 0.25

    Example: flwr-fbo privacy --publish agent-0000.jsonl --training-epsilon 0.5
    """
    made: PrivacyForecast | PublishedModel
    with user_errors():
        if publish is not None:
            training = _training(training_epsilon, training_delta, training_event)
            made = _published(publish, training, retrained, delta)
        elif agents is None or rounds is None:
            raise SettingsError("either --agents and --rounds, or --publish, must be given")
        else:
            made = _forecast(
                agents, rounds, epsilon, noise_multiplier, sampling_rate, delta, features, regions
            )
        print(json.dumps(made.to_dict()) if as_json else made.to_text())


def _forecast(
    agents: int,
    rounds: int,
    epsilon: float | None,
    noise_multiplier: float | None,
    sampling_rate: float | None,
    delta: float | None,
    features: int,
    regions: int,
) -> PrivacyForecast:
    """Return the cost of a run, with the releases that the default settings plan for epsilon."""
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
    return forecast_privacy(
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


def _training(epsilon: float | None, delta: float, event: Path | None) -> Training:
    """Return the guarantee of one training, as the options state it."""
    from flwr_fbo.privacy.trainings import AccountedTraining, ApproximateTraining

    if (epsilon is None) == (event is None):
        raise SettingsError(
            "--publish needs either --training-epsilon or --training-event: the privacy of one "
            "training. Without noise in the training there is no epsilon to state"
        )
    if epsilon is not None:
        return ApproximateTraining(epsilon, delta)
    assert event is not None
    try:
        return AccountedTraining.of(json.loads(event.read_text()))
    except (json.JSONDecodeError, AttributeError, TypeError) as error:
        raise SettingsError(f"{event} must hold one dp-accounting event as JSON: {error}") from None


def _published(
    path: Path, training: Training, retrained: bool, delta: float | None
) -> PublishedModel:
    """Return the cost of publishing a model of the search that a journal records."""
    from flwr_fbo.core.evaluation import Evaluator
    from flwr_fbo.privacy.publishing import cost_of_publishing
    from flwr_fbo.runs.files.journal import Journal

    if not path.is_file():
        raise SettingsError(f"--publish needs the file of a party's own journal, but got {path}")
    made = Journal(path, reading=True).read(Evaluator.KIND)
    if not made:
        raise SettingsError(f"{path} holds no evaluation, so there is no model to publish")
    # A failed evaluation counts as a training: it used the data, and its failure was seen.
    failed = sum(record["score"] is None for record in made)
    return cost_of_publishing(training, len(made) + retrained, failed, delta)


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
