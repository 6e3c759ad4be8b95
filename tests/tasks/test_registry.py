"""Tasks by name: built in, offered by installed packages, and by module and attribute."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks import BUILT_IN, FunctionTask, Task, find, load, name_of
from flwr_fbo.tasks.listing import catalogue
from flwr_fbo.tasks.registry import ENTRY_POINT_GROUP, names

CODE = """
from dataclasses import dataclass

from flwr_fbo import Float, Space, Task, task
from flwr_fbo.core.settings import Settings, above, setting


@dataclass(frozen=True)
class SlopeSettings(Settings):
    steepness: float = setting(1.0, "how steep the slope is", above(0))


class SlopeTask(Task):
    settings_class = SlopeSettings
    metric = "height"

    @property
    def space(self):
        return Space({"x": Float(0.0, 1.0)})

    def evaluate(self, params, *, rng):
        return self.settings.steepness * params["x"]


class Outer:
    Inner = SlopeTask


@task(space={"x": Float(0.0, 1.0)})
def hill(params):
    return -abs(params["x"] - 0.5)


class HalfDone(SlopeTask):
    @property
    def space(self):
        raise RuntimeError("not written yet")


not_a_task = 3
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a distribution as pip does: metadata on the import path."""
    (tmp_path / "their_package.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_package", raising=False)

    def make(distribution: str, **tasks: str) -> None:
        folder = tmp_path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n"
        )
        lines = [f"{name.replace('_', '-')} = {value}" for name, value in tasks.items()]
        (folder / "entry_points.txt").write_text("\n".join(["[flwr_fbo.tasks]", *lines, ""]))

    return make


def test_an_installed_class_and_an_installed_function_are_found(install: Install) -> None:
    install("their-dist", their_task="their_package:SlopeTask", their_hill="their_package:hill")
    found = find("their-task")
    assert isinstance(found, type)
    assert issubclass(found, Task)
    assert isinstance(find("their-hill"), FunctionTask)
    assert load("their-task", {"steepness": 2}).settings.to_mapping() == {"steepness": 2.0}
    assert find(name_of(found)) is found
    assert find("their_package:Outer.Inner") is found
    assert names() == [*BUILT_IN, "their-hill", "their-task"]


def test_a_module_is_imported_only_when_its_task_is_asked_for(install: Install) -> None:
    install("their-dist", their_task="their_package:SlopeTask")
    find("digits")
    assert "their_package" not in sys.modules
    find("their-task")
    assert "their_package" in sys.modules


def test_a_name_nearly_right_suggests_an_installed_task(install: Install) -> None:
    install("their-dist", their_task="their_package:SlopeTask")
    with pytest.raises(SettingsError, match="unknown task `their-tusk`; did you mean `their-task`"):
        find("their-tusk")
    with pytest.raises(SettingsError, match="unknown task `landmin`; did you mean `landmine`"):
        find("landmin")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("their_pakage:SlopeTask", r"cannot be imported \(offered by their-dist 1\.2\): No module"),
        ("their_package:SlopTask", r"cannot be .*their-dist 1\.2\): .*did you mean `SlopeTask`"),
        ("their_package:not_a_task", r"must be a Task, .* but is 3 \(offered by their-dist 1\.2\)"),
    ],
)
def test_a_broken_entry_point_names_its_distribution_when_it_is_asked_for(
    value: str, says: str, install: Install
) -> None:
    install("their-dist", their_task=value)
    find("digits")  # a broken entry point does no harm to other tasks
    with pytest.raises(SettingsError, match=f"`task` 'their-task' {says}"):
        find("their-task")


def test_a_name_that_two_packages_offer_is_refused_with_both(install: Install) -> None:
    install("their-dist", their_task="their_package:SlopeTask", digits="their_package:SlopeTask")
    install("another-dist", their_task="their_package:hill")
    with pytest.raises(SettingsError) as error:
        find("their-task")
    assert "another-dist 1.2" in str(error.value)
    assert "their-dist 1.2" in str(error.value)
    with pytest.raises(SettingsError, match=r"offered by flwr-fbo itself and their-dist 1\.2"):
        find("digits")
    find("landmine")
    assert find("their_package:hill") is find("their_package:hill")
    assert find(BUILT_IN["digits"]).metric == "accuracy"


def test_the_catalogue_lists_installed_tasks_and_those_that_are_broken(install: Install) -> None:
    install(
        "their-dist",
        their_task="their_package:SlopeTask",
        their_hill="their_package:hill",
        absent="no_such_module:Task",
        half_done="their_package:HalfDone",
        glasses="their_package:hill",
    )
    rows = {row["name"]: row for row in json.loads(json.dumps(catalogue()))}
    assert list(rows) == names()
    assert rows["their-task"]["metric"] == "height"
    assert rows["their-task"]["settings"] == {"steepness": 1.0}
    assert rows["their-task"]["packages"] == ["their-dist 1.2"]
    assert rows["their-hill"]["problem"] is None
    assert rows["digits"]["packages"] == []
    assert "their-dist 1.2" in rows["absent"]["problem"]
    assert "not written yet" in rows["half-done"]["problem"]
    assert "offered by flwr-fbo itself and their-dist" in rows["glasses"]["problem"]
    assert {frozenset(row) for row in rows.values()} == {frozenset(rows["digits"])}


def test_the_command_line_lists_installed_tasks_and_marks_broken_ones(install: Install) -> None:
    from typer.testing import CliRunner

    from flwr_fbo.cli.main import app

    install("their-dist", their_task="their_package:SlopeTask", absent="no_such_module:Task")
    listed = CliRunner().invoke(app, ["tasks"])
    assert listed.exit_code == 0, listed.output
    assert "their-task      height" in listed.stdout
    broken = listed.stdout.partition("absent ")[2]
    assert broken.startswith("         cannot be imported\n")
    assert "their-dist 1.2" in broken


def test_an_installed_task_is_simulated_by_its_name(install: Install) -> None:
    import flwr_fbo

    install("their-dist", their_task="their_package:SlopeTask")
    result = flwr_fbo.simulate("their-task", agents=2, rounds=1, engine="inline", steepness=2.0)
    assert result.complete
    assert result.failures == 0
    assert all(0.0 <= row["score"] <= 2.0 for row in result.to_records())


def test_the_docs_declare_an_entry_point_that_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "own-task.md").read_text()
    (declared,) = re.findall(r"^```toml\n(\[project\.entry-points.*?)```$", page, re.DOTALL | re.M)
    groups = tomllib.loads(declared)["project"]["entry-points"]
    assert set(groups) == {ENTRY_POINT_GROUP}
    assert groups[ENTRY_POINT_GROUP]["slope"] == "slopes:SlopeTask"
