"""Take screenshots of a run's report and of the site, wide and narrow, light and dark.

Needs ``chromium``::

    python scripts/screenshots.py flwr-fbo-runs/spring --site site --out screenshots
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from flwr_fbo.report import write_report

#: Widths in pixels: a desk and a phone. A browser's window has a least width, a frame has none.
WIDTHS = (1280, 390)
HEIGHT = {1280: 5200, 390: 9800}
#: Pages of the site of which screenshots are taken: the first page, one of each kind.
SITE = ("index", "tutorials/first-run", "concepts/overview", "evidence/defaults")
DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")
FRAME = (
    '<!DOCTYPE html><meta name="color-scheme" content="light dark">'
    "<style>body {{ margin:0 }} iframe {{ border:0; width:{width}px; height:{height}px }}</style>"
    '<iframe src="{page}"></iframe>'
)


def screenshot(browser: str, page: Path, width: int, dark: bool, out: Path, name: str = "") -> Path:
    """Write a screenshot of a page, and return its path."""
    name, height = name or page.stem, HEIGHT[width]
    target = out / f"{name}-{width}-{'dark' if dark else 'light'}.png"
    with tempfile.TemporaryDirectory() as folder:
        frame = Path(folder) / "frame.html"
        frame.write_text(FRAME.format(width=width, height=height, page=page.resolve().as_uri()))
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", f"--user-data-dir={folder}/profile", *(DARK if dark else ()),
            f"--window-size={max(width, 500)},{height}", f"--screenshot={target.resolve()}",
            frame.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target


def main() -> None:
    """Write the report of a run, and all screenshots of the report and the site."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="*", help="directories of runs")
    parser.add_argument("--site", type=Path, help="folder of the site that docs/make.py built")
    parser.add_argument("--out", type=Path, default=Path("screenshots"), help="folder of pictures")
    given = parser.parse_args()
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((found for name in names if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("chromium must be on the PATH, but is not")
    given.out.mkdir(parents=True, exist_ok=True)
    pages = {}
    if given.run:
        pages["report"] = write_report(given.run, given.out / "report.html")
    if given.site is not None:
        pages |= {f"site-{Path(p).name}": given.site / f"{p}.html" for p in SITE}
    missing = [str(page) for page in pages.values() if not page.exists()]
    if missing:
        sys.exit(f"a page must exist, but there is no {', '.join(missing)}")
    for name, page in pages.items():
        for width in WIDTHS:
            for dark in (False, True):
                print(screenshot(browser, page, width, dark, given.out, name))


if __name__ == "__main__":
    main()
