"""The settings of secure sums, which every command reads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flwr_fbo.core.settings import describe
from flwr_fbo.methods.registry import find_method

NAMES = ("dp-fts-de", "fed-pne", "voting")


@pytest.mark.parametrize("name", NAMES)
def test_every_method_with_secure_sums_has_the_same_settings(name: str) -> None:
    rows = {row.key: row for row in describe(find_method(name, "any").settings_class)}
    first = {row.key: row for row in describe(find_method("dp-fts-de").settings_class)}
    for key in ("secure-threshold", "secure-colluding"):
        assert rows[key] == first[key]


def test_settings_are_read_without_cryptography() -> None:
    modules = [find_method(n, "any").settings.partition(":")[0] for n in NAMES]
    code = f"import {', '.join(modules)}, sys; assert 'cryptography' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_message_of_a_secure_sum_imports_no_scipy() -> None:
    # A deployment answers each message by a process of its own, and four legs of five need none.
    code = """
import sys
import flwr_fbo.clients.client_app, flwr_fbo.clients.secure
from flwr_fbo.methods.registry import method_of_agent
from flwr_fbo.tasks import load
load("digits"), method_of_agent("thompson")
assert not any(name.partition(".")[0] in ("scipy", "sklearn") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
