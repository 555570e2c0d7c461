"""Tests the site of the documentation that ``make docs`` writes, in a real browser."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nq
from tests.support.child_processes import ROOT, python
from tests.support.chromium import Browser, needs_chromium
from tests.test_docs import PAGES

pytest.importorskip("furo", reason="needs the extra [docs]")
pytestmark = pytest.mark.slow
FITS = "[...document.querySelectorAll('html, .content')].every(e => e.scrollWidth <= e.clientWidth)"
CUT = """[...document.querySelectorAll('pre')].filter(e => e.scrollWidth > e.clientWidth)
.map(e => e.textContent)"""
WITHOUT_BUTTON = """[...document.querySelectorAll('.highlight')]
.filter(e => !e.querySelector('button.copybtn')).map(e => e.textContent)"""
RESULTS = "[...document.querySelectorAll('#search-results li a')].map(a => a.textContent)"


def build(sources: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Builds a site of other sources as ``make docs`` does."""
    options = ("--quiet", "--fresh-env", "--fail-on-warning", "-c", "docs")
    return python("-m", "sphinx", *options, ".", site, folder=sources)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site that ``make docs`` writes, with the packages of this Python."""
    folder, environment = tmp_path_factory.mktemp("site"), sys.prefix
    command = ["make", "--no-print-directory", "docs", f"SITE={folder}", f"VENV={environment}"]
    command += ["--old-file", f"{environment}/.docs"]  # which is installed
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"the site: {folder}/index.html"
    assert (folder / "index.html").read_bytes() == (folder / "README.html").read_bytes()
    return folder


def test_a_broken_link_and_a_missing_docstring_fail(tmp_path: Path) -> None:
    for page in (
        *PAGES,
        "CHANGELOG.md",
        *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.*")),
        *(str(path.relative_to(ROOT)) for path in (ROOT / "nq" / "bundled").glob("*/README.md")),
    ):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    with (tmp_path / "README.md").open("a") as readme:
        readme.write("[a page](docs/pages.md), [a heading](docs/data.md#headings)\n")
    (tmp_path / "module.py").write_text(
        "def f(): ...\n\nclass Thing:\n    '''A thing.'''\n    def g(self): ...\n"
    )
    (tmp_path / "docs" / "api.rst").write_text("API\n===\n\n.. automodule:: module\n")
    done = build(tmp_path, tmp_path / "site")
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert done.returncode == 1 and len(warnings) == 4, done.stderr
    for text in ("'docs/pages.md'", "'headings'", "f has no docstring", "g has no docstring"):
        assert any(text in line for line in warnings), warnings


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "docs" / "api.html").read_text(encoding="utf-8")
    assert not [name for name in nq.__all__ if f'id="nq.{name}"' not in page]


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Browser]:
    """A browser whose pages may request nothing but files."""
    chromium.new_tab()
    yield chromium
    assert {url.split(":")[0] for url in chromium.urls} <= {"about", "data", "file"}


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("width", [390, 1500])
def test_no_page_scrolls_sideways(tab: Browser, site: Path, width: int) -> None:
    tab.size(width)
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        tab.open(page.as_uri())
        assert tab.run(FITS), page


@pytest.mark.browser
@needs_chromium
def test_code_is_whole_and_has_a_button_that_copies_it(tab: Browser, site: Path) -> None:
    tab.size(1280)
    n_blocks = 0
    for page in site.rglob("*.html"):
        tab.open(page.as_uri())
        assert tab.run(CUT) == [], page
        n_blocks += tab.run("document.querySelectorAll('.highlight pre').length")
        assert tab.run(WITHOUT_BUTTON) == [], page
    assert n_blocks > 100


@pytest.mark.browser
@needs_chromium
def test_the_search_finds_a_page_and_a_name(tab: Browser, site: Path) -> None:
    for words, title in (("lighthouse", "Documents"), ("page_from_html", "nq.page_from_html")):
        tab.open(f"{(site / 'search.html').as_uri()}?q={words}")
        tab.wait_for(f"{RESULTS}.includes({title!r})")
