"""Small valid records of every input dialect, made from a seeded generator."""

import csv
import io
import json
import random
from typing import Any

Record = dict[str, Any]

WORDS = (
    *("the", "moon", "landing", "was", "in", "1969", ".", "who", "first", "walked", "(", "Ünïcode"),
    *("月", "พระจันทร์", "<3", "a_b", "\u202f", "👩\u200d🚀", "[SEP]", "[ContextId=3]", "x" * 70),
)
NAMES = ("p", "table", "tr", "td", "ul", "li", "h1", "div", "b", "script", "nav")
TAGS = ("P", "Table", "Ul", "Tr", "H1")
SPAN_NAMES = ("start_token", "end_token")
YES_NO = ("NONE", "NO", "YES")


def _span(start: int, end: int, **more: Any) -> Record:
    return {"start_token": start, "end_token": end, **more}


def simplified(chance: random.Random, annotators: int = 1) -> Record:
    """Returns a record of simplified NQ with annotators; 0 of them as in Kaggle's test file."""
    tokens: list[str] = []
    candidates = []
    for _ in range(chance.randrange(1, 5)):
        tag, start = chance.choice(TAGS), len(tokens)
        tokens += [f"<{tag}>", *chance.choices(WORDS, k=chance.randrange(1, 25)), f"</{tag}>"]
        candidates.append(_span(start, len(tokens), top_level=chance.random() < 0.8))
    record = {
        "example_id": chance.randrange(-(2**62), 2**62),
        "document_title": "Moon",
        "question_text": " ".join(chance.choices(WORDS, k=6)),
        "document_text": " ".join(tokens),
        "long_answer_candidates": candidates,
    }
    annotations = [_annotation(chance, candidates) for _ in range(annotators)]
    if not annotators:  # as in the Kaggle test file, whose ids are text
        return record | {"example_id": str(record["example_id"])}
    return record | {"annotations": annotations}


def _annotation(chance: random.Random, candidates: list[Record]) -> Record:
    index, shorts = chance.randrange(-1, len(candidates)), list[Record]()
    long = _span(-1, -1)
    if index >= 0:
        long = {name: candidates[index][name] for name in SPAN_NAMES}
        start = long["start_token"] + 1
        shorts = [_span(start, start + 1)] * chance.randrange(3)
    return {
        "annotation_id": 1,
        "long_answer": long | {"candidate_index": index},
        "short_answers": shorts,
        "yes_no_answer": chance.choice(YES_NO),
    }


def v1(chance: random.Random) -> Record:
    """Returns a record of NQ v1.0 with five annotators."""
    record = simplified(chance, 5)
    tokens, start = [], 0
    for token in record.pop("document_text").split(" "):
        end = start + len(token.encode())
        is_tag = token.startswith("<") and token.endswith(">")
        tokens.append({"token": token, "start_byte": start, "end_byte": end, "html_token": is_tag})
        start = end + 1
    return record | {"document_tokens": tokens, "question_tokens": ["who", "?"]}


def hugging_face(chance: random.Random) -> Record:
    """Returns a row of Hugging Face's natural_questions, with objects of lists."""
    record = v1(chance)
    tokens = record["document_tokens"]
    for annotation in record["annotations"]:
        annotation["short_answers"] = _columns(annotation["short_answers"], SPAN_NAMES)
        annotation["yes_no_answer"] = YES_NO.index(annotation["yes_no_answer"]) - 1
    return {
        "id": str(record["example_id"]),
        "document": {
            "title": "Moon",
            "tokens": {
                **_columns(tokens, ("token", "start_byte", "end_byte")),
                "is_html": [t["html_token"] for t in tokens],
            },
        },
        "question": {"text": record["question_text"]},
        "long_answer_candidates": _columns(
            record["long_answer_candidates"], (*SPAN_NAMES, "top_level")
        ),
        "annotations": _columns(
            record["annotations"], ("long_answer", "short_answers", "yes_no_answer")
        ),
    }


def _columns(items: list[Record], names: tuple[str, ...]) -> Record:
    return {name: [item[name] for item in items] for name in names}


def tydi(chance: random.Random) -> Record:
    """Returns a record of TyDi QA with offsets in bytes."""
    parts = [" ".join(chance.choices(WORDS, k=chance.randrange(1, 25))) for _ in range(3)]
    starts = [len("\n".join([*parts[:i], ""]).encode()) for i in range(len(parts))]
    spans = [(a, a + len(part.encode())) for a, part in zip(starts, parts, strict=True)]
    index = chance.randrange(-1, len(parts))
    start, end = (-1, -1) if index < 0 else spans[index]
    return {
        "example_id": chance.randrange(-(2**62), 2**62),
        "language": "thai",
        "question_text": "who ?",
        "document_plaintext": "\n".join(parts),
        "passage_answer_candidates": [_bytes(*span) for span in spans],
        "annotations": [
            {
                **{"passage_answer": {"candidate_index": index}, "yes_no_answer": "NONE"},
                "minimal_answer": _bytes(start, end),
            }
        ],
    }


def _bytes(start: int, end: int) -> Record:
    return {"plaintext_start_byte": start, "plaintext_end_byte": end}


def text_page(chance: random.Random) -> bytes:
    """Returns a page of plain text."""
    return " ".join(chance.choices((*WORDS, "\n\n"), k=chance.randrange(1, 80))).encode()


def html_page(chance: random.Random) -> bytes:
    """Returns a page of HTML."""
    parts = ["<!doctype html><title>Moon</title>"]
    for name in chance.choices(NAMES, k=chance.randrange(1, 30)):
        words = " &amp; ".join(chance.choices(WORDS, k=2))
        parts.append(f"<{name} class='a'>{words}" + f"</{name}>" * chance.randrange(2))
    return "".join(parts).encode()


def passage(chance: random.Random) -> Record:
    """Returns a question with its context and, mostly, gold."""
    words = chance.choices((*WORDS, "\r\n\r\n", "e\u0301"), k=chance.randrange(1, 60))
    context = " ".join((*words, "the moon"))
    start = context.index("the moon")
    gold: Record = chance.choice(
        (
            {"answers": [{"text": "the moon", "answer_start": start}]},
            {"answers": {"text": ["the moon"], "answer_start": [start]}},
            {"answers": ["moon", "no such words"]},
            {"answer": chance.choice(("yes", "moon", 1969))},
            {"is_impossible": True},
            {},
        )
    )
    return {"id": f"{chance.random()}", "question": "who walked ?", "context": context, **gold}


def squad_file(chance: random.Random) -> bytes:
    """Returns a file of SQuAD."""
    return json.dumps({"version": "v2.0", "data": [{"paragraphs": _paragraphs(chance)}]}).encode()


def mrqa_file(chance: random.Random) -> bytes:
    """Returns a file of MRQA."""
    header: list[Record] = [{"header": {"dataset": "own"}}]
    return "\n".join(map(json.dumps, header + _paragraphs(chance))).encode()


def _paragraphs(chance: random.Random) -> list[Record]:
    questions = [passage(chance) for _ in range(3)]
    return [{"context": question.pop("context"), "qas": [question]} for question in questions]


def csv_file(chance: random.Random) -> bytes:
    """Returns a CSV file of questions with their contexts."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=chance.choice(",;\t"))
    writer.writerow(["id", "question", "context", "answer"])
    for _ in range(3):
        writer.writerow([chance.random(), "who walked ?", passage(chance)["context"], "moon"])
    return file.getvalue().encode()
