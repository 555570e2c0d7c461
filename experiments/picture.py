"""Draws the pictures of README.md: the page of ``nq compare``, and a question of ``nq report``.

    python -m experiments.picture

``docs/compare.png`` is drawn from a committed result, ``docs/report.png`` from a run of the bundled
questions. Chromium draws both. Each file has the sentence with the figures that it shows, which
README.md has too: a test compares them.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from experiments import command
from experiments.table_sources import COMPARED, ResultFile, read_result, speed
from nq.bundle import bundled_sample
from nq.errors import Error
from nq.lab.page import Comparison, comparison_page
from nq.lab.rows import Row
from nq.lab.run_page import write_report
from nq.runs.job import Job
from nq.runs.run import run

ROOT = Path(__file__).parents[1]
RESULT = "compare_20"
PROFILE = "mixed+buckets+openvino"
QUESTION = "6740638640302989540"
ALONE = (
    b"<style>.top, h1, .figures, #figures, #errors { display: none !important }"
    b" main { padding: 16px } #questions { grid-template-columns: 26rem 1fr !important;"
    b" height: calc(100vh - 32px) !important }</style>"
)
"""Leaves the section of the questions on the page of a report."""
SIZE, COLOURS = (1180, 668), 128
FIGURES = "figures"
"""The key of the sentence in a file."""


def draw(args: argparse.Namespace) -> int:
    """Runs the command."""
    compared = read_result(RESULT, ROOT)
    _draw(
        _comparison(compared),
        "compare.png",
        " | ".join(speed(RESULT, compared["result"])),
    )
    with tempfile.TemporaryDirectory() as folder:
        job = Job([bundled_sample()], profile=PROFILE, output=Path(folder) / "run")
        result = run(job)
        page = write_report(result.folder).page.read_bytes()
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in result.verdicts.items())
    _draw(page + ALONE, "report.png", verdicts, QUESTION)
    return 0


def figures(name: str) -> str:
    """Returns the sentence with the figures that a picture in ``docs/`` shows."""
    with Image.open(ROOT / "docs" / name) as picture:
        return str(picture.info.get(FIGURES, ""))


def _comparison(data: ResultFile) -> bytes:
    rows = Comparison(Row(**row) for row in data["result"]["rows"])
    questions = f"{COMPARED[RESULT][1]} questions about excerpts"
    about = questions, data["machine"], data["date"]
    return comparison_page(rows, f"{len(rows)} profiles", about)


def _draw(page: bytes, name: str, shown: str, place: str = "") -> None:
    """Draws a page in ``docs/``, in few colours, so that the file is small.

    ``shown`` is the sentence with its figures.
    """
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise Error("the picture needs Chromium: install chromium or google-chrome")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        picture = Path(folder) / "page.png"
        file.write_bytes(page)
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={folder}"]
        options += [f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={picture}"]
        address = f"{file.as_uri()}#{place}"
        command_line = [browser, *options, "--virtual-time-budget=10000", address]
        subprocess.run(command_line, check=True, capture_output=True)
        few = Image.open(picture).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        texts = PngInfo()
        texts.add_text(FIGURES, shown)
        few.save(ROOT / "docs" / name, optimize=True, pnginfo=texts)
    print(f"docs/{name}: {shown}")


main = command.main(draw)
