"""Runs with `aggregation=secure`: the same releases, charges, dropouts, crashes and owners."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import Message
from flwr.serverapp.strategy import Strategy
from typer.testing import CliRunner

from flwr_fbo import DPFTSDE, FedPNE, wire
from flwr_fbo.cli.main import app
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.clients.secure import SecretFile
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.secure_sum import KINDS
from flwr_fbo.privacy.ledger import Ledger
from flwr_fbo.privacy.secure.identity import Identity
from flwr_fbo.privacy.secure.terms import SecureSumError
from flwr_fbo.privacy.statement import PrivacyStatement
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.engine import run
from flwr_fbo.simulation.in_process_grid import InProcessGrid

from .conftest import SPACE, Federation, hill

QUICK = {
    "epsilon": 6.0, "features": 12, "regions": 2, "releases": "0,1,2", "initial_points": 3,
    "refit_every": 0, "accountant": "rdp",
}  # fmt: skip


class Watched(InProcessGrid):
    """A grid that notes every leg, and whose nodes can fall silent before a leg."""

    silent: Callable[[str, int], bool] = staticmethod(lambda kind, node: False)
    before: Callable[[str], None] = staticmethod(lambda kind: None)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        kind = str(messages[0].content[wire.CONFIG]["kind"]) if messages else ""
        self.__dict__.setdefault("kinds", []).append(kind)
        self.before(kind)
        online = set(self.online)
        self.online -= {n for n in online if self.silent(kind, n - 2)}
        try:
            return super().push_messages(messages)
        finally:
            self.online = online

    def _call(self, message: Message, context: Any) -> Message:
        reply = super()._call(message, context)
        kind = str(message.content[wire.CONFIG]["kind"])
        self.__dict__.setdefault("answers", []).append((kind, context.node_id - 2, reply))
        return reply


def federation(folder: Path, agents: int = 4, plan: dict[str, Any] | None = None, **given: Any):
    strategy = DPFTSDE(**{**QUICK, "aggregation": "secure", **given})  # type: ignore[arg-type]
    made = Federation(strategy, folder / "run", agents, hill, **(plan or {}))
    made.grid = Watched(simulated_client_app(hill, made.directory.agents), agents)
    return made


def without_noise() -> Any:
    def zeros(d: Any, s: float, count: int, e: Any) -> np.ndarray:
        return np.zeros(count, dtype=np.int64)

    return mock.patch("flwr_fbo.privacy.noise.draw_rounded", zeros)


def vectors(made: Federation) -> list[np.ndarray]:
    return [r.vector for r in made.strategy.server.released.releases]  # type: ignore[attr-defined]


# ------------------------------------------------------------------ the sum


@pytest.mark.parametrize("lost", [None, 3])
def test_releases_are_those_of_a_trusted_server_bit_for_bit(lost: int | None, tmp_path: Path):
    # Without the noise, both sums are exact. Agent `lost` is silent whenever it is asked.
    found = {}
    for aggregation in ("secure", "central"):
        made = federation(tmp_path / aggregation, aggregation=aggregation, advice="average")
        made.grid.silent = lambda kind, n: n == lost and kind not in ("setup", "probe")
        with without_noise():
            made.start()
        found[aggregation] = vectors(made)
    assert len(found["secure"]) == 3
    for secure, central in zip(found["secure"], found["central"], strict=True):
        assert np.any(central != 0)
        np.testing.assert_array_equal(secure, central)


def test_rounds_without_a_release_have_no_legs_and_all_rounds_one_report(tmp_path: Path):
    made = federation(tmp_path)
    made.start()
    legs = [kind for kind in made.grid.kinds if kind in KINDS]
    assert legs == list(KINDS) * 3
    assert [r.round for r in made.strategy.reports] == [0, 1, 2, 3, 4]
    assert all(r.asked == r.replied == 4 for r in made.strategy.reports)
    spent = [r.privacy.spent for r in made.strategy.reports]
    assert spent == sorted(spent)
    assert spent[2] == spent[4] == made.strategy.server.statement().spent
    assert made.strategy.server.statement().spent <= 6.0


def test_the_noise_of_a_release_is_noted_with_those_that_survived(tmp_path: Path):
    made = federation(tmp_path, 6)
    made.grid.silent = lambda kind, n: n == 5 and kind == "secure-masked"
    made.start()
    server = made.strategy.server
    charged = server.aggregation.deviation(0)
    honest = server.secure_plan.threshold - server.secure_plan.colluding
    for release in server.released.releases:
        assert release.deviation == pytest.approx(charged * math.sqrt(5 / honest))


def test_a_masked_vector_looks_like_no_vector(tmp_path: Path):
    made = federation(tmp_path)
    with without_noise():
        made.start()
    masked = [
        wire._decode_array(a.data, (2 * 12,), "<u8")
        for kind, _, reply in made.grid.answers if kind == "secure-masked"
        for a in reply.content[wire.REPLY_PARAMETERS].values()
    ]  # fmt: skip
    assert len(masked) == 12
    words = np.concatenate(masked)
    assert len(np.unique(words)) == words.size
    # 288 uniform words: their mean over 2^64 is .5 +- .017, at five standard errors.
    assert abs(float((words / 2.0**64).mean()) - 0.5) < 5 / math.sqrt(12 * words.size)


@pytest.mark.parametrize("answer_within", [None, 30.0])
def test_flowers_own_loop_and_early_answers_have_the_same_releases(
    answer_within: float | None, tmp_path: Path
):
    strategy = DPFTSDE(
        space=SPACE, num_agents=4, num_rounds=3, run_dir=tmp_path / "run", aggregation="secure",
        timeout=5.0, **QUICK,  # type: ignore[arg-type]
    )  # fmt: skip
    grid = Watched(simulated_client_app(hill, tmp_path / "run" / "agents"), 4)
    if answer_within is None:
        Strategy.start(strategy, grid, initial_arrays=wire.ArrayRecord(), num_rounds=3)
    else:
        strategy.start(grid)
    assert strategy.result is not None
    assert strategy.result.privacy.trust == "secure-sum"
    releases = RunDirectory(tmp_path / "run").releases.read()
    assert [r.round for r in releases] == [0, 1, 2]


# ------------------------------------------------------------------ dropouts and charges


def events(folder: Path) -> int:
    lines = (folder / "run" / "ledger.jsonl").read_text().splitlines()
    return len(lines) - 1


def test_the_charge_is_on_the_disk_before_any_masked_vector_is_asked_for(tmp_path: Path):
    made = federation(tmp_path)
    at: dict[str, list[int]] = {kind: [] for kind in KINDS}
    made.grid.before = lambda kind: at[kind].append(events(tmp_path)) if kind in at else None
    made.start()
    assert at["secure-keys"] == at["secure-shares"] == [0, 1, 2]
    assert at["secure-masked"] == at["secure-confirm"] == at["secure-open"] == [1, 2, 3]


@pytest.mark.parametrize("leg", range(5))
def test_one_that_drops_out_before_a_leg_is_left_out_and_comes_back(leg: int, tmp_path: Path):
    made = federation(tmp_path)
    seen: Counter[str] = Counter()

    def silent(kind: str, n: int) -> bool:
        return n == 2 and kind == KINDS[leg] and seen[kind] == 1

    made.grid.silent = silent
    made.grid.before = lambda kind: seen.update([kind])
    made.start()
    assert len(vectors(made)) == 3
    assert events(tmp_path) == 3
    survivors = [r.deviation for r in made.strategy.server.released.releases]
    others = {n for kind, n, _ in made.grid.answers if kind == "secure-open"}
    assert others == {0, 1, 2, 3}
    assert (survivors[0] < survivors[1]) == (leg < 3)  # three parties' noise, or four parties'


@pytest.mark.parametrize("leg", range(5))
def test_with_too_few_survivors_nothing_is_opened_and_the_charge_stays(leg: int, tmp_path: Path):
    made = federation(tmp_path)
    seen: Counter[str] = Counter()
    made.grid.silent = lambda kind, n: n in (1, 2) and kind == KINDS[leg] and seen[kind] == 1
    made.grid.before = lambda kind: seen.update([kind])
    made.start()
    rounds = [r.round for r in made.strategy.server.released.releases]
    first = seen["secure-keys"]
    if leg < 2:  # nothing was charged: the next round makes up for it
        assert events(tmp_path) == 3
        assert first == 4
        assert rounds == [1, 2, 3]
    else:
        assert events(tmp_path) == 3
        assert first == 3
        assert rounds == [1, 2]
    assert len(made.strategy.reports) == 5
    assert made.strategy.server.statement().spent <= 6.0


def test_an_agent_sends_no_more_masked_vectors_than_were_planned(tmp_path: Path):
    made = federation(tmp_path)
    made.start()
    state = json.loads((made.directory.agents / "agent-0001.secure").read_text())
    assert state["masked"] == 3
    assert (made.directory.agents / "agent-0001.secure").stat().st_mode & 0o777 == 0o600
    # A server that has forgotten its ledger asks once more.
    server = made.strategy.server
    server.round, made.grid.answers = 1, []
    server.budget.ledger._events = ()
    server.budget.would_exceed = lambda event: False
    server.budget.charge = lambda event: None
    made.strategy.rounds.run_one(made.grid)
    replies = [reply for kind, _, reply in made.grid.answers if kind == "secure-masked"]
    assert len(replies) == 4
    words = {str(r.content[wire.REPLY_METRICS]["declined"]).strip() for r in replies}
    assert words == {"budget"}


@contextlib.contextmanager
def flushed_names() -> Iterator[list[str]]:
    """The names of the files of secrets that are flushed to the disk."""
    flushed: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        if name.endswith(".secure.tmp"):
            flushed.append(name)
        real(descriptor)

    with mock.patch("os.fsync", fsync):
        yield flushed


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_power_cut_must_not_undo_is_flushed_to_the_disk(tmp_path: Path):
    made = federation(tmp_path)
    counts: dict[str, list[int]] = {}
    with flushed_names() as flushed:
        made.grid.before = lambda kind: counts.setdefault(kind, []).append(len(flushed))
        made.start()
    # Four agents in each of three sums: the masks' secrets are gone, and the list is confirmed.
    assert len(flushed) == 24
    first = {kind: counts[kind][0] for kind in KINDS}
    assert list(first.values()) == [0, 0, 0, 4, 8]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_simulation_flushes_no_secrets_to_the_disk(tmp_path: Path):
    # One machine holds what all parties and the server know.
    spec = RunSpec.from_mapping(
        {"task": "garland", "agents": 4, "rounds": 2, "epsilon": 6.0, "aggregation": "secure",
         "features": 20, "releases": "0"}
    )  # fmt: skip
    directory = RunDirectory(tmp_path / "run").create(spec.to_mapping())
    with flushed_names() as flushed:
        run(spec, directory, "inline")
    assert flushed == []
    assert (directory.agents / "agent-0000.secure").exists()


@pytest.mark.parametrize("signed", [False, True])
def test_room_for_signatures_is_relayed_only_where_somebody_signs(signed: bool, tmp_path: Path):
    made = federation(tmp_path)
    if signed:  # by one party; the others cannot check it, and need not
        path = keys_of(tmp_path / "keys", 1)[0]
        made.grid.contexts[2].node_config |= {"secure-key": str(path)}
    sizes = set()
    real = made.grid.push_messages

    def push(messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        for m in messages:
            if m.content[wire.CONFIG]["kind"] == "secure-shares":
                sizes.update(len(a.data) for a in m.content[wire.PARAMETERS].values())
        return real(messages)

    made.grid.push_messages = push  # type: ignore[method-assign]
    made.start()
    assert len(vectors(made)) == 3
    # Three neighbours' numbers and keys, with a header of each array.
    assert max(sizes) - 3 * (64 + 256 * signed) < 200


class Crash(BaseException):
    """The server's process ends."""


@pytest.mark.parametrize("leg", range(5))
def test_a_crash_in_any_leg_repeats_the_sum_with_other_masks(leg: int, tmp_path: Path):
    made = federation(tmp_path)
    seen: Counter[str] = Counter()

    def crash(kind: str) -> None:
        seen.update([kind])
        if kind == KINDS[leg] and seen[kind] == 2:
            raise Crash

    made.grid.before = crash
    with pytest.raises(Crash):
        made.start()
    before = events(tmp_path)
    assert before == (2 if leg >= 2 else 1)
    # A message that the crashed server sent arrives late, after the new sum has begun.
    late = [a for a in made.grid.answers if a[0] == "secure-keys"]

    again = federation(tmp_path)
    again.grid.contexts = made.grid.contexts
    again.start()
    assert events(tmp_path) == 3  # what a crash charged twice, another round does without
    expected = [0, 1, 2] if leg < 2 else [0, 2]
    releases = again.strategy.server.released.releases
    assert [r.round for r in releases] == expected
    keys = [
        a.data
        for kind, _, reply in (*late, *again.grid.answers) if kind == "secure-keys"
        for a in reply.content[wire.REPLY_PARAMETERS].values()
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    state = json.loads((again.directory.agents / "agent-0000.secure").read_text())
    assert state["masked"] <= 3


def test_a_sum_that_no_honest_parties_could_have_made_is_dropped(tmp_path: Path, caplog: Any):
    made = federation(tmp_path)
    from flwr_fbo.privacy.secure.party import Party

    real = Party.masked

    def lying(self: Party, sealed: Any, vector: Any) -> Any:
        masked = real(self, sealed, vector)
        return masked + np.uint64(2**45) if self.number == 3 else masked

    with mock.patch.object(Party, "masked", lying):
        made.start()
    assert vectors(made) == []
    assert events(tmp_path) == 3
    assert "longer than 4 clipped vectors" in caplog.text


# ------------------------------------------------------------------ owners


def test_a_node_that_accepts_secure_sums_only_sends_no_vector(tmp_path: Path):
    for aggregation, expected in (("central", {"refused"}), ("secure", {""})):
        made = federation(tmp_path / aggregation, aggregation=aggregation)
        made.grid.contexts[3].node_config["secure-only"] = True
        made.start()
        words = {
            str(reply.content[wire.REPLY_METRICS]["declined"]).strip()
            for kind, n, reply in made.grid.answers if n == 1 and kind == "explore"
        }  # fmt: skip
        assert words == expected


def test_an_owners_limit_pays_for_masked_vectors(tmp_path: Path):
    made = federation(tmp_path)
    made.grid.contexts[3].node_config |= {
        "epsilon-limit": 9.0, "budget-file": str(tmp_path / "owner.jsonl"),
    }  # fmt: skip
    made.start()
    # z is made for epsilon 6 of three releases; the owner counts for any two vectors, so z / 2.
    z = made.strategy.server.noise_multiplier
    header = json.loads((tmp_path / "owner.jsonl").read_text().splitlines()[0])["header"]
    with Ledger.resume(tmp_path / "owner.jsonl", header) as ledger:
        assert 1 <= len(ledger.events) < 3
        assert {e.noise_multiplier for e in ledger.events} == {z / 2}
    assert len(vectors(made)) == 3  # the others are enough
    declined = [
        str(reply.content[wire.REPLY_METRICS]["declined"]).strip()
        for kind, n, reply in made.grid.answers if n == 1 and kind == "secure-masked"
    ]  # fmt: skip
    assert declined == [""] * len(ledger.events) + ["budget"] * (3 - len(ledger.events))


def keys_of(folder: Path, agents: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for n in range(agents):
        key = ec.generate_private_key(ec.SECP384R1())
        paths.append(folder / f"node-{n}.key")
        paths[-1].write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        )
    return paths


def pin(made: Federation, paths: list[Path], peers: str) -> None:
    for n, path in enumerate(paths):
        made.grid.contexts[n + 2].node_config |= {"secure-key": str(path), "secure-peers": peers}


def test_parties_that_pin_each_other_release(tmp_path: Path):
    paths = keys_of(tmp_path / "keys", 4)
    peers = ",".join(Identity.load(path).fingerprint for path in paths)
    made = federation(tmp_path)
    pin(made, paths, peers)
    made.start()
    assert len(vectors(made)) == 3


def test_pinned_identities_can_be_the_lines_of_a_file(tmp_path: Path):
    from flwr_fbo.core import keys
    from flwr_fbo.privacy.secure.identity import pinned_identities

    paths = keys_of(tmp_path / "keys", 2)
    loaded = [keys.read_private_key(path) for path in paths]
    file = tmp_path / "peers"
    file.write_text(
        f"# the parties\n{keys.public_text(loaded[0])} node 0\n\n"
        f"{keys.fingerprint(loaded[1])} node 1\n"
    )
    wanted = {keys.fingerprint(key) for key in loaded}
    assert pinned_identities(str(file)) == wanted
    assert pinned_identities(", ".join(sorted(wanted))) == wanted
    for text in ("SHA256:short", str(tmp_path / "none")):
        with pytest.raises(SecureSumError, match="pinned identities"):
            pinned_identities(text)
    file.write_text("# nobody\n")
    with pytest.raises(SecureSumError, match="must pin at least one"):
        pinned_identities(str(file))


def test_a_server_that_swaps_keys_is_refused_by_all(tmp_path: Path, caplog: Any):
    # The server's own key stands in the place of party 3's: signed, but pinned by nobody.
    paths = keys_of(tmp_path / "keys", 5)
    peers = ",".join(Identity.load(path).fingerprint for path in paths[:4])
    made = federation(tmp_path)
    pin(made, paths[:4], peers)
    made.grid.contexts[5].node_config["secure-key"] = str(paths[4])
    made.start()
    assert vectors(made) == []
    assert events(tmp_path) == 0
    assert "masked" not in {kind for kind, *_ in made.grid.answers}
    assert "the server may have swapped keys" in caplog.text
    words = {
        str(reply.content[wire.REPLY_METRICS]["declined"]).strip()
        for kind, *_, reply in made.grid.answers if kind == "secure-shares"
    }  # fmt: skip
    assert words == {"error"}  # the server learns no more than that


def test_peers_need_a_key_of_ones_own(tmp_path: Path, caplog: Any):
    made = federation(tmp_path)
    made.grid.contexts[2].node_config["secure-peers"] = "SHA256:" + "x" * 43
    made.start()
    assert "`secure-peers` needs `secure-key`" in caplog.text
    assert len(vectors(made)) == 3


# ------------------------------------------------------------------ other ways in


def test_fed_pne_runs_by_secure_sums(tmp_path: Path):
    strategy = FedPNE(
        space=SPACE, num_agents=4, run_dir=tmp_path / "run", timeout=5.0, aggregation="secure",
        epsilon=12.0, budget=30, most_means=10,
    )  # fmt: skip
    grid = Watched(simulated_client_app(hill, tmp_path / "run" / "agents"), 4)
    result = strategy.start(grid)
    phases = grid.kinds.count("pull")
    assert phases > 1
    assert [kind for kind in grid.kinds if kind in KINDS] == list(KINDS) * phases
    assert events(tmp_path) == phases
    assert result.privacy.trust == "secure-sum"
    assert result.privacy.unit == "party"
    assert 0 < result.privacy.spent <= 12.0
    for kind, _, reply in grid.answers:
        arrays = list(reply.content[wire.REPLY_PARAMETERS].values())
        assert kind in KINDS or not any(a.data for a in arrays)


def test_the_command_line_runs_and_resumes_secure_sums(tmp_path: Path):
    command = [
        "run", "garland", "--agents", "4", "--rounds", "2", "--epsilon", "6", "--engine", "inline",
        "--run-dir", str(tmp_path / "run"), "--set", "aggregation=secure", "--set", "features=20",
        "--set", "releases=0,1",
    ]  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    statement = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert statement["trust"] == "secure-sum"
    assert statement["secure_sum"]["threshold"] == 3
    assert statement["secure_sum"]["neighbours"] == 3
    assert events(tmp_path) == 2
    shown = CliRunner().invoke(app, ["privacy", "--statement", str(tmp_path / "run")])
    assert "3 of 4 parties must answer" in " ".join(shown.output.split())
    other = [*command[:-7], str(tmp_path / "no"), "--set", "aggregation=secure"]
    refused = CliRunner().invoke(app, [*other, "--set", "sampling-rate=0.5"])
    assert refused.exit_code == 2
    assert "sampling lowers epsilon only against those who do not know" in " ".join(
        refused.output.split()
    )


# ------------------------------------------------------------------ settings and statement


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": None}, "needs `epsilon` or `noise-multiplier`"),
        ({"sampling_rate": 0.5}, "`sampling-rate` must be 1 .* the server sees who sends"),
        ({"sampling": "fixed-size"}, "`sampling` poisson"),
        ({"noise_seed": 3}, "`noise-seed` must be unset"),
        ({"local_epsilon": 3.0}, "`local-epsilon` must be unset"),
        ({"secure_threshold": 0.5}, "`secure-threshold` must be"),
        ({"secure_colluding": -1}, "`secure-colluding` must be"),
    ],
)
def test_settings_that_a_secure_sum_cannot_have_are_refused(given: Any, message: str):
    with pytest.raises(SettingsError, match=message):
        DPFTSDESettings(**{"epsilon": 4.0, "aggregation": "secure", **given})


@pytest.mark.parametrize(("agents", "colluding"), [(1, 0), (4, 4), (3, 3)])
def test_federations_that_are_too_small_are_refused_before_the_first_message(
    agents: int, colluding: int
):
    settings = DPFTSDESettings(epsilon=4.0, aggregation="secure", secure_colluding=colluding)
    with pytest.raises(SettingsError, match="`aggregation=secure` is not possible with"):
        DPFTSDEServer.for_run(RunParameters(SPACE, agents, 4), settings)


def test_the_statement_says_whom_to_trust_and_what_the_server_sees(tmp_path: Path):
    made = federation(tmp_path, 6)
    statement = made.strategy.server.statement()
    assert statement.trust == "secure-sum"
    assert dict(statement.secure_sum) | {"server_sees": ""} == {
        "threshold": 4, "colluding": 1, "neighbours": 5, "recover": 4,
        "excess_noise": pytest.approx(math.sqrt(2)), "server_sees": "",
    }  # fmt: skip
    assert "masked vectors" in statement.secure_sum["server_sees"]
    assert "4 of 6 parties must answer, 1 may collude" in " ".join(statement.to_page().split())
    assert "against the server too" in str(statement)
    assert PrivacyStatement.from_dict(statement.to_dict()) == statement
    old = {k: v for k, v in statement.to_dict().items() if k != "secure_sum"}
    assert PrivacyStatement.from_dict(old).secure_sum == {}
    made.strategy.server.close_files()


def test_the_same_epsilon_needs_the_noise_of_a_trusted_server_or_a_little_more():
    made = {
        aggregation: DPFTSDEServer(SPACE, 30, DPFTSDESettings(epsilon=4.0, aggregation=aggregation),
                                   20)
        for aggregation in ("central", "secure")
    }  # fmt: skip
    secure, central = made["secure"], made["central"]
    assert secure.release_plan.rounds == central.release_plan.rounds
    assert secure.noise_multiplier == pytest.approx(central.noise_multiplier, rel=1e-3)
    assert secure.budget.delta < central.budget.delta == secure.delta


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_of_secrets_holds_the_last_state_alone(durable: bool, tmp_path: Path):
    path = tmp_path / "agent.secure"
    store = SecretFile(path, durable)
    assert store.load() is None
    long, short = {"party": {"leg": 3}, "masked": 1, "more": "x" * 500}, {"party": {"leg": 0}}
    for state in (long, short, long, short):
        store.save(state)
        assert store.load() == state
        assert path.stat().st_mode & 0o777 == 0o600
        assert len(path.read_text().splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_state_that_was_written_over_but_not_cut_is_read(tmp_path: Path):
    # The process ends between the two calls that write over a longer state.
    store = SecretFile(tmp_path / "agent.secure", durable=False)
    store.save({"party": {"leg": 3}, "more": "x" * 500})
    with mock.patch("os.ftruncate", side_effect=Crash), pytest.raises(Crash):
        store.save({"party": {"leg": 4}})
    assert store.load() == {"party": {"leg": 4}}


def test_a_damaged_file_of_secrets_is_refused(tmp_path: Path):
    (tmp_path / "agent.secure").write_text('{"party"')
    with pytest.raises(SecureSumError, match="must hold the state of secure sums, but is damaged"):
        SecretFile(tmp_path / "agent.secure").load()
