"""The house has floors: imports go down, never up or round in circles."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = (
    ("nq", "nq.errors", "nq.bundle"),
    ("nq.records", "nq.config", "nq.files"),
    ("nq.formats", "eval"),
    ("nq.commands.terminal", "nq.tracking", "nq.report.reply"),
    ("nq.preprocess", "nq.postprocess"),
    ("nq.model", "nq.runs.scoring", "nq.inference.rescore", "nq.inference.prune"),
    (
        "nq.runs.job",
        "nq.runs.examples",
        "nq.runs.scored",
        "nq.runs.run",
        "nq.reader",
        "nq.commands.arguments",
    ),
    ("nq.runs.parity", "nq.runs.profile_choice", "nq.report.summary"),
    ("nq.answer", "nq.ask", "nq.train", "nq.tune", "nq.convert"),
    ("nq.commands.main",),
    ("nq.__main__", "experiments"),
)
MODULES = sorted(p for d in ("nq", "eval", "experiments") for p in (ROOT / d).rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> int:
    """The floor of the longest name in ``FLOORS`` that ``module`` lies under."""
    homes = {
        name: floor
        for floor, names in enumerate(FLOORS)
        for name in names
        if module == name or (name != "nq" and module.startswith(name + "."))
    }
    assert homes, f"{module} has no floor; enter it in FLOORS"
    return homes[max(homes, key=len)]


def imports(path: Path) -> Iterator[str]:
    """Every module of ours that a file imports, inside functions too."""
    known = {name_of(p) for p in MODULES}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known:
                    yield full
                elif node.module in known:
                    yield node.module


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_import_goes_up(path: Path) -> None:
    mine = floor_of(name_of(path))
    above = [m for m in imports(path) if floor_of(m) > mine]
    assert not above, f"{name_of(path)} imports {above} from a floor above its own"


def test_no_circles() -> None:
    graph = {name_of(p): set(imports(p)) - {name_of(p)} for p in MODULES}
    done: set[str] = set()
    while len(done) < len(graph):
        ready = {m for m in graph if m not in done and graph[m] <= done}
        assert ready, f"a circle among {sorted(set(graph) - done)}"
        done |= ready


def test_only_tracking_imports_mlflow() -> None:
    guilty = [
        name_of(path)
        for path in MODULES
        if ROOT / "nq" / "tracking" not in path.parents
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(
            n.startswith("mlflow")
            for n in [getattr(node, "module", "") or "", *(a.name for a in node.names)]
        )
    ]
    assert not guilty


def test_evaluation_knows_nothing_of_nq() -> None:
    for path in (ROOT / "eval").rglob("*.py"):
        assert not [m for m in imports(path) if m.split(".")[0] == "nq"]
