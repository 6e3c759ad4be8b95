"""Draw one round, what leaves a party, and the README's badges: ``python docs/pictures.py``.

The numbers in ``docs/images/round.svg`` are those of one run, round 4 of::

    flwr-fbo run digits --agents 30 --rounds 20 --epsilon 5

The pictures are narrow and their letters are large, so that a phone can show them. The badges say
what ``pyproject.toml`` says, so that no service has to be asked.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent / "images"

#: Width of the picture and of a box, and the left edges of the server's and the agent's boxes.
WIDTH, BOX = 440, 318
#: Width at which a wide screen shows the picture.
SHOWN = 520
SERVER, AGENT = 24, 440 - 318 - 10
#: Heights: a title, a line of data, the padding of a box, the space between boxes.
TITLE, LINE, PAD, GAP = 20, 18, 9, 12
#: Height of an arrow from one side to the other, with its label.
ARROW = 34

#: Height of the badges, the width of a letter in them, and the space around a text.
BADGE, LETTER, ROOM = 20, 6.6, 7

STYLE = """
text { font: 13.5px sans-serif; fill: #3c4650; }
.title { font-size: 15.5px; font-weight: bold; fill: #14181b; }
.data { font-family: monospace; font-size: 13px; fill: #14181b; }
.page { fill: #ffffff; }
.server { fill: #e3eefa; stroke: #0b62a4; } .agent { fill: #e2f2e8; stroke: #1f7a4d; }
.kept { stroke-dasharray: 5 3; } rect { stroke-width: 1.4; }
.arrow { fill: none; stroke: #3c4650; stroke-width: 1.6; } .head { fill: #3c4650; }
@media (prefers-color-scheme: dark) {
text { fill: #b9c4cd; } .title, .data { fill: #f0f3f5; } .page { fill: #14181b; }
.server { fill: #16324a; stroke: #6fb6ee; } .agent { fill: #183a28; stroke: #62c592; }
.arrow { stroke: #b9c4cd; } .head { fill: #b9c4cd; }
}
"""


@dataclass(frozen=True)
class Box:
    """What one side holds at one step: a title, lines of data, and a line of explanation."""

    side: str
    title: str
    data: tuple[str, ...]
    note: str
    #: Whether the box is a file.
    kept: bool = False

    @property
    def height(self) -> int:
        """Return the height of the drawn box."""
        return 2 * PAD + TITLE + LINE * (len(self.data) + bool(self.note))

    @property
    def left(self) -> int:
        """Return the left edge of the drawn box."""
        return SERVER if self.side == "server" else AGENT


@dataclass(frozen=True)
class Message:
    """An arrow from one side to the other."""

    label: str
    to_agent: bool


#: The steps of a round from the top down. The first two boxes are made once, before round 0.
STEPS: tuple[Box | Message, ...] = (
    Box(
        "server", "Space: space.json", ("C      0.001 to 1000, log", "gamma  1e-06 to 10, log"),
        "public; every agent is sent it once", kept=True,
    ),
    Box(
        "server", "Request", ("round 4, kind step", "advice: 1 x 202 numbers"),
        "the shared function, from earlier releases",
    ),
    Message("message, to all 30 agents", True),
    Box(
        "agent", "Evaluation", ("C = 42.51, gamma = 0.0817", "accuracy = 0.6923"),
        "agent 11 chooses the point and trains once",
    ),
    Box(
        "agent", "Journal: agents/agent-0011.jsonl", ('{"round":4, "score":0.6923, ...}',),
        "written before the reply; stays at the party", kept=True,
    ),
    Box(
        "agent", "Reply", ("omega: 202 numbers",),
        "a vector for the model; no single score, no time",
    ),
    Message("message, to the server", False),
    Box(
        "server", "Sum", ("30 vectors -> 1 x 202",),
        "every vector is clipped and weighted",
    ),
    Box(
        "server", "Ledger: ledger.jsonl", ('{"round":4, "noise_multiplier":', " 1.7838, ...}"),
        "charged before any noise is drawn", kept=True,
    ),
    Box(
        "server", "Release: releases/round-0004.npz", ("sum + noise: 1 x 202 numbers",),
        "public; the next requests carry it", kept=True,
    ),
    Box(
        "server", "Checkpoint: checkpoint.npz", (),
        "the server's state; the round is closed", kept=True,
    ),
)  # fmt: skip


#: What is kept from whom, from the top down.
PRIVACY: tuple[Box | Message, ...] = (
    Box(
        "agent", "At the party", ("data, scores, settings, times",),
        "these never leave", kept=True,
    ),
    Box("agent", "Vector", ("omega: 202 numbers",), "stands for the party's model"),
    Message("one vector of every party", False),
    Box("server", "Clip", ("no vector longer than the bound",), "no party counts for more"),
    Box(
        "server", "Ledger", ("epsilon of this release",), "charged before any noise is drawn",
        kept=True,
    ),
    Box("server", "Sum + noise", ("202 numbers",), "hides what any single party sent"),
    Message("the noisy sum, to everybody", True),
    Box("agent", "Use", ("prior mean of the own model",), "free: it costs no more epsilon"),
)  # fmt: skip


def privacy_picture() -> str:
    """Return the picture of what leaves a party as the text of an SVG file."""
    parts: list[str] = []
    top, _ = _steps(parts, PRIVACY, _heads(parts, "one party"))
    return _svg(parts, top, "What stays at a party, what it sends, and what the server gives out")


def round_picture() -> str:
    """Return the picture of one round as the text of an SVG file."""
    parts: list[str] = []
    top, middles = _steps(parts, STEPS, _heads(parts, "agent 11"))
    _back(parts, middles["Release"], middles["Request"])
    label = "One round of dp-fts-de: what the server and one agent hold, send and store"
    return _svg(parts, top, label)


def _steps(
    parts: list[str], steps: tuple[Box | Message, ...], top: float
) -> tuple[float, dict[str, float]]:
    """Draw the steps; return where they end, and the middles of the boxes by their titles."""
    middles: dict[str, float] = {}
    for step in steps:
        if isinstance(step, Message):
            _message(parts, step, top)
            top += ARROW + GAP
        else:
            _box(parts, step, top)
            middles[step.title.split(":")[0]] = top + step.height / 2
            top += step.height + GAP
    return top, middles


def _svg(parts: list[str], height: float, label: str) -> str:
    """Return the parts of a picture as the text of an SVG file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{SHOWN}" '
        f'role="img" aria-label="{label}">\n<style>{STYLE}</style>\n'
        f'<rect class="page" width="{WIDTH}" height="{height}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _heads(parts: list[str], agent: str) -> int:
    """Name the two sides, explain the dashes, and return where the steps begin."""
    parts += [
        _text(SERVER, 26, "server", "title"),
        _text(AGENT + BOX, 26, agent, "title", "end"),
        _text(WIDTH / 2, 26, "dashed: a file", "", "middle"),
    ]
    return 40


def _box(parts: list[str], box: Box, top: float) -> None:
    look = f"{box.side} kept" if box.kept else box.side
    size = f'width="{BOX}" height="{box.height}"'
    parts.append(f'<rect class="{look}" x="{box.left}" y="{top}" {size} rx="6"/>')
    x, y = box.left + 11, top + PAD + 14
    parts.append(_text(x, y, box.title, "title"))
    for line in box.data:
        y += LINE
        parts.append(_text(x, y, line, "data"))
    if box.note:
        parts.append(_text(x, y + LINE, box.note))


def _message(parts: list[str], message: Message, top: float) -> None:
    left, right, y = SERVER + 20, AGENT + BOX - 20, top + ARROW - 8
    start, end, tip = (left, right, -8) if message.to_agent else (right, left, 8)
    parts += [
        _text(WIDTH / 2, y - 8, message.label, "", "middle"),
        f'<path class="arrow" d="M{start} {y}H{end + tip}"/>',
        f'<path class="head" d="M{end} {y}l{tip} -5v10z"/>',
    ]


def _back(parts: list[str], release: float, request: float) -> None:
    """Draw the arrow in the left margin: a release is in the requests that follow."""
    parts += [
        f'<path class="arrow" d="M{SERVER} {release}H10V{request}H{SERVER - 8}"/>',
        f'<path class="head" d="M{SERVER} {request}l-8 -5v10z"/>',
    ]


def _text(x: float, y: float, words: str, look: str = "", anchor: str = "start") -> str:
    names = f' class="{look}"' if look else ""
    place = f' text-anchor="{anchor}"' if anchor != "start" else ""
    # Without xml:space the columns of the space would close up.
    kept = ' xml:space="preserve"' if look == "data" else ""
    return f'<text x="{x:g}" y="{y:g}"{names}{place}{kept}>{escape(words, quote=False)}</text>'


# -- badges --------------------------------------------------------------------------------------


def facts() -> list[tuple[str, str]]:
    """Return what the badges say, as pairs of a name and a value from ``pyproject.toml``."""
    file = Path(__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    named = "Programming Language :: Python :: 3."
    minors = [c.removeprefix(named) for c in project["classifiers"] if c.startswith(named)]
    return [
        ("version", project["version"]),
        ("python", f"3.{minors[0]} to 3.{minors[-1]}"),
        ("licence", project["license"]),
    ]


def badges_picture() -> str:
    """Return the badges of the README: each a name beside its value."""
    parts, x = [], 0.0
    for name, value in facts():
        for words, colour in ((name, "#4a5560"), (value, "#0b62a4")):
            width = LETTER * len(words) + 2 * ROOM
            parts.append(
                f'<rect x="{x:g}" width="{width:g}" height="{BADGE}" fill="{colour}"/>'
                f'<text x="{x + width / 2:g}" y="14" text-anchor="middle" '
                f'textLength="{width - 2 * ROOM:g}" lengthAdjust="spacingAndGlyphs">'
                f"{escape(words)}</text>"
            )
            x += width
        x += ROOM
    label = ", ".join(f"{name} {value}" for name, value in facts())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{x - ROOM:g}" height="{BADGE}" '
        f'role="img" aria-label="{escape(label)}">\n'
        "<style>text { font: 11px Verdana, 'DejaVu Sans', sans-serif; fill: #ffffff; }</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def pictures() -> dict[str, str]:
    """Return the text of every picture by file name."""
    return {
        "round.svg": round_picture(),
        "privacy.svg": privacy_picture(),
        "badges.svg": badges_picture(),
    }


def main() -> None:
    """Write all pictures."""
    for name, text in pictures().items():
        (IMAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
