"""``flwr-fbo data``: what is here, what is right, and what is fetched only after a yes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flwr_fbo.cli.main import app
from flwr_fbo.tasks.listing import users_of_data
from flwr_fbo.tasks.papers.data import SOURCES
from flwr_fbo.tasks.papers.data.download import sha256_of
from flwr_fbo.tasks.papers.data.sources import Remote


def data(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(app, ["data", *arguments], **options)


@pytest.fixture(autouse=True)
def original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is here but a file that is offered as the data set `stocks`."""
    for name in ("FLWR_FBO_DATA", "FLWR_FBO_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLWR_FBO_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "offered" / "fin.csv"
    path.parent.mkdir()
    path.write_text("a,b\n1,2\n")
    offered = dataclasses.replace(
        SOURCES["stocks"], remotes=(Remote(path.as_uri(), "fin.csv", sha256_of(path)),)
    )
    monkeypatch.setitem(SOURCES, "stocks", offered)
    return path


def test_every_data_set_is_listed_with_its_tasks() -> None:
    done = data("--json")
    assert done.exit_code == 0
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {name for name, source in SOURCES.items() if source.accepted}
    assert set(rows) == set(users_of_data()) - {"digits"}
    assert not any(row["present"] for row in rows.values())
    assert rows["landmine"]["tasks"] == ["landmine", "landmine-global"]
    assert "LandmineData.mat" in rows["landmine"]["accepted"]


def test_what_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    done = data("stocks")
    assert done.exit_code == 1  # it was named and is not there
    for part in ("MISSING", "fin.csv or stocks.npz", str(tmp_path / "cache"), "--fetch", "licence"):
        assert part in done.stdout


def test_a_task_stands_for_its_data_set() -> None:
    assert data("glasses").stdout == data("gleam").stdout
    assert "unknown data set `glases`" in data("glases").stderr


def test_nothing_is_fetched_without_a_yes(tmp_path: Path) -> None:
    refused = data("stocks", "--fetch", input="n\n")
    assert refused.exit_code == 1
    assert "Licence: none stated" in refused.stderr
    assert not (tmp_path / "cache").exists()
    agreed = data("stocks", "--fetch", "--verify", input="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert "checksum of fin.csv: right" in agreed.stdout
    stored = tmp_path / "cache" / "originals" / "stocks" / "fin.csv"
    assert str(stored) in agreed.stdout
    assert stored.read_text() == "a,b\n1,2\n"


def test_a_program_agrees_by_an_option(tmp_path: Path) -> None:
    done = data("stocks", "--fetch", "--yes", "--verify", "--json")
    (row,) = json.loads(done.stdout)
    assert row["checksums"] == {"fin.csv": "right"}
    assert row["present"]


def test_a_wrong_file_is_told(tmp_path: Path, original: Path) -> None:
    original.write_text("a,b\n1,3\n")
    told = data("stocks", "--verify", "--data-dir", str(original.parent))
    assert told.exit_code == 1
    assert "checksum of fin.csv: WRONG" in told.stdout
    fetched = data("stocks", "--fetch", "--yes")
    assert fetched.exit_code == 2
    assert "wrong checksum" in fetched.stderr
    (original.parent / "fin.csv").rename(original.parent / "stocks.npz")
    unknown = data("stocks", "--verify", "--data-dir", str(original.parent))
    assert "none is known" in unknown.stdout
    assert unknown.exit_code == 0


def test_names_suggest_the_nearest_and_offline_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = data("landmin")
    assert wrong.exit_code == 2
    assert "unknown data set `landmin`; did you mean `landmine`?" in wrong.stderr
    by_hand = data("seir", "--fetch")
    assert "must be fetched by hand" in by_hand.stderr
    monkeypatch.setenv("FLWR_FBO_OFFLINE", "1")
    offline = data("stocks", "--fetch", "--yes")
    assert offline.exit_code == 2
    assert "is not on this machine" in offline.stderr
