"""What an installation brings, whom it calls, and what its logs keep to themselves."""

from __future__ import annotations

import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.privacy import entropy
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.dp_fts_de import DPFTSDE
from flwr_fbo.strategies.fts import FTS
from flwr_fbo.tasks import task

REPOSITORY = Path(__file__).parents[2]
BENCHMARKS = REPOSITORY / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    for name in ("licences", "audit_dependencies"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("Apache-2.0", "fine"),
        ("MIT License", "fine"),
        ("Mozilla Public License 2.0 (MPL 2.0)", "fine"),
        ("MIT OR GPL-3.0-only", "fine"),
        ("MIT AND GPL-3.0-only", "forbidden"),
        ("MIT License; GNU General Public License v3 (GPLv3)", "forbidden"),
        ("LGPL-2.1-or-later", "forbidden"),
        ("GNU Affero General Public License v3", "forbidden"),
        ("SSPL-1.0", "forbidden"),
        ("Business Source License 1.1", "forbidden"),
        ("Apache 2.0 with Commons Clause", "forbidden"),
        ("Other/Proprietary License", "forbidden"),
        ("unknown", "unknown"),
        ("see LICENSE", "unknown"),
        ("Permitted for all", "unknown"),
    ],
)
def test_licences_are_judged(benchmark: Any, words: str, verdict: str) -> None:
    assert benchmark("licences").verdict(words) == verdict


def test_everything_that_is_installed_has_a_fine_licence() -> None:
    command = [sys.executable, str(BENCHMARKS / "licences.py"), "simulation"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout
    assert "numpy" in done.stdout
    assert "ray" in done.stdout


def answers(canary: Any, others: Any) -> str:
    """A pip-audit that says this of the canary and that of all others."""
    return f"""#!{sys.executable}
import json, sys
from pathlib import Path
names = Path(sys.argv[2]).read_text().split()
canary = {canary!r} if "jinja2==2.10" in names else {others!r}
said = [dict(zip(("name", "version"), n.split("=="))) | canary for n in names]
print(json.dumps({{"dependencies": said}}))
"""


FOUND = {"vulns": [{"id": "PYSEC-1", "fix_versions": ["9.9"]}]}
SKIPPED = {"skip_reason": "not found"}


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for pip-audit")
@pytest.mark.parametrize(
    ("canary", "others", "code", "said"),
    [
        (FOUND, {"vulns": []}, 0, "2 distributions, no known vulnerability"),
        (FOUND, FOUND, 1, "VULNERABLE: numpy 1: PYSEC-1, mended in 9.9"),
        (FOUND, SKIPPED, 3, "COULD NOT BE CHECKED: 2: numpy, scipy"),
        # An index without advisories, where pip-audit says "no known vulnerabilities".
        (SKIPPED, SKIPPED, 3, "COULD NOT BE CHECKED: the database knows nothing"),
        ({"vulns": []}, {"vulns": []}, 3, "COULD NOT BE CHECKED: the database knows nothing"),
    ],
)
def test_what_was_not_checked_is_never_called_sound(
    benchmark: Any, tmp_path: Path, canary: Any, others: Any, code: int, said: str
) -> None:
    fake = tmp_path / "pip-audit"
    fake.write_text(answers(canary, others))
    fake.chmod(0o700)
    audit = benchmark("audit_dependencies")
    found, lines = audit.audit(str(fake), ["numpy==1", "scipy==2"])
    assert found == code
    assert any(line.startswith(said) for line in lines)


@pytest.mark.parametrize("text", ["", "no json", "{}"])
def test_a_pip_audit_without_an_answer_is_no_check(
    benchmark: Any, tmp_path: Path, text: str
) -> None:
    fake = tmp_path / "pip-audit"
    fake.write_text(f"#!{sys.executable}\nprint({text!r})\n")
    fake.chmod(0o700)
    audit = benchmark("audit_dependencies")
    assert audit.audit(str(fake), ["numpy==1"])[0] == 3
    assert audit.audit(str(tmp_path / "none"), ["numpy==1"])[0] == 3


#: Run by Python at its start: whoever is called is written down, and refused beyond loopback.
GUARD = """
import os, sys

def _guard(event, details):
    if event not in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        return
    where = details[0] if event == "socket.getaddrinfo" else details[1]
    host = where[0] if isinstance(where, tuple) else where
    if isinstance(host, bytes):
        host = host.decode()
    local = host is None or host in ("localhost", "127.0.0.1", "::1", "") or host.startswith("/")
    if not local:
        with open(os.environ["FLWR_FBO_TEST_CALLS"], "a") as file:
            file.write(f"{event} {host}\\n")
        raise OSError(f"the test refuses {event} to {host}")

sys.addaudithook(_guard)
"""


def guarded(folder: Path, *command: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """A command under the guard, as somebody runs it who set nothing; whom it called."""
    (folder / "sitecustomize.py").write_text(GUARD)
    calls = folder / "calls"
    environment = {k: v for k, v in os.environ.items() if k != "FLWR_TELEMETRY_ENABLED"}
    environment |= {
        "PYTHONPATH": f"{folder}{os.pathsep}{REPOSITORY}", "FLWR_FBO_TEST_CALLS": str(calls),
        "HOME": str(folder),
    }  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env=environment, cwd=folder
    )
    return done, calls.read_text() if calls.exists() else ""


CLI = "import sys; from flwr_fbo.cli.main import main; sys.exit(main())"
RUN = ("run", "digits", "--agents", "3", "--rounds", "1", "--epsilon", "5", "--json",
       "--set", "initial-points=1")  # fmt: skip


def test_the_guard_sees_and_refuses(tmp_path: Path) -> None:
    code = "import urllib.request as u; u.urlopen('http://192.0.2.1/')"
    done, calls = guarded(tmp_path, sys.executable, "-c", code)
    assert done.returncode != 0
    assert "192.0.2.1" in calls


@pytest.mark.parametrize("engine", ["inline", "processes", "auto"])
def test_a_run_calls_nobody(engine: str, tmp_path: Path) -> None:
    done, calls = guarded(tmp_path, sys.executable, "-c", CLI, *RUN, "--engine", engine)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["complete"]
    assert calls == ""


#: Where a cloud tells a machine that it is one of its own. A helper process of Ray's asks there
#: at every start, whatever one says; it reports to nobody (RAY_USAGE_STATS_ENABLED=0).
CLOUDS = {"169.254.169.254", "metadata.google.internal"}


def _namespaces() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0


@pytest.mark.slow(80)
@pytest.mark.skipif(not _namespaces(), reason="needs unshare and ip, to take the network away")
def test_a_simulation_with_ray_needs_no_network_at_all(tmp_path: Path) -> None:
    """Whatever language its parts are written in: there is loopback and nothing else."""
    command = f"ip link set lo up && exec {sys.executable} -c '{CLI}' {' '.join(RUN)} --engine ray"
    done, calls = guarded(tmp_path, "unshare", "-rn", "sh", "-c", command)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["complete"]
    assert {line.split()[1] for line in calls.splitlines()} <= CLOUDS


SECRET = "hunter2-4711"
SPACE = Space({"x": Float(0.0, 1.0)})


@task(space=SPACE)
def careless(params: Any, partition: Any) -> float:
    if params["x"] > 0.8:
        raise ValueError(f"cannot log in with {partition.config['password']}")
    return float(params["x"])


@pytest.mark.parametrize("local", [None, 5.0])
def test_logs_and_files_of_a_run_hold_no_secrets(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    local: float | None,
) -> None:
    """Neither what a node's configuration says nor the entropy of noise and sample."""
    drawn: list[bytes] = []

    def words(self: Any, count: int) -> Any:
        data = os.urandom(8 * count)
        drawn.append(data)
        return entropy.np.frombuffer(data, dtype=entropy.np.uint64)

    monkeypatch.setattr(entropy._SystemEntropy, "words", words)
    for logger in ("", "flwr", "flwr.fbo", "flwr_fbo"):  # simulations may have quietened some
        caplog.set_level(logging.DEBUG, logger)
    small: dict[str, Any] = {"initial_points": 4, "features": 8, "refit_every": 0}
    strategy: Any = DPFTSDE(
        **small, epsilon=5.0, sampling_rate=0.5, accountant="rdp", releases="all"
    )
    if local is not None:
        strategy = FTS(**small, local_epsilon=local)
    directory = RunDirectory(tmp_path / "run")
    directory.agents.mkdir(parents=True)
    grid = InProcessGrid(simulated_client_app(careless, directory.agents), 3)
    for context in grid.contexts.values():
        context.node_config["password"] = SECRET
    plan = RunParameters(SPACE, 3, 4, timeout=1.0, ledger=directory.ledger)
    strategy.open_run(plan, directory.store).run(grid)
    journals = {path.name: path.read_bytes() for path in directory.agents.glob("agent-????.jsonl")}
    assert any(SECRET.encode() in data for data in journals.values())  # the owner's own file
    others = {p: p.read_bytes() for p in directory.root.rglob("*") if p.is_file()}
    kept = [data for path, data in others.items() if path.name not in journals]
    heard = [*kept, caplog.text.encode()]
    assert caplog.text
    assert not any(SECRET.encode() in text for text in heard)
    words_drawn = {data[i : i + 8] for data in drawn for i in range(0, len(data), 8)}
    assert len(words_drawn) > 20
    for word in words_drawn:
        number = int.from_bytes(word, "little")
        for form in (word, word.hex().encode(), str(number).encode()):
            assert not any(form in text for text in [*heard, *journals.values()])
