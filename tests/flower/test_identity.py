"""An agent belongs to its owner: nobody else takes its place, and its owner can always return."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp

from flwr_fbo import DPFTSDE, answer
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal import journal_path
from flwr_fbo.runs.files.owner_secret import DIGITS, owner_secret, secret_path
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.registration import AppRefusedError

from .conftest import SPACE, hill

AGENTS, ROUNDS = 3, 6


class Parties(InProcessGrid):
    """Nodes with a disk for each owner, which a new node of the same owner finds again."""

    def __init__(self, folder: Path, first_node: int = 100) -> None:
        app = ClientApp()
        self.disks: dict[int, Path] = {}

        @app.train("fbo")
        def tune(message: Message, context: Context) -> Message:
            return answer(message, context, hill, self.disks[context.node_id])

        super().__init__(app, 0, run_id=7)
        self._folder = folder
        for party in range(AGENTS):
            self.add(first_node + party, party, f"owner-{party}")

    def add(self, node: int, partition: int, owner: str) -> None:
        """A node comes online; it claims a partition, and has its owner's disk."""
        config = UserConfig({"partition-id": partition, "num-partitions": AGENTS})
        self.contexts[node] = Context(7, node, config, RecordDict(), UserConfig({}))
        self.disks[node] = self._folder / owner
        self.online.add(node)

    def restart(self, node: int, partition: int) -> None:
        """The same node, so the same key, with another number and an empty memory."""
        owner = self.disks[node].name
        self.add(node, partition, owner)


class Run:
    """One private run, round by round."""

    def __init__(self, folder: Path, grid: Parties, **options: Any) -> None:
        directory = RunDirectory(folder / "server")
        directory.root.mkdir(exist_ok=True)
        self.grid, self.root = grid, directory.root
        self.strategy: FBOStrategy = DPFTSDE(
            epsilon=50.0, initial_points=1, features=8, refit_every=0, releases="all", regions=1,
            **options,
        )  # fmt: skip
        plan = RunParameters(SPACE, AGENTS, ROUNDS, timeout=0.5, ledger=directory.ledger)
        self.strategy.open_run(plan, directory.store)

    def round(self) -> list[int]:
        """The numbers of the agents that reply in a round."""
        self.strategy._run_round(self.grid)
        return self.strategy.roster.present

    def close(self) -> None:
        self.strategy.server.close_files()


@pytest.mark.parametrize("key", ["a key of its own", "the key of party 0"])
def test_a_stranger_does_not_take_the_place_of_an_agent_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    grid = Parties(tmp_path)
    run = Run(tmp_path, grid)
    assert run.round() == [0, 1, 2]
    grid.online.remove(101)  # party 1 is briefly away
    assert run.round() == [0, 2]
    if key == "the key of party 0":
        grid.restart(100, partition=1)
        grid.online.remove(100)  # the server sees the node go and come back
        assert run.round() == [2]
        grid.online.add(100)
        refusal = "node 100 is refused: it is the node of agent 0, and a node cannot be two agents"
    else:
        grid.add(200, 1, "stranger")
        refusal = "node 200 is refused: agent 1 is another owner's"
    before = caplog.text.count(refusal)
    present = run.round()
    assert caplog.text.count(refusal) == before + 1
    assert 1 not in present
    grid.online.add(101)  # and its owner is not locked out
    assert 1 in run.round()
    assert run.strategy.roster.node(1) == 101
    assert run.strategy.parameters.agents == run.strategy.roster.size == AGENTS
    assert not secret_path(journal_path(tmp_path / "server", 1)).exists()
    run.close()


def test_a_stranger_cannot_push_out_an_agent_that_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = Parties(tmp_path)
    run = Run(tmp_path, grid)
    run.round()
    grid.add(200, 1, "stranger")
    assert run.round() == [0, 1, 2]
    assert run.strategy.roster.node(1) == 101
    assert "node 200 is refused: agent 1 is another owner's" in caplog.text
    run.close()


def test_an_owner_returns_from_another_node_with_its_disk(tmp_path: Path) -> None:
    grid = Parties(tmp_path)
    run = Run(tmp_path, grid)
    run.round()
    grid.online.remove(101)
    grid.add(300, 1, "owner-1")
    assert run.round() == [0, 1, 2]
    assert run.strategy.roster.node(1) == 300
    run.close()


@pytest.mark.parametrize("first_node", [100, 500])
def test_owners_are_known_in_a_resumed_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first_node: int
) -> None:
    """Also where the SuperLink forgot its nodes, and all of them have other numbers."""
    first = Run(tmp_path, Parties(tmp_path))
    first.round()
    first.close()
    grid = Parties(tmp_path, first_node)
    grid.online.remove(first_node + 1)
    grid.add(200, 1, "stranger")
    again = Run(tmp_path, grid)
    assert again.round() == [0, 2]
    assert "node 200 is refused: agent 1 is another owner's" in caplog.text
    grid.online.add(first_node + 1)
    assert again.round() == [0, 1, 2]
    again.close()


def test_the_server_keeps_and_logs_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    grid = Parties(tmp_path)
    run = Run(tmp_path, grid)
    run.round()
    grid.add(200, 1, "stranger")
    run.round()
    run.close()
    secrets = [
        owner_secret(
            journal_path(grid.disks[node], grid.contexts[node].node_config["partition-id"])
        )
        for node in grid.contexts
    ]
    assert len(set(secrets)) == AGENTS + 1
    texts = [path.read_bytes() for path in run.root.rglob("*") if path.is_file()]
    assert texts
    for secret in secrets:
        assert not any(secret.encode() in text for text in [*texts, caplog.text.encode()])


def test_the_operator_fixes_the_nodes_before_anybody_has_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without `node-ids` the first claim decides; with them, party 0's key never is agent 1."""
    grid = Parties(tmp_path)
    grid.online -= {101, 102}
    grid.restart(100, partition=1)
    grid.add(102, 2, "owner-2")
    run = Run(tmp_path, grid, node_ids=[100, 101, 102])
    assert run.round() == [2]
    assert "node 100 is refused: the node of agent 1 is 101" in caplog.text
    grid.online.add(101)
    assert run.round() == [1, 2]
    run.close()


@pytest.mark.parametrize("text", ["a", "1;2", "-1", "1.5", "²"])
def test_node_ids_are_numbers(text: str) -> None:
    with pytest.raises(SettingsError, match="`node-ids` must be numbers of nodes"):
        RunSpec.from_mapping({"task": "synthetic", "node-ids": text})


def test_every_agent_has_one_node() -> None:
    with pytest.raises(SettingsError, match="one node for each of 3 agents, but got 2"):
        DPFTSDE(num_agents=3, node_ids=[5, 6])
    with pytest.raises(SettingsError, match="must be different integers"):
        DPFTSDE(node_ids=[5, 5])
    spec = RunSpec.from_mapping({"task": "synthetic", "agents": 2, "node-ids": "17, 5"})
    assert FBOStrategy.for_spec(spec).options.node_ids == (17, 5)


# -- the secret of an owner ----------------------------------------------------------------------


def test_a_secret_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    journal = tmp_path / "agents" / "agent-0003.jsonl"
    secret = owner_secret(journal)
    assert len(secret) == DIGITS
    assert int(secret, 16) > 0
    assert owner_secret(journal) == secret
    assert stat.S_IMODE(secret_path(journal).stat().st_mode) == 0o600
    assert owner_secret(tmp_path / "agents" / "agent-0004.jsonl") != secret
    assert {p.name for p in journal.parent.iterdir()} == {"agent-0003.secret", "agent-0004.secret"}


@pytest.mark.parametrize("content", [b"", b"abc\n", b"\xff" * 64, b"g.." * 30])
def test_a_damaged_secret_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    """Another secret would lock the owner out; a declined setup says what to do."""
    journal = tmp_path / "agent-0003.jsonl"
    secret_path(journal).write_bytes(content)
    with pytest.raises(RunDirectoryError, match="must hold 64 hexadecimal digits, but is damaged"):
        owner_secret(journal)
    assert secret_path(journal).read_bytes() == content


# -- nodes that do not run the app ---------------------------------------------------------------


class Choosy(Parties):
    """Nodes some of which run only apps that are signed; Flower replies in their place."""

    choosy: frozenset[int] = frozenset()

    def _call(self, message: Message, context: Context) -> Message:
        if context.node_id in self.choosy:
            return Message(Error(7, "The FAB could not be verified."), reply_to=message)
        return super()._call(message, context)


def test_a_run_whose_app_nobody_runs_ends_at_once_and_says_why(tmp_path: Path) -> None:
    grid = Choosy(tmp_path)
    grid.choosy = frozenset(grid.online)
    run = Run(tmp_path, grid)
    with pytest.raises(AppRefusedError, match="none of 3 connected nodes runs this app"):
        run.strategy.run(grid)


def test_a_node_that_refuses_the_app_does_not_hold_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = Choosy(tmp_path)
    grid.choosy = frozenset({101})
    run = Run(tmp_path, grid)
    run.strategy.run(grid)
    assert run.strategy.roster.present == [0, 2]
    assert "node 101 refuses the app: no key that its owner trusts" in caplog.text
    assert "takes no part in tuning" not in caplog.text
