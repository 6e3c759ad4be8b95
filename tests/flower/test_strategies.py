"""The strategies on a grid: rounds, faults, resumption, and what an agent never sends."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict

from flwr_fbo import wire
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.callbacks import Callback, RoundReport
from flwr_fbo.runs.history import by_round, read_evaluations
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.baselines import LocalTS, RandomSearch
from flwr_fbo.strategies.dp_fts_de import DPFTSDE
from flwr_fbo.strategies.fts import FTS
from flwr_fbo.tasks import task

from .conftest import SPACE, Federation

Make = Callable[..., Federation]
SMALL = {"initial_points": 2, "features": 8, "refit_every": 0}


def private(**settings: Any) -> DPFTSDE:
    return DPFTSDE(**{**SMALL, "epsilon": 8.0, "regions": 2, "releases": "early", **settings})


ALL = [
    private,
    lambda: DPFTSDE(**SMALL, regions=2),
    lambda: FTS(**SMALL),
    lambda: FTS(**SMALL, messages="once"),
    lambda: FTS(**SMALL, targets=1, history=3),
    lambda: LocalTS(**SMALL),
    lambda: RandomSearch(**SMALL),
]


def evaluations(f: Federation, rounds: int = 4) -> list[float]:
    return by_round(read_evaluations(f.directory.agents, len(f.grid.contexts)), rounds).evaluations


class TestEveryStrategy:
    """Conformance: what any strategy must do."""

    @pytest.mark.parametrize("make", ALL)
    def test_runs_to_its_end(self, federation: Make, make: Callable[[], FBOStrategy]) -> None:
        f = federation(make())
        strategy = f.start()
        assert strategy.server.finished
        assert [r.round for r in strategy.reports] == [0, 1, 2, 3, 4]
        assert all(r.replied == r.asked for r in strategy.reports)
        assert all(not r.missing and not r.refused and not r.declined for r in strategy.reports)
        expected = strategy.server.evaluations_per_agent()
        if expected is not None:
            assert evaluations(f)[-1] == expected == 6

    @pytest.mark.parametrize("make", ALL)
    def test_stops_and_resumes_as_if_nothing_had_happened(
        self, federation: Make, make: Callable[[], FBOStrategy], tmp_path: Path
    ) -> None:
        f = federation(make())
        f.strategy.stop = lambda report: report.round == 2
        f.start()
        assert f.strategy.server.round == 3
        again = federation(make())
        again.start()
        assert [r.round for r in again.strategy.reports] == [3, 4]
        histories = read_evaluations(again.directory.agents, 3)
        whole = federation(make(), agents=3)
        assert whole.strategy.server.finished
        if (
            again.strategy.server.statement() is None
        ):  # noise apart, the same evaluations as undisturbed
            undisturbed = Federation(make(), tmp_path / "other", 3, _hill())
            undisturbed.start()
            straight = read_evaluations(undisturbed.directory.agents, 3)
            assert [[e.unit for e in h] for h in histories] == [
                [e.unit for e in h] for h in straight
            ]

    @pytest.mark.parametrize("make", ALL)
    def test_goes_on_without_agents_that_are_gone_and_takes_them_back(
        self, federation: Make, make: Callable[[], FBOStrategy]
    ) -> None:
        f = federation(make())
        gone = max(f.grid.online)

        class Outage(Callback):
            def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
                if report.round == 1:
                    f.grid.online.discard(gone)
                if report.round == 2:
                    f.grid.online.add(gone)

        f.strategy.callbacks.append(Outage())
        strategy = f.start()
        asked = [r.asked for r in strategy.reports]
        assert asked[2] == asked[0] - 1
        assert strategy.server.finished
        counts = [len(h) for h in read_evaluations(f.directory.agents, 3)]
        assert counts[2] == counts[1] - 1 or strategy.server.evaluations_per_agent() is None

    @pytest.mark.parametrize("make", ALL)
    def test_configures_a_list_of_messages_of_their_own(
        self, federation: Make, make: Callable[[], FBOStrategy]
    ) -> None:
        f = federation(make())
        f.strategy.rounds.await_agents(f.grid)
        messages = f.strategy.configure_train(0, ArrayRecord(), ConfigRecord(), f.grid)
        assert isinstance(messages, list)
        contents = [id(m.content) for m in messages]
        assert len(set(contents)) == len(messages) == 3

    @pytest.mark.parametrize("make", ALL)
    def test_serves_flowers_own_loop(
        self, federation: Make, make: Callable[[], FBOStrategy]
    ) -> None:
        f = federation(make())
        strategy = f.strategy
        for number in range(1, 5):
            messages = strategy.configure_train(number, ArrayRecord(), ConfigRecord(), f.grid)
            arrays, metrics = strategy.aggregate_train(number, f.grid.send_and_receive(messages))
            assert arrays is None
            assert metrics is not None
            assert metrics["replied"] == metrics["asked"] == len(messages)
            assert strategy.configure_evaluate(0, ArrayRecord(), ConfigRecord(), f.grid) == []
        assert strategy.server.finished
        # A loop that goes on too long asks nobody and changes nothing.
        assert strategy.configure_train(5, ArrayRecord(), ConfigRecord(), f.grid) == []
        assert strategy.aggregate_train(5, []) == (None, None)
        assert evaluations(f) == [2, 3, 4, 5, 6] or strategy.server.evaluations_per_agent() is None


def _hill() -> Any:
    from .conftest import hill

    return hill


class Tap(InProcessGrid):
    """Keeps every reply that an agent sends."""

    heard: list[Message]

    def _call(self, message: Message, context: Any) -> Message:
        reply = super()._call(message, context)
        self.heard.append(reply)
        return reply


class TestPrivacyOfTheWire:
    def test_a_reply_holds_omega_and_nothing_that_depends_on_data(self, federation: Make) -> None:
        f = federation(private())
        f.grid.__class__ = Tap
        tap = f.grid
        assert isinstance(tap, Tap)
        tap.heard = []
        f.start()
        assert len(tap.heard) == 3 * 6  # a registration and five rounds
        for reply in tap.heard:
            content = reply.content
            assert set(content) == {
                "fitres.metrics", "fitres.num_examples", "fitres.parameters", "fitres.status"
            }  # fmt: skip
            metrics = dict(content.config_records["fitres.metrics"])
            agent = metrics.pop("agent", None)
            assert agent is None or metrics["round"] == -1
            owner = metrics.pop("owner", None)  # a secret from the operating system's entropy
            assert (owner is None) == (agent is None)
            assert metrics == {
                "flwr-fbo": wire.SCHEMA,
                "round": metrics["round"],
                "declined": " " * 64,
            }
            assert dict(content.metric_records["fitres.num_examples"]) == {"num_examples": 1}
            assert dict(content.config_records["fitres.status"]) == {
                "code": 0,
                "message": "Success",
            }
            arrays = content.array_records["fitres.parameters"]
            released = metrics["round"] in (0, 1, 2) or metrics["round"] == -2
            # Round 4 is the last and round 3 has no release: agents send nothing at all.
            assert (list(arrays) == ["0"]) == released
            assert all(a.data == b"" for key, a in arrays.items() if key == "_empty")

    def test_every_reply_of_a_round_has_the_same_size(self, federation: Make) -> None:
        f = federation(private())
        f.grid.__class__ = Tap
        assert isinstance(f.grid, Tap)
        f.grid.heard = []
        f.start()
        sizes: dict[str, set[int]] = {}
        for reply in f.grid.heard[3:]:
            record = reply.content.array_records["fitres.parameters"]
            size = sum(len(a.data) for a in record.values())
            sizes.setdefault(reply.metadata.group_id, set()).add(size)
        assert all(len(s) == 1 for s in sizes.values())

    def test_an_error_of_the_users_code_stays_with_the_agent(self, federation: Make) -> None:
        @task(space=SPACE)
        def leaky(params: Any, partition: Any) -> float:
            if partition.index == 1:
                raise ValueError("patient 4711 has diabetes")
            return float(params["x"])

        f = federation(private(), work=leaky)
        f.grid.__class__ = Tap
        assert isinstance(f.grid, Tap)
        f.grid.heard = []
        strategy = f.start()
        sent = b"".join(
            a.data
            for reply in f.grid.heard
            for a in reply.content.array_records["fitres.parameters"].values()
        ) + json.dumps([dict(r.content.config_records["fitres.metrics"]) for r in f.grid.heard]
        ).encode()  # fmt: skip
        assert b"4711" not in sent
        assert b"ValueError" not in sent
        assert all(r.replied == 3 for r in strategy.reports)
        (history,) = read_evaluations(f.directory.agents, 3)[1:2]
        assert all(e.failure == "ValueError: patient 4711 has diabetes" for e in history)
        assert len(history) == 6
        assert history[0].params.keys() == {"x", "y"}

    def test_what_breaks_outside_the_users_code_is_told_by_class_only(
        self, federation: Make
    ) -> None:
        @task(space=SPACE, prepare=lambda partition: _refuse())
        def never(params: Any, data: Any) -> float:
            return 0.0

        f = federation(private(), work=never)
        strategy = f.start()
        assert all(r.declined == {"OSError": 3} for r in strategy.reports)


def _refuse() -> None:
    raise OSError("/home/alice/secret is not there")


class TestBudget:
    def test_the_ledger_holds_every_release_before_it_is_sent(self, federation: Make) -> None:
        f = federation(private())
        counts: list[int] = []

        class Reader(Callback):
            def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
                counts.append(_charges(f))

        f.strategy.callbacks.append(Reader())
        strategy = f.start()
        assert counts == [1, 2, 3, 3, 3]
        assert strategy.reports[-1].privacy is not None
        spent = [r.privacy.spent for r in strategy.reports if r.privacy is not None]
        assert spent == sorted(spent)
        assert 7.9 < spent[-1] <= 8.0

    def test_a_budget_that_would_be_exceeded_stops_releases_and_not_the_run(
        self, federation: Make
    ) -> None:
        f = federation(private(epsilon=1.5, noise_multiplier=1.0, releases="all"))
        strategy = f.start()
        assert strategy.server.finished
        assert _charges(f) < 4
        last = strategy.reports[-1].privacy
        assert last is not None
        assert last.exhausted
        assert last.spent is not None
        assert last.spent <= last.epsilon == 1.5  # type: ignore[operator]
        assert evaluations(f) == [2, 3, 4, 5, 6]

    def test_a_resumed_run_goes_on_with_its_ledger(self, federation: Make) -> None:
        f = federation(private())
        f.strategy.stop = lambda report: report.round == 1
        f.start()
        assert _charges(f) == 2
        again = federation(private())
        assert again.strategy.server.statement() == f.strategy.reports[-1].privacy
        again.start()
        assert _charges(again) == 3

    def test_without_epsilon_nothing_is_called_private(self, federation: Make) -> None:
        strategy = federation(DPFTSDE(**SMALL)).start()
        statement = strategy.server.statement()
        assert statement.epsilon is None
        assert not statement.private
        assert str(statement) == "NOT PRIVATE: no epsilon was given"
        assert strategy.reports[-1].privacy is None


def _charges(f: Federation) -> int:
    return f.directory.ledger.read_text().count('"event"')


class TestFaults:
    def test_redelivered_messages_pay_for_nothing_twice(self, federation: Make) -> None:
        f = federation(LocalTS(**SMALL))
        f.strategy.rounds.await_agents(f.grid)
        for _ in range(3):
            messages = f.strategy.configure_train(0, ArrayRecord(), ConfigRecord(), f.grid)
            f.grid.send_and_receive(messages)
        assert evaluations(f, 0) == [2]

    def test_an_agent_that_lost_its_setup_is_set_up_again(self, federation: Make) -> None:
        f = federation(private())

        class Amnesia(Callback):
            def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
                if report.round == 1:
                    next(iter(f.grid.contexts.values())).state = RecordDict()

        f.strategy.callbacks.append(Amnesia())
        strategy = f.start()
        assert strategy.reports[2].declined == {wire.NEEDS_SETUP: 1}
        assert strategy.reports[3].replied == 3

    def test_bad_replies_are_counted_and_ignored(self, federation: Make) -> None:
        f = federation(private())

        class Liar(InProcessGrid):
            def _call(self, message: Message, context: Any) -> Message:
                reply = super()._call(message, context)
                if message.metadata.group_id == "1" and message.metadata.dst_node_id == 2:
                    record = reply.content.array_records["fitres.parameters"]
                    bad = np.full(8, np.nan)
                    content = ArrayRecord([bad])
                    record.update({"0": next(iter(content.values()))})
                return reply

        f.grid.__class__ = Liar
        strategy = f.start()
        assert [r.refused for r in strategy.reports] == [0, 1, 0, 0, 0]
        assert [r.replied for r in strategy.reports] == [3, 2, 3, 3, 3]
        server = strategy.server
        assert np.all(np.isfinite(server.released.latest))  # type: ignore[attr-defined]

    def test_a_space_that_is_not_the_agents_is_refused_at_registration(
        self, federation: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        from flwr_fbo.core.space import Float, Space

        f = federation(LocalTS(**SMALL), timeout=0.2)
        other = Space({"x": Float(0.0, 2.0)})
        f.strategy.open_run(RunParameters(other, 3, 4, timeout=0.2))
        with pytest.raises(TimeoutError, match="none of 3 agents registered"):
            f.start()

    def test_a_strategy_needs_a_space_and_a_run(self) -> None:
        with pytest.raises(
            SettingsError, match="`space`, the search space, must be given to LocalTS"
        ):
            LocalTS(**SMALL).start(InProcessGrid(None, 1))  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="call start"):
            LocalTS(**SMALL).run(InProcessGrid(None, 1))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("settings", "fault"),
        [
            ({"regions": 0}, "`regions` must be >= 1, but got 0"),
            ({"sampling_rate": 0.0}, r"`sampling-rate` must be in \(0, 1\], but got 0.0"),
            ({"sampling_rate": 1.5}, "`sampling-rate`"),
            ({"clip": -1.0}, "`clip` must be > 0, but got -1.0"),
            ({"epsilon": 0.0}, "`epsilon` must be > 0"),
            ({"delta": 1.0}, "`delta` must be in"),
            ({"releases": "often"}, "`releases` must be all, early"),
            ({"features": "many"}, "`features` must be int, but got 'many'"),
        ],
    )
    def test_settings_out_of_range_are_refused_at_once(
        self, settings: dict[str, Any], fault: str
    ) -> None:
        with pytest.raises(SettingsError, match=fault):
            DPFTSDE(**settings)


class TestPopulation:
    """Sampling is over everybody who may take part, whoever is there."""

    def test_the_sample_is_drawn_over_the_whole_population_whoever_is_there(
        self, federation: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from flwr_fbo.methods.dp_fts_de import aggregation

        drawn: list[tuple[int, float]] = []
        honest = aggregation.poisson_sample

        def watched(count: int, rate: float, entropy: Any) -> Any:
            drawn.append((count, rate))
            return honest(count, rate, entropy)

        monkeypatch.setattr(aggregation, "poisson_sample", watched)
        f = federation(private(sampling_rate=0.5, regions=1), agents=4)
        first, *_, last = sorted(f.grid.online)

        class Coming(Callback):
            def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
                f.grid.online -= {first} if report.round == 0 else set()
                f.grid.online -= {last} if report.round == 1 else set()
                f.grid.online |= {first} if report.round == 2 else set()

        f.strategy.callbacks.append(Coming())
        f.start()
        assert drawn == [(4, 0.5)] * 3  # the three releases; the charge is the same for each
        events = f.directory.ledger.read_text().splitlines()[1:]
        assert all('"sampling_rate": 0.5' in e for e in events)

    def test_who_is_absent_counts_as_zero_and_the_others_no_more_than_before(self) -> None:
        from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
        from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings

        settings = DPFTSDESettings(features=4, regions=1, weights="uniform", clip=100.0)
        server = DPFTSDEServer(SPACE, 4, settings, 3)
        vectors = {n: np.full(4, float(n + 1)) for n in range(4)}
        everyone = server.aggregation.weighted_sum(vectors, 0).plain
        three = {n: v for n, v in vectors.items() if n != 3}
        without = server.aggregation.weighted_sum(three, 0).plain
        np.testing.assert_allclose(everyone, np.full((1, 4), (1 + 2 + 3 + 4) / 4))
        np.testing.assert_allclose(without, np.full((1, 4), (1 + 2 + 3) / 4))

    def test_a_stranger_cannot_join_and_a_latecomer_takes_its_own_place(
        self, federation: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        f = federation(private(), agents=3, timeout=0.2)
        nodes = sorted(f.grid.online)
        f.grid.online = set(nodes[:2])
        stranger = max(nodes) + 1
        f.grid.contexts[stranger] = f.grid.contexts[nodes[0]].__class__(
            run_id=1, node_id=stranger, node_config={"partition-id": 7, "num-partitions": 8},
            state=RecordDict(), run_config=f.grid.contexts[nodes[0]].run_config,
        )  # fmt: skip

        class Coming(Callback):
            def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
                if report.round == 1:
                    f.grid.online |= {nodes[2], stranger}

        f.strategy.callbacks.append(Coming())
        reports = f.start().reports
        assert [r.asked for r in reports] == [2, 2, 3, 3, 3]
        assert "the run is for 3 agents, and all of them have their places" in caplog.text
        assert f.strategy.roster.names == ["0", "1", "2"]

    def test_a_node_that_never_registers_is_asked_ever_more_rarely(self, federation: Make) -> None:
        asked: list[int] = []

        class Deaf(InProcessGrid):
            def _call(self, message: Message, context: Any) -> Message:
                if message.metadata.dst_node_id == 4 and message.metadata.group_id == "setup":
                    asked.append(len(f.strategy.reports))
                    return Message(Error(2, "RuntimeError"), reply_to=message)
                return super()._call(message, context)

        f = federation(LocalTS(**SMALL), rounds=12, timeout=0.3)
        f.grid.__class__ = Deaf
        f.start()
        assert asked == sorted(asked)
        gaps = np.diff([a for a in asked if a > 0])
        assert len(asked) <= 5
        assert all(b >= a for a, b in itertools.pairwise(gaps))
