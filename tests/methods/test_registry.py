"""One registration a method: those of this package, and one from another package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flwr_fbo import simulate
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods import registry
from flwr_fbo.methods.method import load_attribute
from flwr_fbo.methods.registry import find_method, method_names, method_of_agent

THEIRS = '''
from dataclasses import dataclass

from flwr_fbo import Float, task
from flwr_fbo.core.settings import at_least, setting
from flwr_fbo.methods.method import Method
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.server import ThompsonServer


@dataclass(frozen=True)
class TheirSettings(ThompsonSettings):
    """Local Thompson sampling that says how often it greets."""

    greetings: int = setting(1, "how often the server greets", at_least(0))


class TheirServer(ThompsonServer):
    def findings(self, histories):
        return {"greeting": " ".join(["hello"] * self.settings.greetings)}


METHOD = Method(
    name="theirs",
    summary="A method of another package.",
    settings="their_package:TheirSettings",
    server="their_package:TheirServer",
    agent="flwr_fbo.methods.thompson.agent:make_agent",
    agent_kind="thompson",
)
CLASH = Method(
    name="fts", summary="", settings="", server="", agent="", agent_kind="thompson"
)


@task(space={"x": Float(0.0, 1.0)})
def hill(params):
    return 1.0 - abs(params["x"] - 0.3)
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution on the import path whose entry points are written by the test."""
    (tmp_path / "their_package.py").write_text(THEIRS)
    information = tmp_path / "their_package-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: their-package\nVersion: 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._registered.cache_clear()
    yield information / "entry_points.txt"
    registry._registered.cache_clear()
    sys.modules.pop("their_package", None)


def test_a_method_of_another_package_runs_by_its_name(installed: Path, tmp_path: Path) -> None:
    installed.write_text("[flwr_fbo.methods]\ntheirs = their_package:METHOD\n")
    assert "theirs" in method_names()
    theirs = importlib.import_module("their_package")
    result = simulate(
        theirs.hill, agents=2, strategy="theirs", rounds=1, greetings=2, run_dir=tmp_path / "run"
    )
    assert result.complete
    assert result.findings["greeting"] == "hello hello"
    with pytest.raises(SettingsError, match="did you mean `greetings`"):
        simulate(theirs.hill, agents=2, strategy="theirs", greeting=2, run_dir=tmp_path / "other")


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("no_such_module:METHOD", "their-package .* cannot be imported"),
        ("their_package:hill", "must name a Method"),
        ("their_package:CLASH", "registers the method 'fts', which is registered already"),
    ],
)
def test_a_broken_entry_point_harms_no_other_method(
    installed: Path, target: str, fault: str
) -> None:
    installed.write_text(f"[flwr_fbo.methods]\nbroken = {target}\n")
    assert "broken" not in method_names()
    assert find_method("fts").server_class.__name__ == "FTSServer"
    with pytest.raises(SettingsError, match=fault):
        find_method("broken")


@pytest.mark.parametrize("name", method_names())
def test_every_registration_can_be_made(name: str) -> None:
    for seeks in ("own", "global"):
        method = find_method(name, seeks)  # type: ignore[arg-type]
        assert method.summary.endswith(".")
        assert issubclass(method.strategy_class, object)
        assert callable(load_attribute(method.agent))
        assert set(method.paper_settings) <= set(method.settings_class.keys())
        if method.presets:
            assert callable(load_attribute(method.presets))
        assert method_of_agent(method.agent_kind).agent_kind == method.agent_kind


def test_one_name_may_mean_another_method_for_a_global_task() -> None:
    assert find_method("gp-ucb").server_class.__name__ == "RewardServer"
    assert find_method("gp-ucb", "global").server_class.__name__ == "GPUCBServer"


def test_unknown_names() -> None:
    with pytest.raises(SettingsError, match="unknown strategy `dp-fts`; did you mean `dp-fts-de`"):
        find_method("dp-fts")
    with pytest.raises(SettingsError, match="no registered method has agents of the kind 'x'"):
        method_of_agent("x")
