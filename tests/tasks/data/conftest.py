from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches a person's cache, and none reaches for the network."""
    monkeypatch.setenv("FLWR_FBO_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("FLWR_FBO_OFFLINE", "1")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any data set."""
    monkeypatch.delenv("FLWR_FBO_DATA", raising=False)
    return tmp_path
