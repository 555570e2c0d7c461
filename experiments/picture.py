"""Draws the pictures of README.md: the page of ``nq compare``, and a question of ``nq report``.

    python -m experiments.picture

``docs/compare.png`` is drawn from a committed result, ``docs/report.png`` from a run of the bundled
questions. Chromium draws both.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

from experiments import command
from experiments.table_sources import read_result
from nq.bundle import bundled_sample
from nq.comparison.page import comparison_page
from nq.errors import Error
from nq.report.comparison import ComparisonRow
from nq.runs.job import Job
from nq.runs.run import run
from nq.runs.run_page import write_report

ROOT = Path(__file__).parents[1]
RESULT, PROFILE, QUESTION = "compare_60", "mixed+buckets+openvino", "6740638640302989540"
ALONE = (
    b"<style>.top, #figures, #errors { display: none !important } main { padding: 16px }</style>"
)
"""Leaves the section of the questions on the page of a report."""
SIZE, COLOURS = (1180, 668), 128


def draw(args: argparse.Namespace) -> int:
    """Runs the command."""
    _draw(_comparison(), "compare.png")
    with tempfile.TemporaryDirectory() as folder:
        job = Job([bundled_sample()], profile=PROFILE, output=Path(folder) / "run")
        page = write_report(run(job).folder).page.read_bytes()
    _draw(page + ALONE, "report.png", QUESTION)
    return 0


def _comparison() -> bytes:
    data = read_result(RESULT, ROOT)
    rows = [ComparisonRow(**row) for row in data["result"]["rows"]]
    about = "60 questions about excerpts", data["machine"], data["date"]
    return comparison_page(rows, f"{len(rows)} profiles", data["result"]["reason"], about)


def _draw(page: bytes, name: str, place: str = "") -> None:
    """Draws a page in ``docs/``, in few colours, so that the file is small."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise Error("the picture needs Chromium: install chromium or google-chrome")
    with tempfile.TemporaryDirectory() as folder:
        file, picture = Path(folder) / "page.html", Path(folder) / "page.png"
        file.write_bytes(page)
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={folder}"]
        options += [f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={picture}"]
        address = f"{file.as_uri()}#{place}"
        command_line = [browser, *options, "--virtual-time-budget=10000", address]
        subprocess.run(command_line, check=True, capture_output=True)
        few = Image.open(picture).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(ROOT / "docs" / name, optimize=True)


main = command.main(draw)

if __name__ == "__main__":
    raise SystemExit(main())
