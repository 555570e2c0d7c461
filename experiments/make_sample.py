"""Makes the bundled sample ``nq/sample/questions.jsonl`` from ``experiments/sample/*.txt``.

    python -m experiments.make_sample            # rewrites the sample
    python -m experiments.make_sample --check    # exits with 1 if it would change

Every source file has one article and its questions in a light markup. The first line is the title,
blank lines separate the blocks, and a line ``---`` ends the article (the right column explains)::

    # Lake Baikal                   the title, <H1>

    The lake is in Siberia.         a paragraph, <P>

    ## Facts                        a heading, <H2>; not a block

    | ! Depth | 1,642 meters |      a table, one line per row; ! marks a <Th>
    | ! Age   | 25 million years |

    - Olkhon                        a list, <Ul>; an <Ol> if the lines begin with 1.
    - Yarki

    ---
    ? how deep is lake baikal
    long: 2 x3                      the gold block, counted from 1, or none; of three annotators
    short: 1,642 meters             answer text; [ ] marks it within a longer text
    long: 2.1 x2                    the first row (item) of the block; of two other annotators
    short: [1,642] meters

Each ``long`` line begins an annotation. The lines after it are its ``short`` lines, several for an
answer of several parts, or ``yes_no: YES`` (``NO``). The records are those of simplified NQ
(Kaggle). As in NQ's development set, each question of the sample has five annotations: what five
annotators may mark, written from the pages alone, without a look at the answers of any model. Each
kind of answer is given by all five or by none, so that all metrics count the same questions.
"""

import argparse
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from experiments import command
from nq.errors import Error
from nq.formats.words import located_words

SOURCES = Path(__file__).resolve().parent / "sample"
SAMPLE = Path(__file__).resolve().parents[1] / "nq" / "sample" / "questions.jsonl"

LONG_ANSWER = re.compile(r"(none|(\d+)(?:\.(\d+))?)(?: x([1-9]))?")
CANDIDATE_TAG = re.compile(r"<(/?)(P|Table|Tr|Ul|Ol|Dl|Li)(?:_[^>]*)?>")
Record = dict[str, Any]


@dataclass
class Answer:
    """The answer of one annotator, or of several who agree, with its file and line.

    ``block`` has the number of the gold block, from 1, and of a row or item in it; it is empty for
    no answer. ``yes_no`` is ``YES``, ``NO`` or ``NONE``.
    """

    where: str
    block: tuple[int, ...]
    annotators: int = 1
    shorts: list[str] = field(default_factory=list)
    yes_no: str = "NONE"


@dataclass
class Question:
    """One question of a source file, with its file and line, and its answers."""

    text: str
    where: str
    answers: list[Answer] = field(default_factory=list)


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


def questions(lines: Iterable[tuple[str, str]]) -> list[Question]:
    """Returns the questions below the ``---``, of pairs of ``file:number`` and the line."""
    result: list[Question] = []
    for where, line in lines:
        key, _, value = (part.strip() for part in line.partition(" "))
        if key == "?":
            result.append(Question(value, where))
        elif not result:
            raise ValueError(f"{where}: found {line!r}, expected a line '? question' before it")
        elif key == "long:" and (match := LONG_ANSWER.fullmatch(value)):
            block = tuple(int(number) for number in match.group(2, 3) if number)
            result[-1].answers.append(Answer(where, block, int(match[4] or 1)))
        elif not result[-1].answers:
            raise ValueError(f"{where}: found {line!r}, expected a line 'long: N|none' before it")
        elif key == "short:":
            result[-1].answers[-1].shorts.append(value)
        elif key == "yes_no:" and value in ("YES", "NO"):
            result[-1].answers[-1].yes_no = value
        else:
            expected = "?, long: N|N.N|none [xN], short, yes_no: YES|NO"
            raise ValueError(f"{where}: found {line!r}, expected {expected}")
    for question in result:
        if not question.answers:
            raise ValueError(f"{question.where}: no 'long:' line; write 'long: none' for no answer")
    return result


def records(path: Path) -> Iterator[Record]:
    """Yields a simplified NQ record for every question of a file; a ``ValueError`` if it is bad."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].startswith("# ") or "---" not in lines:
        raise ValueError(f"{path.name}: expected '# Title' as first line and a line '---'")
    rule = lines.index("---")
    body = "\n".join(lines[:rule])
    if re.search(r"[<>]", body):
        raise ValueError(f"{path.name}: < and > stand for tags only; spell them out")
    title = lines[0].removeprefix("# ")
    tokens = split(title)
    for chunk in re.split(r"\n\s*\n", body.strip()):
        tokens += block(chunk.split("\n"))
    options = candidates(tokens)
    below = enumerate(lines[rule + 1 :], rule + 2)
    for question in questions((f"{path.name}:{n}", line) for n, line in below if line.strip()):
        agreed = [answer for answer in question.answers for _ in range(answer.annotators)]
        annotations = []
        for n, answer in enumerate(agreed):
            key = ["annotation", title, question.text]
            if n > 0:
                key.append(str(n))
            fields = gold(answer, tokens, options)
            annotations.append({"annotation_id": abs(number(*key)), **fields})
        yield {
            "example_id": number(title, question.text),
            "document_title": title,
            "document_url": "",
            "question_text": question.text,
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


def gold(answer: Answer, tokens: Sequence[str], options: Sequence[Record]) -> Record:
    """Returns an answer as the fields of an annotation; -1 means "none", as in every NQ file."""
    if answer.shorts and answer.yes_no != "NONE":
        raise ValueError(f"{answer.where}: has both short and yes_no; keep one of them")
    if not answer.block and (answer.shorts or answer.yes_no != "NONE"):
        raise ValueError(f"{answer.where}: has an answer but no long one; name its block")
    index = find_block(answer, options)
    long = options[index] if answer.block else {"start_token": -1, "end_token": -1}
    start, end = long["start_token"], long["end_token"]
    return {
        "long_answer": {"start_token": start, "end_token": end, "candidate_index": index},
        "short_answers": [find_short(s, tokens, start, end, answer.where) for s in answer.shorts],
        "yes_no_answer": answer.yes_no,
    }


def find_block(answer: Answer, options: Sequence[Record]) -> int:
    """Returns the index of the block of an answer among all candidates, -1 for no answer."""
    index, inside = -1, [n for n, option in enumerate(options) if option["top_level"]]
    for depth, number in enumerate(answer.block):
        if not 1 <= number <= len(inside):
            outer = "".join(f"{n}." for n in answer.block[:depth])
            expected = f"{outer}1 to {outer}{len(inside)}" if inside else "one with rows or items"
            raise ValueError(f"{answer.where}: block {outer}{number}, expected {expected}")
        index = inside[number - 1]
        end = options[index]["end_token"]
        inside = [n for n in range(index + 1, len(options)) if options[n]["end_token"] <= end]
    return index


def find_short(text: str, tokens: Sequence[str], start: int, end: int, where: str) -> Record:
    """Returns the span of a short answer, which must be in its block exactly once.

    The block is from ``start`` to before ``end``. The answer may be a longer text with the answer
    in ``[ ]``; ``where`` is for an error.
    """
    before, bracket, rest = text.partition("[")
    inside, _, after = rest.partition("]") if bracket else (text, "", "")
    lead = len(split(before)) if bracket else 0
    sought = split(before + inside + after if bracket else inside)
    starts = range(start, end - len(sought) + 1)
    hits = [n for n in starts if tokens[n : n + len(sought)] == sought]
    if not sought or len(hits) != 1:
        raise ValueError(
            f"{where}: found {' '.join(sought)!r} {len(hits)} times in its block, expected once; "
            f"{'write more of the text around [ ]' if hits else 'check the text and the block'}"
        )
    first = hits[0] + lead
    return {"start_token": first, "end_token": first + len(split(inside))}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the file is out of date"
    )


def make(args: argparse.Namespace) -> int:
    """Writes the sample, or compares it with its sources."""
    every = (record for path in sorted(SOURCES.glob("*.txt")) for record in records(path))
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    text = "".join(encode(record) + "\n" for record in every).encode()
    if not args.check:
        SAMPLE.write_bytes(text)
    elif not SAMPLE.is_file() or SAMPLE.read_bytes() != text:
        raise Error(f"{SAMPLE.name} is out of date: run python -m experiments.make_sample")
    return 0


main = command.main(make, _options)
