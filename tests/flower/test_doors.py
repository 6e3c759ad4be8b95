"""The door of docs/how-to/existing-apps.md, literally: two ways in, three loops, one agent."""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
    UserConfig,
)  # fmt: skip
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result, Strategy

import flwr_fbo
from flwr_fbo import DPFTSDE, FTS, LDPBO, FedPNE, Float, LocalTS, TuningClient, task, with_tuning
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.locations import agents_of, name_of_run, run_directory
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.explicit import ArgumentError
from tests.docs.test_docs import ROOT
from tests.flower.processes import flower, free_ports

PAGE = (ROOT / "docs" / "how-to" / "existing-apps.md").read_text()
DOORS = dict(re.findall(r"<!-- door: (\w+) -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL))

SPACE = {"x": Float(0.0, 1.0), "y": Float(1e-3, 1e3, log=True)}
QUICK: dict[str, Any] = {"initial_points": 2, "features": 20, "refit_every": 0}


@task(space=SPACE, metric="height", score_range=(0.0, 1.0))
def tuned(params: Any, partition: Any) -> float:
    """A hill whose top differs a little between agents."""
    return 1.0 - (float(params["x"]) - 0.4 - 0.02 * partition.index) ** 2


class Trained(NumPyClient):
    """An app's own client, which counts what reaches it."""

    seen: list[str] = []  # noqa: RUF012

    def fit(self, parameters: Any, config: Any) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        self.seen.append("fit")
        assert "flwr-fbo" not in config
        return [np.ones(3)], 1, {"loss": 0.5}

    def evaluate(self, parameters: Any, config: Any) -> tuple[float, int, dict[str, Any]]:
        self.seen.append("evaluate")
        return 0.5, 1, {"accuracy": 0.5}

    def get_properties(self, config: Any) -> dict[str, Any]:
        self.seen.append("get_properties")
        return {"colour": "blue"}


def own_client_fn(context: Context) -> Client:
    return Trained().to_client()


def client_of_the_page(name: str) -> ClientApp:
    """A ClientApp made by the page's own code."""
    scope: dict[str, Any] = {
        "app": ClientApp(), "Context": Context, "Message": Message, "Client": Client,
        "ClientApp": ClientApp, "TuningClient": TuningClient, "flwr_fbo": flwr_fbo,
        "with_tuning": with_tuning, "tuned": tuned, "client_fn": own_client_fn,
    }  # fmt: skip
    exec(DOORS[name], scope)
    app: ClientApp = scope["app"]
    return app


def server_of_the_page(results: list[Any], agents: int, rounds: int) -> ServerApp:
    """A ServerApp made by the page's own code, with other numbers."""
    text = DOORS["server"].replace("num_agents=30", f"num_agents={agents}, **QUICK")
    text = text.replace("num_rounds=20", f"num_rounds={rounds}")
    app = ServerApp()
    scope = {
        "app": app, "Grid": Grid, "Context": Context, "DPFTSDE": DPFTSDE, "SPACE": SPACE,
        "QUICK": QUICK, "print": lambda *values: results.append(values),
    }  # fmt: skip
    exec(text, scope)
    return app


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path / "home"))
    Trained.seen.clear()


def context() -> Context:
    return Context(1, 1, UserConfig({}), RecordDict(), UserConfig({}))


class TestThePage:
    def test_has_all_four(self) -> None:
        assert set(DOORS) == {"server", "handler", "client", "both"}

    @pytest.mark.parametrize("door", ["handler", "client", "both"])
    def test_the_snippet_runs(self, door: str) -> None:
        printed: list[Any] = []
        grid = InProcessGrid(client_of_the_page(door), 3)
        server_of_the_page(printed, agents=3, rounds=4)(grid, context())
        ((recommended, privacy),) = printed
        assert recommended.keys() == SPACE.keys()
        assert str(privacy).startswith("epsilon ")
        folder = run_directory(str(grid.run.run_id))
        assert [len(h) for h in read_evaluations(agents_of(folder), 3)] == [6, 6, 6]
        assert json.loads((folder / "result.json").read_text())["rounds"] == 4
        assert Trained.seen == []


class TestBothInOneRun:
    """An app's own training and evaluation go on between the rounds of tuning, untouched."""

    def handlers(self) -> tuple[ClientApp, list[str]]:
        app, seen = client_of_the_page("handler"), []

        @app.train()
        def train(message: Message, context: Context) -> Message:
            seen.append("train")
            assert "fitins.config" not in message.content
            return Message(message.content, reply_to=message)

        @app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            seen.append("evaluate")
            return Message(message.content, reply_to=message)

        return app, seen

    def ask(self, grid: InProcessGrid, kind: str, content: RecordDict) -> list[Message]:
        messages = [Message(content, node, kind) for node in grid.get_node_ids()]
        return list(grid.send_and_receive(messages))

    def test_with_handlers(self) -> None:
        app, seen = self.handlers()
        grid = InProcessGrid(app, 2)
        content = RecordDict({"metrics": MetricRecord({"a": 1})})
        for _ in range(2):
            assert not any(r.has_error() for r in self.ask(grid, "train", content))
            result = FTS(space=SPACE, num_agents=2, **QUICK, run_dir=None).start(grid, num_rounds=1)
            assert not any(r.has_error() for r in self.ask(grid, "evaluate", content))
        assert seen == ["train", "train", "evaluate", "evaluate"] * 2
        assert result.details is not None
        assert result.details.failures == 0

    def test_with_a_client_fn(self) -> None:
        grid = InProcessGrid(client_of_the_page("both"), 2)
        fit = RecordDict(
            {"fitins.parameters": ArrayRecord([np.zeros(3)]), "fitins.config": ConfigRecord({})}
        )
        evaluate = RecordDict(
            {
                "evaluateins.parameters": ArrayRecord([np.zeros(3)]),
                "evaluateins.config": ConfigRecord({}),
            }
        )
        properties = RecordDict({"getpropertiesins.config": ConfigRecord({"what": "colour"})})
        for reply in self.ask(grid, "train", fit):
            assert reply.content["fitres.metrics"]["loss"] == 0.5
        FTS(space=SPACE, num_agents=2, **QUICK).start(grid, num_rounds=1)
        for reply in self.ask(grid, "evaluate", evaluate):
            assert reply.content["evaluateres.metrics"]["accuracy"] == 0.5
        for reply in self.ask(grid, "get_properties", properties):
            assert reply.content["getpropertiesres.properties"]["colour"] == "blue"
        assert Trained.seen == ["fit"] * 2 + ["evaluate"] * 2 + ["get_properties"] * 2

    @pytest.mark.parametrize("made", ["handlers only", "client_fn only"])
    def test_apps_without_tuning_are_never_sent_a_request(
        self, made: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        if made == "handlers only":
            app, seen = ClientApp(), []

            @app.train()
            def train(message: Message, context: Context) -> Message:
                seen.append("train")
                return Message(message.content, reply_to=message)
        else:
            app, seen = ClientApp(client_fn=own_client_fn), Trained.seen
        strategy = LocalTS(space=SPACE, num_agents=1, **QUICK)
        with pytest.raises(TimeoutError, match="none of 1 agents registered"):
            strategy.start(InProcessGrid(app, 1), num_rounds=1, timeout=0.2)
        assert set(seen) <= {"get_properties"}  # a question, and no training
        assert "takes no part" in caplog.text

    def test_nodes_of_different_apps_take_part_in_one_run(self) -> None:
        apps = [client_of_the_page(name) for name in ("handler", "client", "both")]

        class Mixed(ClientApp):
            def __call__(self, message: Message, context: Context) -> Message:
                return apps[int(context.node_config["partition-id"])](message, context)

        result = FTS(space=SPACE, num_agents=3, **QUICK).start(InProcessGrid(Mixed(), 3), None, 3)
        assert [m["replied"] for m in result.train_metrics_clientapp.values()] == [3] * 4


class Wrapper(Strategy):
    """A strategy of somebody else's around one of ours, which passes everything on."""

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner

    def configure_train(self, *given: Any) -> Any:
        return self.inner.configure_train(*given)

    def aggregate_train(self, *given: Any) -> Any:
        return self.inner.aggregate_train(*given)

    def configure_evaluate(self, *given: Any) -> Any:
        return self.inner.configure_evaluate(*given)

    def aggregate_evaluate(self, *given: Any) -> Any:
        return self.inner.aggregate_evaluate(*given)

    def summary(self) -> None:
        self.inner.summary()


def by_start(strategy: Any, grid: Grid, rounds: int) -> Any:
    return strategy.start(grid, num_rounds=rounds)


def by_flower(strategy: Any, grid: Grid, rounds: int) -> Any:
    return Strategy.start(strategy, grid, ArrayRecord(), num_rounds=rounds, timeout=60)


def by_wrapper(strategy: Any, grid: Grid, rounds: int) -> Any:
    return Wrapper(strategy).start(grid, ArrayRecord(), num_rounds=rounds, timeout=60)


MAKE: dict[str, Callable[..., Any]] = {
    "dp-fts-de": lambda **o: DPFTSDE(epsilon=5.0, releases="all", noise_seed=7, **QUICK, **o),
    "not private": lambda **o: DPFTSDE(**QUICK, **o),
    "fts": lambda **o: FTS(**QUICK, **o),
    "fed-pne": lambda **o: FedPNE(budget=40, **o),
    "ldp": lambda **o: LDPBO(learner="uniform", budget=6, features=10, **o),
}


class TestFlowersOwnLoop:
    @pytest.mark.parametrize("loop", [by_flower, by_wrapper])
    @pytest.mark.parametrize("name", MAKE)
    def test_comes_to_the_same_result(self, name: str, loop: Any, tmp_path: Path) -> None:
        def run(how: Any, folder: str) -> tuple[Any, Any, dict[int, Any]]:
            grid = InProcessGrid(client_of_the_page("handler"), 3)
            strategy = MAKE[name](
                space=SPACE, num_agents=3, num_rounds=4, run_dir=tmp_path / folder, seed=5
            )
            rounds = 4 if name in ("dp-fts-de", "not private", "fts") else 30
            given = how(strategy, grid, rounds)
            agents = agents_of(run_directory(name_of_run(tmp_path / folder)))
            histories = read_evaluations(agents, 3)
            made = [[(e.round, e.unit, e.score) for e in h] for h in histories]
            return strategy, made, given.train_metrics_clientapp

        ours, mine, my_metrics = run(by_start, "ours")
        theirs, its, its_metrics = run(loop, "theirs")
        assert mine == its
        assert ours.result.recommended == theirs.result.recommended
        assert ours.result.rounds == theirs.result.rounds
        assert ours.result.privacy == theirs.result.privacy
        assert theirs.result.details.complete
        one, other = (RunDirectory(tmp_path / f).releases.read() for f in ("ours", "theirs"))
        assert [r.round for r in one] == [r.round for r in other]
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a.vector, b.vector)
        asked = {k: m["asked"] for k, m in its_metrics.items() if k in my_metrics}
        assert asked
        assert all(count == 3 or name == "ldp" for count in asked.values())

    def test_registers_agents_by_itself(self) -> None:
        grid = InProcessGrid(client_of_the_page("client"), 2)
        strategy = FTS(space=SPACE, **QUICK)  # as many as there are
        messages = strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid)
        assert isinstance(messages, list)
        assert len(messages) == strategy.parameters.agents == 2

    def test_releases_and_charges_nothing_when_nobody_answers(self, tmp_path: Path) -> None:
        class Silent(InProcessGrid):
            def send_and_receive(self, messages: Any, *, timeout: Any = None) -> Any:
                super().push_messages(messages)
                return []

        grid = Silent(client_of_the_page("handler"), 2)
        strategy = DPFTSDE(
            space=SPACE, epsilon=5.0, releases="all", num_rounds=3, num_agents=2, run_dir=tmp_path,
            timeout=1.0, **QUICK,  # a round lasts its whole timeout while connected nodes are late
        )  # fmt: skip
        result = Strategy.start(strategy, grid, ArrayRecord(), num_rounds=3)
        ledger = (tmp_path / "ledger.jsonl").read_text()
        assert ledger.count('"event"') == 1  # the exploring round, which was answered
        assert strategy.server.round == 1
        assert result.train_metrics_clientapp == {}
        assert "no agent replied in 3 rounds in a row" in strategy.stopped


class TestStart:
    def start(self, strategy: Any, *arguments: Any, **given: Any) -> Any:
        return strategy.start(InProcessGrid(client_of_the_page("handler"), 2), *arguments, **given)

    @pytest.mark.parametrize("rounds", [0, 1, 3])
    def test_honours_the_number_of_rounds(self, rounds: int) -> None:
        result = self.start(FTS(space=SPACE, num_agents=2, **QUICK), num_rounds=rounds)
        assert result.rounds == rounds
        assert [*result.train_metrics_clientapp] == [*range(rounds + 1)]
        assert result.details.complete

    def test_a_budget_may_be_cut_by_the_number_of_rounds(self) -> None:
        result = self.start(FedPNE(space=SPACE, num_agents=2, budget=400), num_rounds=2)
        assert result.rounds == 2
        assert not result.details.complete
        assert result.details.stopped_early == "num_rounds: 2 rounds were made"
        whole = self.start(FedPNE(space=SPACE, num_agents=2, budget=400))
        assert whole.details.complete

    def test_honours_the_timeout(self) -> None:
        grid = InProcessGrid(client_of_the_page("handler"), 2)
        grid.online = set()
        with pytest.raises(TimeoutError, match=r"no node connected in 0\.2 s"):
            FTS(space=SPACE, **QUICK).start(grid, num_rounds=1, timeout=0.2)
        with pytest.raises(TimeoutError, match=r"none of 2 agents registered in 0\.2 s"):
            FTS(space=SPACE, num_agents=2, **QUICK).start(grid, num_rounds=1, timeout=0.2)

    @pytest.mark.parametrize(
        "given",
        [
            {"initial_arrays": ArrayRecord([np.zeros(2)])},
            {"train_config": ConfigRecord({"lr": 0.1})},
            {"evaluate_config": ConfigRecord({"lr": 0.1})},
            {"evaluate_fn": lambda number, arrays: None},
        ],
    )
    def test_arguments_without_a_meaning_are_refused(self, given: dict[str, Any]) -> None:
        (name,) = given
        with pytest.raises(SettingsError, match=rf"`{name}` must be left out of FTS\.start"):
            self.start(FTS(space=SPACE, num_agents=2, **QUICK), **given)

    def test_empty_ones_are_not(self) -> None:
        result = self.start(
            FTS(space=SPACE, num_agents=2, **QUICK), ArrayRecord(), 1, 60, ConfigRecord()
        )
        assert isinstance(result, Result)
        assert result.rounds == 1

    def test_takes_what_flowers_start_takes(self) -> None:
        ours, theirs = (inspect.signature(c.start).parameters for c in (DPFTSDE, Strategy))
        assert [*ours] == [*theirs]

    def test_goes_on_where_its_directory_says(self, tmp_path: Path) -> None:
        class Crash(flwr_fbo.Callback):
            def on_round(self, run: Any, report: Any) -> None:
                if report.round == 2:
                    raise ArithmeticError("the power went")

        def make(**more: Any) -> DPFTSDE:
            return DPFTSDE(
                space=SPACE, epsilon=5.0, num_agents=2, run_dir=tmp_path, **QUICK, **more
            )

        grid = InProcessGrid(client_of_the_page("handler"), 2)
        with pytest.raises(ArithmeticError):
            make(callbacks=[Crash()]).start(grid, num_rounds=4)
        result = make().start(grid, num_rounds=4)
        assert [*result.train_metrics_clientapp] == [3, 4]
        assert result.details is not None
        assert result.details.complete
        # More rounds than were planned release nothing more, however often the run is continued.
        planned = json.loads((tmp_path / "config.json").read_text())["rounds"]
        charged = (tmp_path / "ledger.jsonl").read_text().count('"event"')
        for rounds in (6, 6, 8):
            longer = make().start(grid, num_rounds=rounds)
            assert longer.rounds == rounds > planned
        assert (tmp_path / "ledger.jsonl").read_text().count('"event"') == charged
        with pytest.raises(SettingsError, match="`rounds` must be >= 8"):
            make().start(grid, num_rounds=4)
        with pytest.raises(SettingsError, match=r"`epsilon` must stay 5\.0"):
            DPFTSDE(space=SPACE, epsilon=9.0, num_agents=2, run_dir=tmp_path).start(
                grid, num_rounds=8
            )
        with pytest.raises(SettingsError, match="`agents` must stay 2"):
            DPFTSDE(space=SPACE, num_agents=3, run_dir=tmp_path).start(grid, num_rounds=8)
        with pytest.raises(SettingsError, match="`space` must stay"):
            DPFTSDE(space={"x": Float(0, 2)}, num_agents=2, run_dir=tmp_path).start(
                grid, num_rounds=8
            )

    def test_runs_in_folders_of_one_name_share_no_journals(self, tmp_path: Path) -> None:
        grid = InProcessGrid(client_of_the_page("handler"), 1)
        for parent in ("one", "two"):
            FTS(space=SPACE, num_agents=1, run_dir=tmp_path / parent / "run", **QUICK).start(
                grid, num_rounds=1
            )
            agents = agents_of(run_directory(name_of_run(tmp_path / parent / "run")))
            assert [len(h) for h in read_evaluations(agents, 1)] == [3]


class TestSignatures:
    CLASSES = (DPFTSDE, FTS, FedPNE, LDPBO, LocalTS, flwr_fbo.RandomSearch)

    @pytest.mark.parametrize("kind", CLASSES)
    def test_are_written_out_and_documented(self, kind: Any) -> None:
        parameters = inspect.signature(kind).parameters
        assert {"space", "num_agents", "seed", "run_dir", "callbacks"} <= set(parameters)
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
        assert all(p.default is not p.empty and p.annotation for p in parameters.values())
        section = kind.__doc__.split("Parameters\n    ----------\n")[1].split("\n\n")[0]
        documented = re.findall(r"^    (\w+) : ", section, flags=re.MULTILINE)
        assert documented == [*parameters]

    @pytest.mark.parametrize("kind", CLASSES)
    def test_a_typo_names_the_class_and_the_nearest(self, kind: Any) -> None:
        with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) has no argument `num_agent`; "
                                            "did you mean `num_agents`"):  # fmt: skip
            kind(num_agent=3)
        with pytest.raises(ArgumentError, match="takes keyword arguments only"):
            kind(SPACE)

    @pytest.mark.parametrize(
        ("given", "fault"),
        [
            ({"num_agents": 0}, "`num_agents` must be an integer >= 1, but got 0"),
            ({"num_rounds": 2.5}, "`num_rounds` must be an integer >= 0"),
            ({"seed": -1}, "`seed` must be an integer >= 0"),
            ({"timeout": 0}, "`timeout` must be a number > 0"),
            ({"round_quorum": 1.5}, r"`round_quorum` must be a number in \(0, 1\]"),
            ({"answer_within": -1}, "`answer_within` must be a number >= 0"),
            ({"epsilon": -1}, "`epsilon` must be > 0, but got -1"),
            ({"space": {}}, "a space must have at least one parameter"),
        ],
    )
    def test_bad_values_are_refused_at_once(self, given: dict[str, Any], fault: str) -> None:
        with pytest.raises(ValueError, match=fault):
            DPFTSDE(**given)

    def test_subclasses_are_named_as_the_user_wrote_them(self) -> None:
        class Mine(DPFTSDE):
            pass

        with pytest.raises(TypeError, match=r"Mine\(\) has no argument `epsilom`; did you mean"):
            Mine(epsilom=5.0)  # type: ignore[call-arg]

    def test_are_those_that_the_script_writes(self) -> None:
        import subprocess

        command = [sys.executable, "scripts/signatures.py", "--check"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


APP = """
import flwr_fbo
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr_fbo import DPFTSDE, Float, TuningClient, task, with_tuning

SPACE = {"x": Float(0.0, 1.0), "y": Float(1e-3, 1e3, log=True)}


@task(space=SPACE, metric="height", score_range=(0.0, 1.0))
def tuned(params, partition):
    return 1.0 - (params["x"] - 0.4 - 0.02 * partition.index) ** 2
"""

SERVER = '''
import time

from door_app.common import *

app = ServerApp()


def trained(grid, number):
    """The app's own training: its replies say how many there were."""
    messages = [
        Message(RecordDict({"m": MetricRecord({"n": number})}), node, "train")
        for node in grid.get_node_ids()
    ]
    replies = list(grid.send_and_receive(messages, timeout=900))
    print("trained", number, sum(r.content["m"]["n"] for r in replies if r.has_content()))


@app.main()
def main(grid: Grid, context: Context) -> None:
    while len(list(grid.get_node_ids())) < 2:  # a deployment's nodes connect one by one
        time.sleep(0.1)
    trained(grid, 1)
    strategy = DPFTSDE(space=SPACE, epsilon=5.0, num_agents=2, initial_points=2, features=20)
    result = strategy.start(grid, num_rounds=2)
    print("recommended", sorted(result.recommended), result.privacy)
    print("epsilon", result.details.epsilon, "failures", result.details.failures)
    trained(grid, 2)
'''

HANDLERS = """
from door_app.common import *

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    assert set(message.content) == {"m"}
    return Message(message.content, reply_to=message)


"""

CLASSICAL = """
from door_app.common import *


"""

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "door-app"
version = "0.1.0"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["door_app"]

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "door_app.server:app"
clientapp = "door_app.{client}:app"

[tool.flwr.app.config]
"""


def an_app(folder: Path, client: str) -> Path:
    """The page's snippets as an app of somebody else's."""
    root = folder / "app"
    (root / "door_app").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT.replace("{client}", client))
    files = {
        "__init__": "", "common": APP, "server": SERVER,
        "handlers": HANDLERS + DOORS["handler"], "classical": CLASSICAL + DOORS["client"],
    }  # fmt: skip
    for name, text in files.items():
        (root / "door_app" / f"{name}.py").write_text(textwrap.dedent(text))
    return root


@pytest.mark.slow
@pytest.mark.parametrize("client", ["handlers", "classical"])
class TestWithFlowersProcesses:
    def check(self, output: str, client: str) -> None:
        assert "recommended ['x', 'y'] epsilon" in output
        assert "failures 0" in output
        # A client of ours alone knows no training; an app's own handler goes on training.
        answers = (2, 4) if client == "handlers" else (0, 0)
        assert f"trained 1 {answers[0]}" in output
        assert f"trained 2 {answers[1]}" in output

    def test_in_a_simulation(self, client: str, tmp_path: Path) -> None:
        app = an_app(tmp_path, client)
        (port,) = free_ports(1)
        with flower(tmp_path) as running:
            running.start(
                "flower-superlink", "--insecure", "--disable-runtime-dependency-installation",
                "--simulation", "--port", str(port), port=port,
            )  # fmt: skip
            running.connect("sim", port)
            output = running.run(
                "sim", "--federation-config", "num-supernodes=2 client-resources-num-cpus=1",
                app=app,
            )  # fmt: skip
            assert running.status("sim").startswith("finished:completed"), output
            self.check(output, client)

    def test_in_a_deployment(self, client: str, tmp_path: Path) -> None:
        app = an_app(tmp_path, client)
        (port, *node_ports) = free_ports(3)
        with flower(tmp_path) as running:
            running.superlink(port)
            for i, node_port in enumerate(node_ports):
                running.supernode(port, node_port, f"partition-id={i} num-partitions=2")
            output = running.run("dep", app=app)
            assert running.status("dep").startswith("finished:completed"), output
            self.check(output, client)
            (directory,) = running.run_directories()
            assert [len(h) for h in read_evaluations(directory / "agents", 2)] == [4, 4]
