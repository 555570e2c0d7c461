"""README.md and docs/ name only what exists, and the examples in README.md run."""

import ast
import contextlib
import importlib
import importlib.util
import io
import json
import pkgutil
import re
import shlex
import shutil
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest

import nq
from experiments import picture
from experiments.peers.models import PEERS
from nq.commands import main as console
from nq.formats import inputs, outputs, own_data
from nq.inference.profile import default_choice
from tests.support.child_processes import ROOT, python

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "experiments" / "README.md",
        ROOT / "experiments" / "planning" / "README.md",
        ROOT / "nq" / "bundled" / "README.md",
        *sorted((ROOT / "models").glob("*/*/README.md")),
        *sorted((ROOT / "docs").glob("*.md")),
    )
}
README = PAGES["README.md"]
OPTIONS_OF_OTHERS = {
    "--constraint",
    "--data-binary",
    "--depth",
    "--env-manager",
    "--environment_cache_millis",
    "--environment_config",
    "--environment_type",
    "--exclude-editable",
    "--experiment-name",
    "--flink_master",
    "--flink_version",
    "--from",
    "--hypothesis-profile",
    "--job_endpoint",
    "--parallelism",
    "--project",
    "--region",
    "--runner",
    "--sdk_container_image",
    "--sdk_worker_parallelism",
    "--service_port",
    "--spark_master_url",
    "--temp_location",
}
FORWARDED_TO = {"nq compare": "nq answer", "experiments.compression": "nq train"}
"""Commands that pass options which they do not know to another command."""
NOT_PYTHON = ("nq.json", "nq.models")
SESSION = re.compile(r"\$ cat docs/lighthouse.txt\n(.*?)\n\$ nq (ask .*?)\n(.*?)\n\$", re.DOTALL)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN = re.compile(
    r"<!-- test: this session is run by tests/test_docs.py -->\n```\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)
DEFAULT = "mixed+buckets+openvino"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
FIGURE, DRIFT = re.compile(r"\d\.\d{3}"), 0.05
"""An F1, and how much it may differ, since processors round bfloat16 differently."""
COMMAND = re.compile(r"(?:python -m |^\$? ?(?=nq [a-z]))([\w.]+(?:(?<=nq) [a-z]+)?)(.*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]+")

each_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def code(page: str) -> list[str]:
    """Returns the lines of a page's code blocks, continued ones joined, and its inline code."""
    blocks = "".join(block for _, block in BLOCK.findall(page)).replace("\\\n", " ")
    inline = re.findall(r"`([^`]+)`", BLOCK.sub("", page))
    return [*blocks.splitlines(), *(" ".join(text.split()) for text in inline)]


def commands(page: str) -> list[tuple[str, list[str]]]:
    """Returns the commands of a page, ``nq NAME`` or a module, each with its options."""
    parts = [part for line in code(page) for part in line.split(" -- ")]
    matches = [match for part in parts if (match := COMMAND.search(part.strip()))]
    return [(match[1], OPTION.findall(match[2])) for match in matches]


MODULES = {
    f"nq.{name}": name for name in console.COMMANDS if importlib.util.find_spec(f"nq.{name}")
}
"""The commands that are modules, too: ``python -m nq.NAME`` is ``nq NAME``."""


@cache
def known_options(command: str) -> frozenset[str]:
    """Returns the options in the help text of ``nq NAME`` or of a module."""
    kind, _, name = command.partition(" ")
    name = name or MODULES.get(kind, "")
    if name:
        run, arguments = console.console, [name, "--help"]
    else:
        spec = importlib.util.find_spec(kind)
        is_package = spec is not None and spec.submodule_search_locations
        run = importlib.import_module(f"{kind}.__main__" if is_package else kind).main
        arguments = ["--help"]
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        run(arguments)
    return frozenset(OPTION.findall(text.getvalue()))


@pytest.mark.parametrize("name", ["compare.png", "report.png"])
def test_pictures_of_the_readme_show_the_figures_of_its_text(name: str) -> None:
    """A picture that is of another run: ``make pictures`` draws it again."""
    shown = picture.figures(name)
    assert NUMBER.search(shown) and shown in README
    assert f"](docs/{name})" in README


@pytest.mark.parametrize("name", console.COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    assert f"`nq {name}`" in README
    assert any(command == f"nq {name}" for page in PAGES.values() for command, _ in commands(page))


def test_every_input_and_output_format_is_documented() -> None:
    page = PAGES["docs/data.md"]
    marks = [f"| `{mark}` |" for mark in (*inputs.DIALECTS, own_data.QUESTION)]
    names = [f"`--formats {name}`" for name in outputs.FORMATS]
    assert not [text for text in (*marks, *names) if text not in page]


def test_commands_exist_and_know_their_options() -> None:
    named = [command for page in PAGES.values() for command in commands(page)]
    assert len(named) > 50
    unknown = [
        (command, option)
        for command, options in named
        for option in options
        if option not in OPTIONS_OF_OTHERS | known_options(command)
        and option not in known_options(FORWARDED_TO.get(command, command))
    ]
    assert not unknown


@each_page
def test_options_exist(page: str) -> None:
    used = {command for text in PAGES.values() for command, _ in commands(text)}
    known = OPTIONS_OF_OTHERS.union(*map(known_options, used))
    assert set(OPTION.findall(page)) <= known


TARGETS = set(
    re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)
SETUP = ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")


@each_page
def test_files_targets_extras_and_python_names_exist(page: str) -> None:
    paths = set(re.findall(r"`((?:nq|eval|experiments|tests|docs)/[\w/.-]+)`", page)) - set(PEERS)
    made = "experiments/results/"
    assert not [path for path in paths if not (path.startswith(made) or (ROOT / path).exists())]
    targets = [m[1] for line in code(page) if (m := re.match(r"make ([a-z][\w-]*)", line))]
    assert set(targets) <= TARGETS
    extras = ",".join(re.findall(r"(?:'nq|'\.|`)\[([a-z\d,]+)\]['`]", page))
    assert set(filter(None, extras.split(","))) <= set(SETUP["options.extras_require"])
    names = set(re.findall(r"(?<![\w./-])nq(?:\.\w+)+", "\n".join(code(page))))
    imports = re.findall(r"^from (nq[\w.]*) import (.+)$", "\n".join(code(page)), re.MULTILINE)
    names |= {f"{module}.{name}" for module, group in imports for name in group.split(", ")}
    for name in names.difference(NOT_PYTHON):
        pkgutil.resolve_name(name)
    for language, block in BLOCK.findall(page):
        if language == "python":
            ast.parse(block)


@each_page
def test_links_lead_somewhere(page: str) -> None:
    folder = (ROOT / next(name for name, text in PAGES.items() if text == page)).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", page):
        path, _, heading = target.partition("#")
        if path.startswith("https://"):
            continue
        linked = folder / path if path else None
        assert linked is None or linked.exists(), target
        text = linked.read_text(encoding="utf-8") if linked and heading else page
        slugs = [
            re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        ]
        assert not heading or heading in slugs, target


def run_example(page: str, folder: Path) -> str:
    """Runs the Python block that a page marks as a test; returns what it prints."""
    match = re.search(r"<!-- test: .* -->\n```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert match
    (folder / "example.py").write_text(match[1], encoding="utf-8")
    done = python("example.py", folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_python_examples_of_readme_and_recipes_run(tmp_path: Path) -> None:
    session = SESSION.search(README)
    assert session
    page = ROOT / "docs" / "lighthouse.txt"
    assert page.read_text(encoding="utf-8").strip() == session[1].strip()
    (tmp_path / "docs").symlink_to(page.parent)
    assert run_example(README, tmp_path).startswith("1986 0.")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "lighthouse.txt").write_text(session[1], encoding="utf-8")
    (tmp_path / "notes" / "cats.txt").write_text("Cats sleep.", encoding="utf-8")
    printed = run_example(PAGES["docs/recipes.md"], tmp_path)
    assert printed.startswith("notes/lighthouse.txt 1986 Its last keeper")


def pattern(shown: str) -> str:
    """Returns a regular expression for what a session shows of an output.

    A line "…" stands for any lines, "…" in a line for any text, a number for any number, which is
    a group.
    """
    lines = []
    for line in shown.splitlines():
        parts = re.split(rf"(…|{NUMBER.pattern})", line)
        texts = [
            "[^\n]*" if part == "…" else f"({NUMBER.pattern})" if n % 2 else re.escape(part)
            for n, part in enumerate(parts)
        ]
        lines.append(r"(?:.*\n)*?" if line == "…" else "".join((*texts, r"\n")))
    return "".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if RUN.search(text)])
def test_sessions_of_the_documentation_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # which the table of answers fits
    if default_choice("CPU") != DEFAULT:
        pytest.skip(f"the sessions are of a processor where the default profile is {DEFAULT}")
    shutil.copy(nq.bundled_sample(), tmp_path / "dev.jsonl")
    for folder in ("docs", "handbook"):
        (tmp_path / folder).mkdir()
        shutil.copy(ROOT / "docs" / "lighthouse.txt", tmp_path / folder)
    for session in RUN.findall(PAGES[page]):
        for part in session.removeprefix("$ ").split("\n$ "):
            command, _, shown = f"{part.rstrip()}\n".partition("\n")
            program, *arguments = shlex.split(command)
            file = tmp_path / arguments[0]
            if program == "cat" and not file.exists():
                file.write_text(shown, encoding="utf-8")
                continue
            if program == "cat":
                printed = file.read_text(encoding="utf-8")
            else:
                done = python("-m", program, *arguments, folder=tmp_path)
                assert done.returncode == 0, f"{command}: {done.stderr}"
                printed = done.stdout
            match = re.fullmatch(pattern(shown), printed)
            assert match, f"{command} prints\n{printed}"
            for number, value in zip(NUMBER.findall(shown), match.groups(), strict=True):
                if FIGURE.fullmatch(number):
                    assert float(value) == pytest.approx(float(number), abs=DRIFT), command


@pytest.mark.slow
def test_pipeline_of_the_documentation_runs(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "dev.jsonl.gz").write_bytes(nq.bundled_sample().read_bytes() + b"bad\n")
    (tmp_path / "FOLDER").symlink_to(tiny_model)
    assert run_example(PAGES["docs/python.md"], tmp_path).startswith("41 not JSON: ")
    lines = "".join(map(Path.read_text, tmp_path.glob("predictions*"))).splitlines()
    assert len({json.loads(line)["example_id"] for line in lines}) == len(lines) == 40


@pytest.mark.slow
def test_shown_answer_of_the_readme_is_what_nq_ask_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    match = SESSION.search(README)
    assert match
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    assert console.console(shlex.split(match[2])) == 0
    assert capsys.readouterr().out.strip() == match[3].strip()
