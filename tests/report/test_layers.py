"""Reports can be written where Flower is not installed."""

from __future__ import annotations

from tests.core.test_layers import BLOCKED, in_a_fresh_process, modules_below


def test_report_imports_with_flower_blocked() -> None:
    names = modules_below("flwr_fbo.report")
    assert "flwr_fbo.report.tree" in names
    code = BLOCKED + f"for name in {names!r}: importlib.import_module(name)\nprint('all imported')"
    assert in_a_fresh_process(code) == "all imported\n"
