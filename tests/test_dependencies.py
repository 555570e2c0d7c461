"""Tests which packages of nq import which others, and when heavy libraries are imported."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from nq.commands.main import COMMANDS, module_of

ROOT = Path(__file__).parent.parent
ALLOWED: dict[str, tuple[str, ...]] = {
    "nq": (),
    "nq.bundle": (),
    "nq.child": (),
    "nq.config": (),
    "nq.errors": (),
    "nq.interruption": (),
    "nq.json_files": (),
    "nq.processor": (),
    "nq.records": (),
    "nq.text": (),
    "nq.extras": ("nq", "nq.errors"),
    "nq.files": ("nq.errors",),
    "nq.folders": ("nq", "nq.errors", "nq.files"),
    "nq.checksums": ("nq.errors", "nq.files"),
    "nq.evaluation": ("nq.text",),
    "nq.analysis": ("nq.evaluation", "nq.postprocess", "nq.records", "nq.text"),
    "eval": ("nq.evaluation",),
    "nq.formats": ("nq.errors", "nq.files", "nq.records"),
    "nq.tracking": ("nq.extras", "nq.text"),
    "nq.preprocess.tokenizers": ("nq.config", "nq.json_files"),
    "nq.preprocess": (
        *("nq", "nq.checksums", "nq.config", "nq.errors", "nq.files", "nq.folders"),
        *("nq.records", "nq.text"),
        *("nq.formats", "nq.preprocess.tokenizers"),
    ),
    "nq.runs.evaluate": ("nq.evaluation", "nq.files", "nq.formats", "nq.records"),
    "nq.runs.answers": (
        *("nq.config", "nq.formats", "nq.postprocess", "nq.records", "nq.runs.evaluate"),
    ),
    "nq.beam": (
        *("nq", "nq.child", "nq.config", "nq.errors", "nq.evaluation", "nq.extras", "nq.formats"),
        *("nq.preprocess", "nq.preprocess.tokenizers", "nq.records"),
        *("nq.model", "nq.inference", "nq.runs.answers", "nq.runs.evaluate"),
    ),
    "nq.preprocess.prepare": (
        *("nq.beam", "nq.errors", "nq.extras", "nq.folders", "nq.formats", "nq.preprocess"),
    ),
    "nq.preprocess.prefetch": ("nq.child", "nq.errors", "nq.preprocess", "nq.preprocess.prepare"),
    "nq.postprocess": ("nq.config", "nq.errors", "nq.records"),
    "nq.model": (
        *("nq.bundle", "nq.config", "nq.errors", "nq.extras", "nq.files", "nq.folders"),
        *("nq.json_files", "nq.records", "nq.text", "nq.formats", "nq.preprocess.tokenizers"),
        "nq.tracking",
    ),
    "nq.training": (
        *("nq.checksums", "nq.config", "nq.errors", "nq.folders", "nq.records"),
        *("nq.formats", "nq.tracking"),
        *("nq.preprocess", "nq.preprocess.prepare", "nq.preprocess.tokenizers"),
        *("nq.model", "nq.inference", "nq.postprocess", "nq.runs.evaluate"),
    ),
    "nq.inference": (
        *(
            "nq.child",
            "nq.config",
            "nq.errors",
            "nq.extras",
            "nq.processor",
            "nq.records",
            "nq.text",
        ),
        *("nq.model", "nq.postprocess", "nq.preprocess", "nq.preprocess.tokenizers"),
    ),
    "nq.planning": (
        *(
            "nq.child",
            "nq.config",
            "nq.errors",
            "nq.records",
            "nq.text",
            "nq.model",
            "nq.inference",
        ),
    ),
    "nq.runs": (
        *("nq", "nq.checksums", "nq.config", "nq.errors", "nq.extras", "nq.files", "nq.folders"),
        *("nq.beam", "nq.processor", "nq.records", "nq.text"),
        *("nq.evaluation", "nq.formats", "nq.runs.answers", "nq.runs.evaluate", "nq.tracking"),
        *("nq.preprocess", "nq.preprocess.prefetch", "nq.preprocess.prepare"),
        "nq.preprocess.tokenizers",
        *("nq.model", "nq.inference", "nq.postprocess", "nq.analysis", "nq.analysis.html"),
    ),
    "nq.analysis.html": (
        *("nq.analysis", "nq.evaluation", "nq.files", "nq.formats", "nq.records", "nq.text"),
    ),
    "nq.report": ("nq.formats", "nq.records", "nq.runs", "nq.text", "nq.tracking"),
    "nq.model_setup": (
        *("nq.bundle", "nq.config", "nq.errors", "nq.records", "nq.formats"),
        *("nq.preprocess", "nq.preprocess.tokenizers"),
        *("nq.model", "nq.inference", "nq.postprocess"),
    ),
    "nq.reader": (
        *("nq.config", "nq.errors", "nq.records", "nq.formats"),
        *("nq.preprocess", "nq.preprocess.tokenizers"),
        *("nq.model", "nq.inference", "nq.postprocess", "nq.model_setup", "nq.report"),
    ),
    "nq.serving": (
        *("nq", "nq.config", "nq.errors", "nq.interruption", "nq.records", "nq.text"),
        *("nq.formats", "nq.preprocess", "nq.preprocess.tokenizers"),
        *("nq.inference", "nq.postprocess", "nq.reader", "nq.report"),
    ),
    "nq.commands": (
        *("nq", "nq.bundle", "nq.config", "nq.errors", "nq.evaluation", "nq.extras", "nq.files"),
        *("nq.beam", "nq.folders", "nq.interruption", "nq.preprocess.prepare"),
        *("nq.records", "nq.text", "nq.formats", "nq.preprocess", "nq.model", "nq.training"),
        *("nq.inference", "nq.runs", "nq.runs.evaluate", "nq.tracking", "nq.report", "nq.reader"),
        "nq.analysis",
        *("nq.model_setup", "nq.planning", "nq.serving"),
    ),
    "nq.__main__": ("nq.commands",),
    "nq.answer": ("nq.commands",),
    "nq.ask": ("nq.commands",),
    "nq.clean": ("nq.commands",),
    "nq.convert": ("nq.commands",),
    "nq.preprocess.__main__": ("nq.commands",),
    "nq.runs.__main__": ("nq.commands",),
    "nq.serve": ("nq.commands",),
    "nq.train": ("nq.commands",),
    "nq.tune": ("nq.commands",),
}
"""Maps each package or module to the others that its modules may import.

A module belongs to the longest name that it is or begins with. Experiments may import everything.
"""
HEAVY = {
    "tensorflow": ("nq",),
    "keras": ("nq",),
    "apache_beam": ("nq.beam",),
    "mlflow": ("nq.tracking", "nq.serving"),
    "fastapi": ("nq.serving",),
    "fastapi_offline": ("nq.serving",),
    "prometheus_client": ("nq.serving",),
    "pydantic": ("nq.serving",),
    "starlette": ("nq.serving",),
    "uvicorn": ("nq.serving",),
}
"""Maps each heavy library to the packages that may import it."""
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("nq", "eval", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
OURS = [name for name in MODULES if not name.startswith("experiments")]


def import_nodes(text: str) -> Iterator[tuple[str, str]]:
    """Yields module and name of each import, those inside functions too; ``import x`` has none."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((node.module or "", alias.name) for alias in node.names)


def public_names() -> dict[str, str]:
    """Returns the module of each public name of nq, as its stub imports them."""
    tree = ast.parse((ROOT / "nq" / "__init__.pyi").read_text(encoding="utf-8"))
    return {
        alias.name: f"nq.{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


PUBLIC = public_names()


def imports(module: str) -> set[str]:
    """Returns the modules of this repository that a module imports."""
    found = set()
    for name, member in import_nodes(MODULES[module].read_text(encoding="utf-8")):
        full = f"{name}.{member}" if member else name
        if name == "nq" and member in PUBLIC:
            found.add(PUBLIC[member])
        elif full == "nq":
            found.update(PUBLIC.values())
        elif full in MODULES:
            found.add(full)
        elif name in MODULES:
            found.add(name)
    return found - {module}


def package_of(module: str) -> str:
    """Returns the entry of ``ALLOWED`` to which a module belongs."""
    names = [n for n in ALLOWED if module == n or (n != "nq" and module.startswith(f"{n}."))]
    assert names, f"{module} is in no package of ALLOWED; add an entry"
    return max(names, key=len)


def used(package: str) -> set[str]:
    """Returns the packages that the modules of a package import."""
    modules = [module for module in OURS if package_of(module) == package]
    assert modules, f"ALLOWED has {package}, which does not exist"
    return {package_of(name) for module in modules for name in imports(module)} - {package}


@pytest.mark.parametrize("module", OURS)
def test_a_module_imports_only_what_its_package_may(module: str) -> None:
    package = package_of(module)
    others = {name for name in imports(module) if package_of(name) != package}
    wrong = {name for name in others if package_of(name) not in ALLOWED[package]}
    assert not wrong, f"{module} imports {sorted(wrong)}, which ALLOWED[{package!r}] lacks"


@pytest.mark.parametrize("package", ALLOWED)
def test_every_allowed_dependency_is_used(package: str) -> None:
    assert len(set(ALLOWED[package])) == len(ALLOWED[package])
    assert set(ALLOWED[package]) <= ALLOWED.keys()
    unused = set(ALLOWED[package]) - used(package)
    assert not unused, f"{package} does not import {sorted(unused)}; remove them from ALLOWED"


def test_there_are_no_circles() -> None:
    tuple(TopologicalSorter(ALLOWED).static_order())
    tuple(TopologicalSorter({module: imports(module) for module in MODULES}).static_order())


def test_commands_are_imported_only_by_the_modules_that_run_them() -> None:
    importers = {package for package in ALLOWED if "nq.commands" in ALLOWED[package]}
    assert all(len(MODULES[name].read_text("utf-8").splitlines()) < 10 for name in importers)


@pytest.mark.parametrize("library", HEAVY)
def test_a_heavy_library_is_imported_by_its_package_only(library: str) -> None:
    importers = {
        module
        for module, path in MODULES.items()
        for name, _ in import_nodes(path.read_text(encoding="utf-8"))
        if name.split(".")[0] == library and not module.startswith("experiments")
    }
    assert importers or library == "mlflow", f"nothing imports {library}"
    allowed = tuple(f"{package}." for package in HEAVY[library])
    assert all(f"{module}.".startswith(allowed) for module in importers)


@pytest.mark.parametrize("library", ["apache_beam", "mlflow"])
def test_experiments_import_neither_beam_nor_mlflow(library: str) -> None:
    for module in MODULES.keys() - {*OURS, "experiments.flink.worker_pool"}:
        text = MODULES[module].read_text(encoding="utf-8")
        assert not [name for name, _ in import_nodes(text) if name.split(".")[0] == library]


def test_help_needs_no_heavy_library() -> None:
    """Imports nq, then the commands, and makes every parser, in one fresh process."""
    steps = ["import nq", "import nq.commands.main", "import nq.reader, nq.runs.run"]
    steps += [
        f"import {module_of(command)} as module; module.parser().format_help()"
        for command in COMMANDS
    ]
    code = (
        "import json, sys\n"
        f"for step in {steps!r}:\n"
        "    exec(step)\n"
        f"    loaded = [name for name in {[*HEAVY, 'matplotlib', 'openvino']!r} "
        "if name in sys.modules]\n"
        "    print(json.dumps([step, loaded]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert results == [[step, []] for step in steps]
