"""Small files in the formats that people have, about one text, for tests."""

import copy
import json
from pathlib import Path
from typing import Any

CONTEXT = (
    "The Skerry Point lighthouse stands on a rock two miles off the village of Dunmore.\r\n"
    "It was designed by Ada Brenn \U0001f600 (1838-1901) and first lit on 4 May 1874.\r\n\r\n"
    "Its last keeper,\tTom Hale, lived in the tower until it was automated in 1986."
)
KEEPER = CONTEXT.index("Tom Hale")


def placed(text: str, shift: int = 0) -> dict[str, Any]:
    """Returns an answer of SQuAD, at its first place in the context."""
    return {"text": text, "answer_start": CONTEXT.index(text) + shift}


QUESTIONS: list[dict[str, Any]] = [
    {"id": "q1", "question": "When was it automated?", "answers": [placed("1986"), placed("1986")]},
    {"id": "q2", "question": "Who designed it?", "answers": [placed("Ada Brenn")]},
    {"id": "q3", "question": "Who painted it?", "answers": [], "is_impossible": True},
]


def squad(*questions: Any, context: Any = CONTEXT) -> dict[str, Any]:
    """Returns a SQuAD document with one paragraph."""
    paragraph = {"context": context, "qas": copy.deepcopy(list(questions or QUESTIONS))}
    return {"version": "v2.0", "data": [{"title": "Skerry Point", "paragraphs": [paragraph]}]}


def write_squad(path: Path, *questions: Any) -> Path:
    """Writes a SQuAD file."""
    path.write_text(json.dumps(squad(*questions)), encoding="utf-8")
    return path


def mrqa() -> list[dict[str, Any]]:
    """Returns the lines of an MRQA file."""
    detected = [{"text": "Tom Hale", "char_spans": [[KEEPER, KEEPER + 7]]}]
    first = {"qid": "m1", "question": "Who kept it?", "answers": ["Hale", "Tom Hale"]}
    return [
        {"header": {"dataset": "own", "split": "dev"}},
        {
            "id": "",
            "context": CONTEXT,
            "qas": [first | {"detected_answers": detected}, {"qid": "m2", "question": "Why?"}],
        },
        {"context": "It rains.", "qas": [{"qid": "m3", "question": "Does it rain?"}]},
    ]
