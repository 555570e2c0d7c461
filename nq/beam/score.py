"""Windows -> scores -> answers as Beam transforms; a handler of ``RunInference`` has our scorers.

A process loads a model once, however many threads it has; these score one after the other, since a
scorer is not for several threads and uses all cores itself. Examples are scored in parts with as
many windows as in a local run, so that equal parts give equal bits.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.utils.windowed_value import WindowedValue

from nq.beam.files import local_folder
from nq.config import DecisionConfig, WindowConfig
from nq.evaluation.answer_files import Answered, answer
from nq.formats import outputs
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import DEFAULT_PROFILE, TENSORFLOW, Profile
from nq.inference.scorer import Counters, Part, Scored, Scorer
from nq.model.model import Model
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import decide
from nq.records import Source, Windowed

NAMESPACE = "nq"
DEFAULT_BATCH_SIZE = 16
_scoring = threading.Lock()


@dataclass(frozen=True)
class Work:
    """The work for one example: its windows, the seconds, and where it was computed.

    Args:
        prepare_s: seconds that making the windows took.
        part: what the scorer did for all examples of a part; ``None`` for all but its first one.
    """

    windows: int
    unread_blocks: int
    prepare_s: float
    device: str
    precision: str
    reader_windows: int = 0
    rescored: bool = False
    part: Counters | None = None


@dataclass(frozen=True, eq=False)
class Decided:
    """The answer to an example, without its page."""

    source: Source
    question: str
    answered: Answered
    work: Work

    @property
    def prediction(self) -> Mapping[str, Any]:
        """The answer in the official format, ready for ``json.dumps``."""
        return self.answered.prediction


class ScoreWindows(beam.PTransform):  # type: ignore[misc]
    """Scores the windows of examples, as ``MakeWindows(…, output="examples")`` yields them.

    Each element of the result is an example with its scores (``nq.inference.scorer.Scored``) and
    the ``Work`` for it. A batch of ``RunInference``, whose metrics are in the namespace ``nq``, has
    examples with at least 16 batches of windows together.

    Args:
        model: folder or name of a model, which every worker finds under the same path; or the
            description of a scorer.
        windows, decision: by default the settings of the model folder.
        staged: path or URI of the staged copy (``nq.beam.files``) of each model folder that the
            workers do not find under its path.
    """

    def __init__(
        self,
        model: str | Path | ScorerSpec | None = None,
        profile: Profile | str = DEFAULT_PROFILE,
        batch_size: int = DEFAULT_BATCH_SIZE,
        windows: WindowConfig | None = None,
        decision: DecisionConfig | None = None,
        staged: Mapping[Path, str] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(model, ScorerSpec):
            opened = Model.open(model, windows=windows, decision=decision)
            spec = ScorerSpec(opened, Profile.of(profile), batch_size)
            folders = (part.folder for part in opened.parts)
            model = spec.in_folders({folder: folder.absolute() for folder in folders})
        self.spec = model
        self.staged = dict(staged or {})

    def expand(self, windows: Any) -> Any:
        return (
            windows
            | "Parts" >> beam.ParDo(_MakeParts(self.spec.part_windows))
            | "Score" >> RunInference(_Handler(self.spec, self.staged))
        )


class _MakeParts(beam.DoFn):  # type: ignore[misc]
    """Collects examples until they have enough windows, as ``nq.inference.scorer.parts`` does.

    Beam's ``BatchElements`` ends a batch before the element that would exceed its size.
    """

    def __init__(self, enough: int) -> None:
        self.enough = enough

    def start_bundle(self) -> None:
        self.parts: dict[Any, list[Windowed]] = {}

    def process(
        self, element: Windowed, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[list[Windowed]]:
        part = self.parts.setdefault(window, [])
        part.append(element)
        if sum(map(len, part)) >= self.enough:
            yield self.parts.pop(window)

    def finish_bundle(self) -> Iterator[Any]:
        for window, part in self.parts.items():
            yield WindowedValue(part, window.max_timestamp(), (window,))


class _Handler(ModelHandler[Sequence[Windowed], tuple[Scored, Work], Scorer]):  # type: ignore[misc]
    """Loads a scorer in a worker process, and scores parts."""

    def __init__(self, spec: ScorerSpec, staged: Mapping[Path, str]) -> None:
        super().__init__()
        self.spec = spec
        self.staged = staged

    def load_model(self) -> Scorer:
        if self.spec.profile.changes.engine == TENSORFLOW:
            import_tensorflow(self.spec.threads)
        folders = [part.folder for part in self.spec.model.parts]
        copies = {one: local_folder(self.staged.get(one, str(one))) for one in folders}
        return load_scorer(self.spec.in_folders(copies))

    def run_inference(
        self, batch: Sequence[Windowed], model: Scorer, inference_args: Any = None
    ) -> list[tuple[Scored, Work]]:
        part = Part(batch)
        with _scoring:
            before = replace(model.counters)
            columns = model.scores(part.rows, part.examples)
            done = model.counters - before
        return [
            (
                scored,
                Work(
                    len(scored.windowed),
                    scored.windowed.unread_blocks,
                    scored.windowed.seconds,
                    model.device,
                    model.precision,
                    scored.reader_windows,
                    scored.rescored,
                    None if number else done,
                ),
            )
            for number, scored in enumerate(part.scored(columns))
        ]

    def should_skip_batching(self) -> bool:
        return True

    def get_num_bytes(self, batch: Sequence[Windowed]) -> int:
        return sum(column.nbytes for one in batch for column in one.rows.values())

    def get_metrics_namespace(self) -> str:
        return NAMESPACE


class Decide(beam.PTransform):  # type: ignore[misc]
    """Decides examples from the scores of their windows, as ``ScoreWindows`` yields them.

    Each element of the result is the answer to an example (``Decided``), without its page.

    Args:
        decision: how scores become answers, or folder or name of the model whose settings it is
            in; by default that of the bundled models.
        formats: names of output formats (``nq.formats.outputs``) that answers have besides.
        with_rows: whether answers have their rows of the table of answers.
    """

    def __init__(
        self,
        decision: DecisionConfig | str | Path | None = None,
        formats: str | Sequence[str] = (),
        with_rows: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(decision, DecisionConfig):
            decision = Model.open(decision).decision
        self.settings = decision, outputs.parse(formats), with_rows

    def expand(self, scored: Any) -> Any:
        return scored | "Decide" >> beam.Map(_decide, *self.settings)


def _decide(
    element: tuple[Scored, Work],
    decision: DecisionConfig,
    formats: Sequence[str],
    with_rows: bool,
) -> Decided:
    scored, work = element
    example = scored.example
    source = scored.windowed.source
    ranked = decide(example, scored.scores, decision)
    answered = answer(example, ranked, formats, with_rows)
    return Decided(source, example.question, answered, work)
