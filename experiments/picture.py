"""Draws the page of ``nq compare`` for README.md from a committed result, as docs/compare.png.

    python -m experiments.picture

Chromium draws it.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from experiments import command
from experiments.table_sources import read_result
from nq.comparison.page import comparison_page
from nq.errors import Error
from nq.report.comparison import ComparisonRow

ROOT = Path(__file__).parents[1]
RESULT, PICTURE = "compare_60", ROOT / "docs" / "compare.png"
SIZE = (1180, 668)


def draw(args: argparse.Namespace) -> int:
    """Runs the command."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise Error("the picture needs Chromium: install chromium or google-chrome")
    data = read_result(RESULT, ROOT)
    rows = [ComparisonRow(**row) for row in data["result"]["rows"]]
    about = "60 questions about excerpts", data["machine"], data["date"]
    page = comparison_page(rows, f"{len(rows)} profiles", data["result"]["reason"], about)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "compare.html"
        file.write_bytes(page)
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={folder}"]
        size = f"--window-size={SIZE[0]},{SIZE[1]}"
        picture = [f"--screenshot={PICTURE}", "--virtual-time-budget=10000", file.as_uri()]
        subprocess.run([browser, *options, size, *picture], check=True, capture_output=True)
    return 0


main = command.main(draw)

if __name__ == "__main__":
    raise SystemExit(main())
