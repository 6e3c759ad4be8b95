"""Record the README's main command in a terminal, as an animated SVG.

Needs ``pyte`` (a terminal without a window)::

    python scripts/record.py [--out docs/images/terminal.svg]

The command is read from the README and really run, with a terminal of its own. What the terminal
shows is kept whenever it changed, and shown again, faster. A reader who asked for no motion sees
the last screen.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import time
from fcntl import ioctl
from html import escape
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

ROOT = Path(__file__).parents[1]
COLUMNS, ROWS = 132, 30
#: Size of a letter and a line, and the space around them, in the picture's own units.
LETTER, LINE, PAD = 7.3, 17, 14
#: A screen is kept at most so often, in seconds; the recording is shown in so many seconds.
APART, SHOWN = 0.3, 16.0
COLOURS = {
    "red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "blue": "#79c0ff",
    "magenta": "#d2a8ff", "cyan": "#76e3ea", "black": "#6e7681", "white": "#f0f6fc",
    "default": "#d6dde4",
}  # fmt: skip
STYLE = (
    "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;"
    "fill:#d6dde4}.f{visibility:hidden}@keyframes on{to{visibility:visible}}"
    "@keyframes off{to{visibility:hidden}}"
)
CALM = (
    "@media (prefers-reduced-motion:reduce){.f{animation:none!important}.last{visibility:visible}}"
)

#: A screen: its lines, each as pieces of the same colour.
Screen = tuple[tuple[tuple[str, str], ...], ...]


def main_command() -> str:
    """Return the last line of the README's main command, without its ``.venv/bin/``."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- main command -->\n```sh\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    return found[1].strip().splitlines()[-1].removeprefix(".venv/bin/")


def record(command: str) -> list[tuple[float, Screen]]:
    """Run a command in a terminal; return its screens with the seconds of each."""
    import pyte

    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    leader, follower = pty.openpty()
    ioctl(follower, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    stream.feed(f"\x1b[1m$ {command}\x1b[0m\r\n".encode())
    frames: list[tuple[float, Screen]] = [(0.0, seen(screen))]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with subprocess.Popen(
            command.split(), stdin=follower, stdout=follower, stderr=follower, cwd=folder,
            env=environment, start_new_session=True,
        ) as process:  # fmt: skip
            os.close(follower)
            while chunk := _read(leader):
                stream.feed(chunk)
                now = time.monotonic() - began
                if now - frames[-1][0] >= APART and seen(screen) != frames[-1][1]:
                    frames.append((now, seen(screen)))
            code = process.wait()
        frames.append((time.monotonic() - began, seen(screen)))
    if code:
        raise SystemExit(f"`{command}` must succeed, but ended with {code}")
    return frames


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # the other side is closed: the command has ended
        return b""


def seen(screen: Any) -> Screen:
    """Return what a terminal shows, as lines of pieces (text, colour)."""
    lines = []
    for row in range(screen.lines):
        pieces: list[tuple[str, str]] = []
        for column in range(screen.columns):
            letter = screen.buffer[row][column]
            look = COLOURS.get(letter.fg, f"#{letter.fg}") if letter.fg else COLOURS["default"]
            if letter.bold and letter.fg == "default":
                look = COLOURS["white"]
            if pieces and (pieces[-1][1] == look or letter.data == " "):
                pieces[-1] = (pieces[-1][0] + letter.data, pieces[-1][1])
            else:
                pieces.append((letter.data, look))
        lines.append(tuple((text, look) for text, look in pieces))
    return tuple(lines)


def drawn(frames: list[tuple[float, Screen]], command: str) -> str:
    """Return the recording as the text of an SVG file."""
    length = frames[-1][0]
    speed = max(1.0, length / SHOWN)
    used = max(i for _, s in frames for i, line in enumerate(s) if _text(line).strip()) + 1
    width, height = COLUMNS * LETTER + 2 * PAD, (used + 1) * LINE + 2 * PAD
    rules, groups = [], []
    for n, (when, screen) in enumerate(frames):
        on = f"on 1ms {when / speed:.2f}s forwards"
        last = n == len(frames) - 1
        off = "" if last else f",off 1ms {frames[n + 1][0] / speed:.2f}s forwards"
        rules.append(f".f{n}{{animation:{on}{off}}}")
        lines = "".join(_line(line, i) for i, line in enumerate(screen[:used]))
        groups.append(f'<g class="f f{n}{" last" if last else ""}">{lines}</g>')
    note = f"recorded from one real run of {length:.0f} s, shown {speed:.0f} times as fast"
    if speed == 1.0:
        note = f"recorded from one real run of {length:.0f} s"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" aria-label="{escape(command)}: {note}">'
        f"<style>{STYLE}{''.join(rules)}{CALM}</style>"
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#161b22"/>\n'
        + "\n".join(groups)
        + f'\n<text x="{width - PAD:.0f}" y="{height - 9:.0f}" text-anchor="end" '
        f'style="fill:#8b949e">{note}</text></svg>\n'
    )


def _text(line: tuple[tuple[str, str], ...]) -> str:
    return "".join(text for text, _ in line)


def _line(line: tuple[tuple[str, str], ...], row: int) -> str:
    if not _text(line).strip():
        return ""
    pieces = list(line)
    pieces[-1] = (pieces[-1][0].rstrip(), pieces[-1][1])
    spans = "".join(
        escape(text)
        if look == COLOURS["default"]
        else f'<tspan fill="{look}">{escape(text)}</tspan>'
        for text, look in pieces
    )
    return f'<text x="{PAD}" y="{PAD + LINE * (row + 0.8):.0f}" xml:space="preserve">{spans}</text>'


def main() -> None:
    """Record the README's main command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "terminal.svg")
    parser.add_argument("--command", default=main_command(), help="another command")
    given = parser.parse_args()
    frames = record(given.command)
    given.out.write_text(drawn(frames, given.command), encoding="utf-8")
    print(f"{given.out}: {len(frames)} screens, {given.out.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
