"""The pipeline of ``nq answer --runner``: questions -> windows -> scores -> answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq.beam.decide import Decide
from nq.beam.elements import Decided
from nq.beam.files import absolute
from nq.beam.pipelines import run_in_order
from nq.beam.progress import Progress
from nq.beam.runner import Finished
from nq.beam.score import ScoreWindows
from nq.beam.transforms import MakeWindows, ReadQuestions
from nq.formats.questions import PageFolder
from nq.inference.load import ScorerSpec
from nq.records import DeadLetter


def answer_questions(
    files: Sequence[str],
    spec: ScorerSpec,
    options: Sequence[str],
    *,
    part: Path,
    shared: str,
    progress: Progress,
    limit: int | None = None,
    pages: PageFolder | None = None,
    formats: Sequence[str] = (),
    table_rows: int = 0,
    staged: Mapping[Path, str] | None = None,
    readers: int = 1,
) -> tuple[Finished, Iterator[Decided | DeadLetter]]:
    """Answers the questions in files; the answers come in the order of the input.

    Args:
        files: paths or URIs of the questions.
        spec: of the scorer.
        options: of Beam, with the runner.
        part, shared, progress: see ``run_in_order``.
        limit: answer only so many records, the first ones.
        pages: the pages that questions name.
        formats, table_rows: see ``Decide``.
        staged: see ``ScoreWindows``.
        readers: workers among which few files are shared.

    Returns:
        What the pipeline did, and its answers and dead letters, whose sources have paths that the
        workers see.

    Raises:
        Error, ValueError, DamagedError: as ``run_in_order`` does.
    """
    staged, model = staged or {}, spec.model
    if pages is not None:
        folder, names = absolute(pages.folder), tuple(map(absolute, pages.files))
        pages = replace(pages, folder=folder, files=names)
    questions = ReadQuestions(list(map(absolute, files)), limit, readers, pages=pages)
    tokenizer = staged.get(model.folder, model.folder)

    def steps(records: Any) -> tuple[Any, Any]:
        made = records | "Windows" >> MakeWindows(tokenizer, model.windows, output="examples")
        decided = (
            made.windows
            | "Score" >> ScoreWindows(spec, staged=staged)
            | "Decide" >> Decide(model.decision, formats, table_rows)
        )
        return decided, made.dead_letters

    return run_in_order(questions, steps, options, part=part, shared=shared, progress=progress)
