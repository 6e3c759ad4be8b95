"""Colours and style sheets of a report page and of charts in files of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Curves with a colour of their own: c0 .. c5.
CURVE_COLOURS = 6
#: Shades of evaluations and nodes, from worst to best: s0 .. s7.
SHADES = 8

LIGHT: Mapping[str, str] = {
    "ink": "#1c2126", "soft": "#5d6872", "paper": "#ffffff", "card": "#f5f7f8", "rule": "#dde2e6",
    "accent": "#0b62a4", "warn": "#a33c00",
    "c0": "#0b62a4", "c1": "#c8590a", "c2": "#1f7a4d", "c3": "#8a3fa0", "c4": "#7a6a00",
    "c5": "#b1224b",
    "s0": "#dcebe9", "s1": "#bfdcdb", "s2": "#9ccacc", "s3": "#76b4ba", "s4": "#4f9ba6",
    "s5": "#2f7f8e", "s6": "#1c6275", "s7": "#0d4257", "failed": "#d9381e", "star": "#e0a100",
}  # fmt: skip
DARK: Mapping[str, str] = {
    "ink": "#e4e8eb", "soft": "#9aa6b0", "paper": "#14181b", "card": "#1d2327", "rule": "#333c43",
    "accent": "#6fb6ee", "warn": "#ff9d66",
    "c0": "#6fb6ee", "c1": "#f5a057", "c2": "#62c592", "c3": "#cd8fe0", "c4": "#d6c34a",
    "c5": "#f2789c",
    "s0": "#22383f", "s1": "#274b54", "s2": "#2d606b", "s3": "#367885", "s4": "#4593a0",
    "s5": "#60b0ba", "s6": "#8accd2", "s7": "#c8eef0", "failed": "#ff6a4d", "star": "#ffd04a",
}  # fmt: skip

_CHARTS = """
svg text { fill:var(--soft); font-size:14px; } svg .small { font-size:12px; }
svg .inside { fill:var(--paper); }
.grid { stroke:var(--rule); stroke-width:1; } .level { stroke:var(--soft); stroke-dasharray:5 4; }
.line { fill:none; stroke:currentColor; stroke-width:2.4; stroke-linejoin:round; }
.band { fill:currentColor; opacity:.17; }
.c0 { color:var(--c0); } .c1 { color:var(--c1); } .c2 { color:var(--c2); }
.c3 { color:var(--c3); } .c4 { color:var(--c4); } .c5 { color:var(--c5); }
.line.single { stroke:var(--c0); stroke-width:1; opacity:.22; }
.line.rail { stroke:var(--rule); stroke-width:1.4; } .line.thin { stroke-width:1.4; }
.line.thread { stroke-width:1.1; opacity:.42; } .line.top { stroke:var(--c1); stroke-width:2;
  opacity:.75; }
.t0 { stroke:var(--s0); } .t1 { stroke:var(--s1); } .t2 { stroke:var(--s2); }
.t3 { stroke:var(--s3); } .t4 { stroke:var(--s4); } .t5 { stroke:var(--s5); }
.t6 { stroke:var(--s6); } .t7 { stroke:var(--s7); }
.b0 { fill:var(--c0); } .b1 { fill:var(--soft); opacity:.5; } .b0.line { color:var(--c0); }
.b1.line { color:var(--soft); } .b0.line, .b1.line { stroke-width:8; }
.c1.line { stroke-dasharray:7 3; } .c2.line { stroke-dasharray:2 3; }
.c3.line { stroke-dasharray:9 3 2 3; } .c4.line { stroke-dasharray:12 4; }
.c5.line { stroke-dasharray:4 4; }
.s0 { fill:var(--s0); } .s1 { fill:var(--s1); } .s2 { fill:var(--s2); } .s3 { fill:var(--s3); }
.s4 { fill:var(--s4); } .s5 { fill:var(--s5); } .s6 { fill:var(--s6); } .s7 { fill:var(--s7); }
.failed { fill:var(--failed); } .ring { fill:none; stroke:var(--c1); stroke-width:1.6; }
.out { fill:none; stroke:var(--soft); stroke-width:.6; opacity:.8; }
.star { fill:var(--star); stroke:var(--ink); stroke-width:1.2; }
"""

_PAGE = """
* { box-sizing:border-box; }
body { margin:0; background:var(--paper); color:var(--ink);
  font:16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width:66rem; margin:0 auto; padding:1.2rem 1rem 2rem; }
h1 { font-size:1.7rem; line-height:1.2; margin:.4rem 0 0; overflow-wrap:anywhere; }
h2 { font-size:1.3rem; margin:2.2rem 0 .6rem; border-bottom:2px solid var(--rule);
  overflow-wrap:anywhere; }
h3 { font-size:1.1rem; margin:1.8rem 0 .5rem; }
p { margin:.5rem 0; max-width:46rem; } .lead, footer { color:var(--soft); }
footer { max-width:66rem; margin:0 auto; padding:0 1rem 2rem; font-size:.85rem; }
.warn { color:var(--warn); font-weight:600; }
.answers { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,14rem),1fr));
  gap:.8rem; margin:1rem 0; }
.answers article { background:var(--card); border-radius:.5rem; padding:.7rem 1rem;
  border-top:3px solid var(--accent); }
.answers h3 { margin:0; font-size:.85rem; color:var(--soft); font-weight:600; }
.answers b { display:block; font-size:1.25rem; line-height:1.25; margin:.15rem 0 .3rem;
  overflow-wrap:anywhere; }
.answers p { margin:0; font-size:.88rem; color:var(--soft); }
.charts { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,25rem),1fr));
  gap:1rem; }
figure { margin:0; background:var(--card); border-radius:.5rem; padding:.7rem; max-width:40rem; }
figure.broad { grid-column:1 / -1; max-width:none; min-width:0; }
.plot { overflow-x:auto; } figure.broad svg { min-width:44rem; }
figcaption { font-weight:600; font-size:.92rem; margin-bottom:.2rem; overflow-wrap:anywhere; }
figure p { margin:.1rem 0 .4rem; font-size:.82rem; color:var(--soft); line-height:1.35; }
.plot > svg { width:100%; height:auto; display:block; }
main.pair { max-width:84rem; } .beside { display:grid; gap:1.4rem;
  grid-template-columns:repeat(auto-fit,minmax(min(100%,25rem),1fr)); }
.beside > div { min-width:0; }
.beside .figures td + td { white-space:normal; }
.legend { list-style:none; display:flex; flex-wrap:wrap; gap:.2rem 1.1rem; margin:.3rem 0 0;
  padding:0; font-size:.85rem; color:var(--soft); overflow-wrap:anywhere; }
.legend svg { width:22px; height:10px; margin-right:.4rem; vertical-align:middle; }
.wide { overflow-x:auto; margin:.6rem 0; }
table { border-collapse:collapse; font-size:.88rem; }
th, td { text-align:left; padding:.25rem .8rem .25rem 0; border-bottom:1px solid var(--rule);
  vertical-align:top; }
th { color:var(--soft); font-weight:600; }
td { overflow-wrap:break-word; } td:last-child { min-width:8rem; }
.figures td { white-space:nowrap; font-variant-numeric:tabular-nums; }
details { margin:.8rem 0; } summary { cursor:pointer; font-weight:600; color:var(--accent); }
pre { background:var(--card); border-radius:.5rem; padding:.8rem; overflow-x:auto;
  font-size:.8rem; }
"""

#: Larger letters where a narrow screen shrinks the charts; must follow the charts' own rules.
_NARROW = (
    "@media (max-width: 40rem) { svg text { font-size:17px; } svg .small { font-size:15px; } }\n"
)


def _root(colours: Mapping[str, str]) -> str:
    """Return the rule that declares the colours as variables of the style sheet."""
    return ":root { " + " ".join(f"--{name}:{value};" for name, value in colours.items()) + " }"


#: The style sheet of a page, which follows the reader's choice of light or dark colours.
PAGE_STYLE = (
    f"\n{_root(LIGHT)}\n@media (prefers-color-scheme: dark) {{ {_root(DARK)} }}"
    f"{_PAGE}{_CHARTS}{_NARROW}"
)

#: The style sheet of one SVG file. Many SVG viewers read no CSS variables: each one is replaced
#: by its light colour, and a white background keeps the chart legible in a dark viewer.
FILE_STYLE = (
    re.sub(r"var\(--(\w+)\)", lambda found: LIGHT[found[1]], _CHARTS)
    + "svg { background:#ffffff; font-family:sans-serif; } .paper { fill:#ffffff; }\n"
    + "svg .title { font-weight:600; fill:#1c2126; }\n"
)
