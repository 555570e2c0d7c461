"""Makes the bundled sample: ``experiments/sample/*.txt`` -> ``nq/sample/questions.jsonl``.

Every source file holds one article and its questions in a light markup. Blank lines
part the blocks; the first line is the title, and a line ``---`` ends the article (what
stands on the right here is explanation)::

    # Lake Baikal                   the title, <H1>

    It lies in Siberia.             a paragraph, <P>

    ## Facts                        a heading, <H2>; not a block

    | ! Depth | 1,642 meters |      a table, one line a row; ! makes a <Th>
    | ! Age   | 25 million years |

    - Olkhon                        a list, <Ul>; lines that begin with 1. make an <Ol>
    - Yarki

    ---
    ? how old is lake baikal
    long: 2                         the gold block, counted from 1; or none
    short: [25] million             answer text; [ ] picks it out of a longer one

A question may have several ``short`` lines, or ``yes_no: YES`` (``NO``) and none. The
records are those of simplified NQ (Kaggle), one annotation each. Run it as::

    python -m experiments.make_sample            # rewrite the sample
    python -m experiments.make_sample --check    # exit 1 if it would change
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nq.formats.words import words

SOURCES = Path(__file__).resolve().parent / "sample"
SAMPLE = Path(__file__).resolve().parents[1] / "nq" / "sample" / "questions.jsonl"

CANDIDATE_TAG = re.compile(r"<(/?)(P|Table|Tr|Ul|Ol|Dl|Li)(?:_[^>]*)?>")
Record = dict[str, Any]
Extent = tuple[int, int]


@dataclass
class Question:
    """One question as written; ``block`` is ``None`` where the article has no answer."""

    text: str
    where: str
    block: int | None = None
    shorts: list[str] = field(default_factory=list)
    yes_no: str = "NONE"


@dataclass
class Article:
    """A page as tokens, with the ``(start, end)`` of each block, and its questions."""

    title: str
    tokens: list[str]
    blocks: list[Extent]
    questions: list[Question]


def split(text: str) -> list[str]:
    """The words of ``text`` as NQ has them."""
    return [word for word, _ in words(text)]


def element(tag: str, inner: Sequence[str], attribute: str = "") -> list[str]:
    """Put tokens between an opening and a closing tag.

    >>> element("Th", ["Depth"], 'colspan="2"')
    ['<Th_colspan="2">', 'Depth', '</Th>']
    """
    opening = f"{tag}_{attribute}" if attribute else tag
    return [f"<{opening}>", *inner, f"</{tag}>"]


def table(lines: Sequence[str]) -> list[str]:
    """Tokens of a table; the only cell of a row spans the table's whole width."""
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


def listing(tag: str, lines: Sequence[str]) -> list[str]:
    """Tokens of a list; an indented line goes on with the item before it."""
    items = re.split(r"\n(?! )", "\n".join(lines))
    inner: list[str] = []
    for item in items:
        inner += element("Li", split(item.split(" ", 1)[1]))
    return element(tag, inner)


def block(lines: Sequence[str]) -> list[str]:
    """Tokens of one block or heading; its first characters say what it is."""
    first = lines[0]
    if first.startswith("#"):
        level = len(first) - len(first.lstrip("#"))
        return element(f"H{level}", split(first.lstrip("#")))
    if first.startswith("|"):
        return table(lines)
    if first.startswith("- "):
        return listing("Ul", lines)
    if re.match(r"\d+\. ", first):
        return listing("Ol", lines)
    return element("P", split(" ".join(lines)))


def questions(lines: Sequence[tuple[str, str]]) -> list[Question]:
    """Read the questions below the ``---``.

    Args:
        lines: pairs of where the line stands, ``file:number``, and the line.

    Raises:
        ValueError: on a line or a combination of answers that means nothing.
    """
    found: list[Question] = []
    answered: set[str] = set()
    for where, line in lines:
        key, _, value = (part.strip() for part in line.partition(" "))
        if key == "?":
            found.append(Question(value, where))
        elif not found:
            raise ValueError(f"{where}: found {line!r}, expected a line '? question' before it")
        elif key == "long:" and re.fullmatch(r"none|\d+", value):
            found[-1].block = None if value == "none" else int(value)
            answered.add(found[-1].where)
        elif key == "short:":
            found[-1].shorts.append(value)
        elif key == "yes_no:" and value in ("YES", "NO"):
            found[-1].yes_no = value
        else:
            expected = "?, short, long: N|none, yes_no: YES|NO"
            raise ValueError(f"{where}: found {line!r}, expected {expected}")
    for question in found:
        if question.where not in answered:
            raise ValueError(f"{question.where}: no 'long:' line; write 'long: none' for no answer")
        if question.shorts and question.yes_no != "NONE":
            raise ValueError(f"{question.where}: has both short and yes_no; keep one of them")
        if question.block is None and (question.shorts or question.yes_no != "NONE"):
            raise ValueError(f"{question.where}: has an answer but no long one; name its block")
    return found


def read_article(path: Path) -> Article:
    """Read one source file.

    Raises:
        ValueError: on a file without a title or ``---``, with ``<`` or ``>`` in the text,
            or with questions that mean nothing.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].startswith("# ") or "---" not in lines:
        raise ValueError(f"{path.name}: expected '# Title' as first line and a line '---'")
    rule = lines.index("---")
    body = "\n".join(lines[:rule])
    if re.search(r"[<>]", body):
        raise ValueError(f"{path.name}: < and > stand for tags only; spell them out")
    title = lines[0].removeprefix("# ")
    tokens = split(title)
    blocks: list[Extent] = []
    for chunk in re.split(r"\n\s*\n", body.strip()):
        start = len(tokens)
        tokens += block(chunk.split("\n"))
        if not chunk.startswith("#"):
            blocks.append((start, len(tokens)))
    below = enumerate(lines[rule + 1 :], rule + 2)
    asked = questions([(f"{path.name}:{n}", line) for n, line in below if line.strip()])
    return Article(title, tokens, blocks, asked)


def candidates(tokens: Sequence[str]) -> list[Record]:
    """Every paragraph, table, list, row and item, in the order of their opening tags.

    >>> candidates(["<Ul>", "<Li>", "Kibo", "</Li>", "</Ul>"])[1]
    {'start_token': 1, 'end_token': 4, 'top_level': False}
    """
    found: list[Record] = []
    open_: list[Record] = []
    for position, token in enumerate(tokens):
        match = CANDIDATE_TAG.fullmatch(token)
        if match and match[1]:
            open_.pop()["end_token"] = position + 1
        elif match:
            found.append({"start_token": position, "end_token": -1, "top_level": not open_})
            open_.append(found[-1])
    return found


def find_answer(answer: str, article: Article, extent: Extent, where: str) -> Extent:
    """The tokens of an answer inside its block.

    Args:
        answer: its text, or a longer one with the answer in ``[ ]``.
        article: the page.
        extent: start and end of the block, in document tokens.
        where: what an error names.

    Raises:
        ValueError: if the block does not hold the text exactly once.
    """
    before, bracket, rest = answer.partition("[")
    inside, _, after = rest.partition("]") if bracket else (answer, "", "")
    lead = len(split(before)) if bracket else 0
    sought = split(before + inside + after if bracket else inside)
    start, end = extent
    starts = range(start, end - len(sought) + 1)
    hits = [n for n in starts if article.tokens[n : n + len(sought)] == sought]
    if not sought or len(hits) != 1:
        raise ValueError(
            f"{where}: found {' '.join(sought)!r} {len(hits)} times in its block, expected once; "
            f"{'write more of the text around [ ]' if hits else 'check the text and the block'}"
        )
    return hits[0] + lead, hits[0] + lead + len(split(inside))


def number(*parts: str) -> int:
    """A stable signed 64-bit number made of some text."""
    digest = hashlib.sha256("\n".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def annotation(article: Article, question: Question, options: Sequence[Record]) -> Record:
    """The one annotation of a question; -1 stands for "none", as in every NQ file.

    Raises:
        ValueError: if the block or an answer's text is not in the article.
    """
    long_answer = {"start_token": -1, "end_token": -1, "candidate_index": -1}
    shorts: list[Extent] = []
    if question.block is not None:
        if not 1 <= question.block <= len(article.blocks):
            count = len(article.blocks)
            raise ValueError(f"{question.where}: block {question.block}, expected 1 to {count}")
        start, end = extent = article.blocks[question.block - 1]
        index = [option["start_token"] for option in options].index(start)
        long_answer = {"start_token": start, "end_token": end, "candidate_index": index}
        shorts = [find_answer(text, article, extent, question.where) for text in question.shorts]
    return {
        "annotation_id": abs(number("annotation", article.title, question.text)),
        "long_answer": long_answer,
        "short_answers": [{"start_token": start, "end_token": end} for start, end in shorts],
        "yes_no_answer": question.yes_no,
    }


def records(article: Article) -> Iterator[Record]:
    """One simplified NQ record for every question of an article."""
    options = candidates(article.tokens)
    for question in article.questions:
        yield {
            "example_id": number(article.title, question.text),
            "document_title": article.title,
            "document_url": "",
            "question_text": question.text,
            "document_text": " ".join(article.tokens),
            "long_answer_candidates": options,
            "annotations": [annotation(article, question, options)],
        }


def articles(folder: Path = SOURCES) -> list[Article]:
    """Read every source file, in the order of their names."""
    return [read_article(path) for path in sorted(folder.glob("*.txt"))]


def build(folder: Path = SOURCES) -> str:
    """The whole sample as jsonl text."""
    return "".join(
        json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        for article in articles(folder)
        for record in records(article)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the sample, or compare it; returns the exit status."""
    parser = argparse.ArgumentParser(description="Make the bundled sample from its sources.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    parser.add_argument("--sources", type=Path, default=SOURCES, help="folder of the *.txt files")
    parser.add_argument("--output", type=Path, default=SAMPLE, help="the jsonl file")
    args = parser.parse_args(argv)
    try:
        made = build(args.sources).encode()
    except ValueError as error:
        print(f"make_sample: {error}", file=sys.stderr)
        return 1
    if not args.check:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_bytes(made)
    elif not args.output.is_file() or args.output.read_bytes() != made:
        print(
            f"make_sample: {args.output.name} is not what the sources make; "
            "run python -m experiments.make_sample",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
