"""The commands ``flwr-fbo privacy`` and ``audit``, which plan and attack the privacy of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flwr_fbo.cli.common import FAILED, assignments, user_errors
from flwr_fbo.core.settings import SettingsError

if TYPE_CHECKING:
    from flwr_fbo.methods.dp_fts_de.schedule_audit import ScheduleAudit
    from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
    from flwr_fbo.privacy.audit import AuditResult
    from flwr_fbo.privacy.forecast import PrivacyForecast
    from flwr_fbo.privacy.publishing import PublishedModel
    from flwr_fbo.privacy.statement import PrivacyStatement
    from flwr_fbo.privacy.trainings import Training


class Aggregation(StrEnum):
    """Who adds the noise of the releases."""

    central = "central"
    secure = "secure"


#: What is audited where no epsilon, noise or run is given. Of 7 agents in 4 sub-regions, one is
#: alone at home and has the largest weights by far; releases are sampled, and more than two.
AUDITED = {
    "epsilon": 8, "regions": 4, "features": 4, "sampling-rate": 0.5, "releases": "0,1,2,4,8",
}  # fmt: skip
#: Attacks on each of two inputs, in an audit of one release.
FAST_TRIALS = 4000


def privacy(
    agents: Annotated[int | None, typer.Option(help="Number of agents (N).")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Number of rounds after the initial points.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Privacy budget of the whole run, for which the noise is planned."),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise over sensitivity (z), given with --sampling-rate."),
    ] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(help="Probability that a release counts an agent (q)."),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta of epsilon; where unset, min(1e-5, 1/(10 N)).")
    ] = None,
    features: Annotated[
        int,
        typer.Option(
            help="Number of random features (M), to compare noise with signal; a run with 3 or 4 "
            "parameters has 400."
        ),
    ] = 200,
    regions: Annotated[
        int, typer.Option(help="Number of sub-regions (P), to compare noise with signal.")
    ] = 1,
    aggregation: Annotated[
        Aggregation,
        typer.Option(help="Who adds the noise: the server, or the agents in secure sums."),
    ] = Aggregation.central,
    secure_threshold: Annotated[
        float,
        typer.Option(help="Share of the agents that must answer in a secure sum."),
    ] = 2.0 / 3.0,
    secure_colluding: Annotated[
        int, typer.Option(help="Agents that may collude with the server in a secure sum.")
    ] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any other setting of dp-fts-de, such as finalists=8; may be repeated.",
        ),
    ] = None,
    as_statement: Annotated[
        bool,
        typer.Option(
            "--as-statement", help="Print the plan as the privacy statement of such a run."
        ),
    ] = False,
    publish: Annotated[
        Path | None,
        typer.Option(
            metavar="JOURNAL",
            help="Print the cost of publishing a model of this journal, instead of a plan.",
        ),
    ] = None,
    training_epsilon: Annotated[
        float | None,
        typer.Option(help="With --publish: epsilon of the training in one evaluation."),
    ] = None,
    training_delta: Annotated[
        float, typer.Option(help="With --publish: delta of the training in one evaluation.")
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
    statement: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Print the privacy statement of this run, instead of a plan."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plan a private run: print its noise, its epsilon by round, and the cost of other plans.

    With --epsilon the releases are those of `flwr-fbo run` for a task with a known range of scores
    (without a range, an agent's vector is a tenth shorter). With --noise-multiplier and
    --sampling-rate there is one release per round, as in the paper.

    --set takes the other settings of the planned run. With `--set finalists=8` the plan pays for
    the scores of the finalists too.

    With --aggregation secure, the agents add the noise in secure sums, and epsilon holds against
    the server too.

    With --publish the command prints what a party's published model costs the people in its data.
    All trainings of the search count, not only that of the winner. --delta is then the total
    delta; where unset, 1e-5, or twice the sum over the trainings.

    With --statement the command prints the privacy statement of a run directory as a page of text.

    Example: flwr-fbo privacy --agents 200 --rounds 40 --noise-multiplier 1 --sampling-rate 0.25

    Example: flwr-fbo privacy --agents 30 --rounds 20 --epsilon 5 --set finalists=8 --as-statement

    Example: flwr-fbo privacy --publish agent-0000.jsonl --training-epsilon 0.5
    """
    made: PrivacyForecast | PublishedModel
    with user_errors():
        if statement is not None:
            _print_statement(_statement(statement), as_json)
            return
        if publish is not None:
            training = _training(training_epsilon, training_delta, training_event)
            made = _published(publish, training, retrained, delta)
        elif agents is None or rounds is None:
            given = {"--agents": agents, "--rounds": rounds, "--epsilon": epsilon}
            stated = [f"{option} {value}" for option, value in given.items() if value is not None]
            raise SettingsError(
                "either --agents and --rounds, or --publish, or --statement must be given, but "
                f"got {' and '.join(stated) or 'none of them'}"
            )
        else:
            from flwr_fbo.methods.dp_fts_de.plan import forecast_of, statement_of
            from flwr_fbo.runs.sizes import check_sizes

            options = {
                "epsilon": epsilon, "noise-multiplier": noise_multiplier, "delta": delta,
                "sampling-rate": sampling_rate, "features": features, "regions": regions,
                "aggregation": aggregation.value, "secure-threshold": secure_threshold,
                "secure-colluding": secure_colluding,
            }  # fmt: skip
            planned = _planned(options, settings or [])
            check_sizes(planned, agents, rounds, dimension=1)
            if as_statement:
                _print_statement(statement_of(planned, agents, rounds), as_json)
                return
            made = forecast_of(planned, agents, rounds)
        print(json.dumps(made.to_dict()) if as_json else made.to_text())


def _print_statement(stated: PrivacyStatement, as_json: bool) -> None:
    print(json.dumps(stated.to_dict()) if as_json else stated.to_page().rstrip("\n"))


def _statement(run: Path) -> PrivacyStatement:
    """Return the privacy statement of a run directory."""
    from flwr_fbo.runs.files.directory import RunDirectory
    from flwr_fbo.runs.files.statement import read_statement

    return read_statement(RunDirectory(run))


def _planned(options: Mapping[str, Any], pairs: list[str]) -> DPFTSDESettings:
    """Return the settings of a planned run, from the options and from those of --set."""
    from flwr_fbo.methods.dp_fts_de.plan import planned_settings

    stated = assignments(pairs)
    for key in stated:
        if key in options:
            raise SettingsError(f"`{key}` has an option of its own: give --{key} {stated[key]}")
    if (options["epsilon"] is None) == (options["noise-multiplier"] is None):
        raise SettingsError("either --epsilon or --noise-multiplier must be given")
    if options["epsilon"] is None and options["sampling-rate"] is None:
        raise SettingsError("--sampling-rate must be given with --noise-multiplier")
    return planned_settings({**options, **stated})


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
    from flwr_fbo.privacy.publishing import cost_of_publishing
    from flwr_fbo.runs.history import read_journal

    try:
        made, lost = read_journal(path)
    except FileNotFoundError:
        raise SettingsError(
            f"--publish needs the file of a party's own journal, but got {path}"
        ) from None
    if lost:
        raise SettingsError(
            f"{path} lost {lost} records at its end, so the trainings cannot be counted; "
            "restore it from a backup"
        )
    if not made:
        raise SettingsError(f"{path} holds no evaluation, so there is no model to publish")
    # A failed evaluation counts as a training: it used the data, and its failure was seen.
    failed = sum(evaluation.failed for evaluation in made)
    return cost_of_publishing(training, len(made) + retrained, failed, delta)


def audit(
    run_dir: Annotated[
        Path | None, typer.Argument(help="Directory of a run of dp-fts-de, to audit its settings.")
    ] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents; 7 where unset.")] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Privacy budget of the whole run; 8 where --noise-multiplier is unset too."
        ),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise over sensitivity (z); from the budget where unset."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; 10 where unset.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any other setting of dp-fts-de, as key=value; may be repeated."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Number of attacks on each of two inputs; half a minute where unset."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability, at least, with which a true claim passes.")
    ] = 0.99,
    fast: Annotated[
        bool, typer.Option("--fast", help="Attack one release instead of the whole schedule.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Attack the releases of a run, and test whether they reveal more than is claimed.

    With RUN_DIR, the agents, rounds and settings are those of that run. The command exits with 1
    when the attack refutes the claim. An attack that finds nothing does not prove the claim.

    Example: flwr-fbo audit --epsilon 4 --agents 30 --rounds 20
    """
    with user_errors():
        from flwr_fbo.methods.dp_fts_de.release_audit import audit_release
        from flwr_fbo.methods.dp_fts_de.schedule_audit import audit_schedule
        from flwr_fbo.runs.sizes import check_sizes

        if run_dir is None:
            audited = _audited_settings(agents, rounds, epsilon, noise_multiplier, settings or [])
        else:
            own = {"--agents": agents, "--rounds": rounds, "--set": settings, "--epsilon": epsilon}
            audited = _settings_of_run(run_dir, {**own, "--noise-multiplier": noise_multiplier})
        result: AuditResult | ScheduleAudit
        check_sizes(*audited, dimension=1)
        if fast:
            trials = FAST_TRIALS if trials is None else trials
            result = audit_release(*audited, trials=trials, confidence=confidence)
        else:
            result = audit_schedule(*audited, trials=trials, confidence=confidence)
        print(json.dumps(result.to_dict()) if as_json else result.to_text())
        if not result.passed:
            raise typer.Exit(FAILED)


def _audited_settings(
    agents: int | None,
    rounds: int | None,
    epsilon: float | None,
    noise_multiplier: float | None,
    settings: list[str],
) -> tuple[DPFTSDESettings, int, int]:
    """Return settings, agents and rounds of an audit without a run."""
    from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings

    stated: dict[str, Any] = assignments(settings)
    if epsilon is None and noise_multiplier is None:
        stated = {**AUDITED, **stated}
    if epsilon is not None:
        stated["epsilon"] = epsilon
    if noise_multiplier is not None:
        stated["noise-multiplier"] = noise_multiplier
    chosen = DPFTSDESettings.from_mapping(stated)
    return chosen, 7 if agents is None else agents, 10 if rounds is None else rounds


def _settings_of_run(run_dir: Path, given: Mapping[str, Any]) -> tuple[DPFTSDESettings, int, int]:
    """Return settings, agents and rounds of a run of dp-fts-de; refuse any other run."""
    from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
    from flwr_fbo.runs.files.directory import RunDirectory

    for option, value in given.items():
        if value is not None:
            raise SettingsError(
                f"{option} must be left out in the audit of a run, whose settings are audited, "
                f"but got {value!r}"
            )
    config = RunDirectory(run_dir).read_json("config.json")
    if config.get("strategy") != "dp-fts-de":
        raise SettingsError(
            f"an audit needs a run of dp-fts-de, but {run_dir} is of {config.get('strategy')!r}"
        )
    keys = DPFTSDESettings.keys()
    chosen = DPFTSDESettings.from_mapping({k: v for k, v in config.items() if k in keys})
    if not chosen.private:
        raise SettingsError(
            f"an audit needs a private run, but {run_dir} has neither `epsilon` nor "
            "`noise-multiplier`"
        )
    return chosen, int(config["agents"]), int(config["rounds"])
