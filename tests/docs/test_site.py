"""The site: every page is in its menu, links are rewritten, and a dead link stops the build."""

from __future__ import annotations

import importlib.util
import re
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> types.ModuleType:
    """The script docs/site.py as a module."""
    spec = importlib.util.spec_from_file_location("fbo_site", ROOT / "docs" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_menu_once(site: types.ModuleType) -> None:
    pages = {page.removesuffix(".md") for page in site.sources()} - {"index"}
    entries = [entry for part in site.PARTS.values() for entry in part]
    assert len({entry.split(" <")[0] for entry in entries}) == len(entries)
    listed = [re.findall(r"<(.+)>$", entry)[0] for entry in entries]
    assert sorted(listed) == sorted(pages | {"api"})


def test_links_lead_to_pages_of_the_site_or_become_text(
    site: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flwr_fbo").mkdir()
    (tmp_path / "flwr_fbo" / "wire.html").write_text("")
    monkeypatch.setattr(site, "API", tmp_path)
    text = (
        "[a](docs/concepts/overview.md#what) [`b`](flwr_fbo/wire.py) [c](CONTRIBUTING.md) "
        "[d](tests/conftest.py) [e](https://flower.ai)\n```\n[f](nowhere.md)\n```\n"
    )
    assert site.with_links(text, "index.md", "README.md") == (
        '[a](concepts/overview.md#what) <a href="api/flwr_fbo/wire.html"><code>b</code></a> '
        "[c](contributing.md) d [e](https://flower.ai)\n```\n[f](nowhere.md)\n```\n"
    )
    up = site.with_links("[x](../../README.md)", "reference/tasks.md", "docs/reference/tasks.md")
    assert up == "[x](../index.md)"
    with pytest.raises(SystemExit, match=r"README.md links to nowhere.md, which does not exist"):
        site.with_links("[f](nowhere.md)", "index.md", "README.md")


def test_a_warning_stops_the_build() -> None:
    assert '"-W"' in (ROOT / "docs" / "site.py").read_text()


@pytest.mark.slow
def test_the_code_runs_that_builds_the_site(
    site: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("furo", reason="the extra `docs` is not installed")
    pytest.importorskip("myst_parser", reason="the extra `docs` is not installed")
    (tmp_path / "api").mkdir()
    monkeypatch.setattr(site, "API", tmp_path / "api")
    monkeypatch.setattr(site, "SITE", tmp_path / "site")
    monkeypatch.setattr(site, "ROOT", ROOT)
    monkeypatch.setattr(site, "PAGES", tmp_path / "pages")
    assert site.build() == 0
    index = (tmp_path / "site" / "index.html").read_text()
    assert "search" in index
    assert re.search(r"\bledger\W", (tmp_path / "site" / "searchindex.js").read_text())
    # Nothing is fetched from another host: the site works without a network.
    fetched = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"', index)
    assert fetched == []
