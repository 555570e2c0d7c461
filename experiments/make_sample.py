"""Makes the bundled sample ``nq/sample/questions.jsonl`` from ``experiments/sample/*.toml``.

    python -m experiments.make_sample            # rewrites the sample
    python -m experiments.make_sample --check    # exits with 1 if it would change

Every source file has one article, ``page``, and its ``questions``. The page is in a light markup,
whose first line is the title; blank lines separate the blocks (the right column explains)::

    # Lake Baikal                   the title, <H1>

    The lake is in Siberia.         a paragraph, <P>

    ## Facts                        a heading, <H2>; not a block

    | ! Depth | 1,642 meters |      a table, one line per row; ! marks a <Th>
    | ! Age   | 25 million years |

    - Olkhon                        a list, <Ul>; an <Ol> if the lines begin with 1.
    - Yarki

A question has answers, each of one annotator or of several who agree (``annotators``)::

    [[questions]]
    question = "how deep is lake baikal"
    answers = [
      { annotators = 3, long = [2], short = ["1,642 meters"] },
      { annotators = 2, long = [2, 1], short = ["1,642 meters"] },
    ]

``long`` is the gold block, counted from 1, or a row or item of it, here the first one; no answer is
without it. ``short`` has several texts for an answer of several parts, and ``yes_no`` is ``YES`` or
``NO`` in its place. The records are those of simplified NQ (Kaggle). As in NQ's development set,
each question of the sample has five annotations: what five annotators may mark, written from the
pages alone, without a look at the answers of any model. Each kind of answer is given by all five or
by none, so that all metrics count the same questions.
"""

import argparse
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from experiments import Values, command
from nq.errors import Error
from nq.formats.words import located_words

SOURCES = Path(__file__).resolve().parent / "sample"
SAMPLE = Path(__file__).resolve().parents[1] / "nq" / "sample" / "questions.jsonl"

CANDIDATE_TAG = re.compile(r"<(/?)(P|Table|Tr|Ul|Ol|Dl|Li)(?:_[^>]*)?>")
Record = Values


def split(text: str) -> list[str]:
    """Returns the words of ``text`` as NQ divides it."""
    return [word for word, *_ in located_words(text)]


def element(tag: str, inner: Iterable[str], attribute: str = "") -> list[str]:
    """Returns tokens between an opening and a closing tag.

    >>> element("Th", ["Depth"], 'colspan="2"')
    ['<Th_colspan="2">', 'Depth', '</Th>']
    """
    opening = f"{tag}_{attribute}" if attribute else tag
    return [f"<{opening}>", *inner, f"</{tag}>"]


def table(lines: Sequence[str]) -> list[str]:
    """Returns the tokens of a table; the only cell of a row spans all columns."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    width = max(map(len, rows))
    tokens: list[str] = []
    for row in rows:
        attribute = f'colspan="{width}"' if len(row) == 1 < width else ""
        cells: list[str] = []
        for cell in row:
            tag = "Th" if cell.startswith("!") else "Td"
            cells += element(tag, split(cell.removeprefix("!")), attribute)
        tokens += element("Tr", cells)
    return element("Table", tokens)


def block(lines: Sequence[str]) -> list[str]:
    """Returns the tokens of one block or heading, whose first characters tell its type."""
    first = lines[0]
    if first.startswith("#"):
        level = len(first) - len(first.lstrip("#"))
        return element(f"H{level}", split(first.lstrip("#")))
    if first.startswith("|"):
        return table(lines)
    if match := re.match(r"- |\d+\. ", first):
        items = re.split(r"\n(?! )", "\n".join(lines))  # an indented line continues the item
        inner = (element("Li", split(item.split(" ", 1)[1])) for item in items)
        return element("Ul" if match[0] == "- " else "Ol", chain.from_iterable(inner))
    return element("P", split(" ".join(lines)))


def records(path: Path) -> Iterator[Record]:
    """Yields a simplified NQ record for every question of a file; a ``ValueError`` if it is bad."""
    source = tomllib.loads(path.read_text(encoding="utf-8"))
    blocks = re.split(r"\n\s*\n", source["page"].strip())
    title = blocks[0].removeprefix("# ")
    tokens = split(title)
    for lines in blocks:
        tokens += block(lines.split("\n"))
    options = candidates(tokens)
    for question in source["questions"]:
        text = question["question"]
        agreed = [answer for answer in question["answers"] for _ in range(answer["annotators"])]
        annotations = []
        for n, answer in enumerate(agreed):
            key = ["annotation", title, text, *([str(n)] if n else [])]
            fields = gold(answer, tokens, options)
            annotations.append({"annotation_id": abs(number(*key)), **fields})
        yield {
            "example_id": number(title, text),
            "document_title": title,
            "document_url": "",
            "question_text": text,
            "document_text": " ".join(tokens),
            "long_answer_candidates": options,
            "annotations": annotations,
        }


def candidates(tokens: Sequence[str]) -> list[Record]:
    """Returns every paragraph, table, list, row and item, in the order of their opening tags.

    >>> candidates(["<Ul>", "<Li>", "Kibo", "</Li>", "</Ul>"])[1]
    {'start_token': 1, 'end_token': 4, 'top_level': False}
    """
    result: list[Record] = []
    open_: list[Record] = []
    for position, token in enumerate(tokens):
        match = CANDIDATE_TAG.fullmatch(token)
        if match and match[1]:
            open_.pop()["end_token"] = position + 1
        elif match:
            result.append({"start_token": position, "end_token": -1, "top_level": not open_})
            open_.append(result[-1])
    return result


def number(*parts: str) -> int:
    """Returns a signed 64-bit hash of some text."""
    digest = hashlib.sha256("\n".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def gold(answer: Record, tokens: Sequence[str], options: Sequence[Record]) -> Record:
    """Returns an answer as the fields of an annotation; -1 means "none", as in every NQ file."""
    index = find_block(answer.get("long", ()), options)
    long = options[index] if index >= 0 else {"start_token": -1, "end_token": -1}
    start = long["start_token"]
    end = long["end_token"]
    return {
        "long_answer": {"start_token": start, "end_token": end, "candidate_index": index},
        "short_answers": [find_short(s, tokens, start, end) for s in answer.get("short", ())],
        "yes_no_answer": answer.get("yes_no", "NONE"),
    }


def find_block(numbers: Iterable[int], options: Sequence[Record]) -> int:
    """Returns the index of a block, or of a row or item in it, among all candidates, or -1."""
    index = -1
    inside = [n for n, option in enumerate(options) if option["top_level"]]
    for number in numbers:
        index = inside[number - 1]
        end = options[index]["end_token"]
        inside = [n for n in range(index + 1, len(options)) if options[n]["end_token"] <= end]
    return index


def find_short(text: str, tokens: Sequence[str], start: int, end: int) -> Record:
    """Returns the span of a short answer, which must be once in its block.

    The block is from ``start`` to before ``end``.
    """
    sought = split(text)
    starts = range(start, end - len(sought) + 1)
    hits = [n for n in starts if tokens[n : n + len(sought)] == sought]
    if len(hits) != 1:
        raise ValueError(f"found {text!r} {len(hits)} times in its block, expected once")
    return {"start_token": hits[0], "end_token": hits[0] + len(sought)}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the file is out of date"
    )


def make(args: argparse.Namespace) -> int:
    """Writes the sample, or compares it with its sources."""
    every = (record for path in sorted(SOURCES.glob("*.toml")) for record in records(path))
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    text = "".join(encode(record) + "\n" for record in every).encode()
    if not args.check:
        SAMPLE.write_bytes(text)
    elif not SAMPLE.is_file() or SAMPLE.read_bytes() != text:
        raise Error(f"{SAMPLE.name} is out of date: run python -m experiments.make_sample")
    return 0


main = command.main(make, _options)
