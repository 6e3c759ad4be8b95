"""The command `flwr-fbo doctor`: each fault is planted, and each is told with its remedy."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import namedtuple
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flwr_fbo.cli import doctor
from flwr_fbo.cli.main import app


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path / "home"))


def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    return done.exit_code, json.loads(done.stdout)


def found(rows: list[dict[str, Any]], topic: str, state: str) -> str:
    return " | ".join(r["text"] for r in rows if (r["topic"], r["state"]) == (topic, state))


def test_a_machine_in_order_is_told_so() -> None:
    code, rows = run()
    assert code == 0
    assert {row["topic"] for row in rows} == {
        "versions", "flower", "nodes", "data", "disk", "clock", "entropy"
    }  # fmt: skip
    assert "flwr " in found(rows, "versions", "ok")
    assert "digits" in found(rows, "data", "ok")
    text = CliRunner().invoke(app, ["doctor"]).stdout
    assert len(text.splitlines()) == len(rows)


def test_a_missing_extra_is_a_note_that_says_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.version

    def version(name: str) -> str:
        if name == "optuna":
            raise PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor, "version", version)
    code, rows = run()
    assert code == 0
    note = found(rows, "versions", "note")
    assert "baseline tpe" in note
    assert "pip install 'flwr-fbo[optuna]'" in note


def test_an_old_flower_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.version
    monkeypatch.setattr(doctor, "version", lambda name: "1.9.0" if name == "flwr" else real(name))
    code, rows = run()
    assert code == 1
    assert "flwr 1.9.0, but flwr>=" in found(rows, "versions", "FAIL")


def test_programs_that_are_not_on_the_path_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    code, rows = run()
    assert code == 0
    assert "flower-superlink is not on the PATH" in found(rows, "flower", "note")


def test_a_full_disk_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 9, 1))
    code, rows = run()
    assert code == 1
    assert "MiB are needed" in found(rows, "disk", "FAIL")


def test_a_home_that_cannot_be_written_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor.tempfile.NamedTemporaryFile

    def temporary(dir: Any = None, **more: Any) -> Any:
        if str(dir).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return real(dir=dir, **more)

    (tmp_path / "locked").mkdir()
    monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path / "locked"))
    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", temporary)
    code, rows = run()
    assert code == 1
    assert "cannot be written: Permission denied" in found(rows, "disk", "FAIL")


def test_a_clock_that_differs_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.time.time
    monkeypatch.setattr(doctor.time, "time", lambda: real() - 60)
    _, rows = run()
    assert "differs by 60 s" in found(rows, "clock", "note")


@pytest.mark.parametrize(
    ("answer", "state", "text"),
    [
        ('{"nodes": [{"status": "online"}, {"status": "offline"}]}', "ok", "1 of 2 SuperNodes"),
        ('{"nodes": []}', "note", "0 of 0 SuperNodes"),
        ("no such connection", "FAIL", "flwr supernode list far --format json"),
    ],
)
def test_the_nodes_of_a_superlink_are_counted(
    monkeypatch: pytest.MonkeyPatch, answer: str, state: str, text: str
) -> None:
    def listed(command: list[str], **more: Any) -> Any:
        return subprocess.CompletedProcess(command, 0, answer, "")

    monkeypatch.setattr(subprocess, "run", listed)
    code, rows = run("--superlink", "far")
    assert text in found(rows, "nodes", state)
    assert code == (1 if state == "FAIL" else 0)
