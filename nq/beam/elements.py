"""What passes between the stages of a pipeline: one element for each example.

    ReadQuestions  (Source, Example | DeadLetter)
    MakeWindows    Windowed, with ``output="examples"``
    ScoreWindows   Scored
    Decide         Decided

All but the last hold the page. Between these stages no element is sent to another worker, unless a
pipeline has a step there that does so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nq.evaluation.answers import Answered
from nq.inference.scorer import Counters
from nq.records import Columns, Example, Scores, Source


@dataclass(frozen=True, eq=False)
class Windowed:
    """An example with its windows.

    Args:
        source: where the example was read.
        example: question and page.
        rows: its windows, as ``Scorer.scores`` takes them.
        unread_blocks: blocks with text beyond ``max_contexts``.
        seconds: that making the windows took.
    """

    source: Source
    example: Example
    rows: Columns
    unread_blocks: int
    seconds: float

    def __len__(self) -> int:
        return len(self.rows["window_ids"])


@dataclass(frozen=True)
class Work:
    """What was done for one example.

    Args:
        windows: of the example.
        unread_blocks: see ``Windowed``.
        prepare_s: seconds that making the windows took.
        device, precision: of the scorer.
        reader_windows: windows that the second model computed.
        rescored: whether the close decision of the example was computed again in float32.
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
class Scored:
    """An example with the scores of its windows.

    Args:
        source, example: see ``Windowed``.
        scores: of all its windows.
        work: what was done for it.
    """

    source: Source
    example: Example
    scores: Scores
    work: Work


@dataclass(frozen=True, eq=False)
class Decided:
    """The answer to an example, without its page.

    Args:
        source: where the example was read.
        question: its question.
        answered: the answer.
        work: what was done for it.
    """

    source: Source
    question: str
    answered: Answered
    work: Work

    @property
    def prediction(self) -> Mapping[str, Any]:
        """The answer in the official format, ready for ``json.dumps``."""
        return self.answered.prediction
