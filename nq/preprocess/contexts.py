"""example -> contexts -> words: which blocks of a page are read, and with which markers.

The rules of BERT-Joint (google-research/language, ``bert_joint/run_nq.py``): the null
context first, then the top-level blocks with text; in BERT-Joint 48 contexts in all, here all of
the page. Two marker words, ``[ContextId=i] [Type=n]``, introduce each block, so that the page
becomes one sequence

    [ContextId=-1] [NoLongAnswer] [ContextId=0] [Paragraph=1] The flow …
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from nq.config import WindowConfig
from nq.records import Context, Example, IntArray

NULL_CONTEXT = Context(-1, "[NoLongAnswer]", (), ())
_ORIGINAL_BLANKS = re.compile("[ \t\r\n\u202f]+")


@dataclass(frozen=True, slots=True)
class Words:
    """A page as one word sequence.

    Args:
        words: markers and words of all contexts, in order.
        doc: the document token of each word, -1 for markers.
        markers: indices of the markers in ``words``; text that spells a marker is not among
            them. Empty where words are split again, because markers are then text too.
    """

    words: list[str]
    doc: list[int]
    markers: list[int]


def _blocks_with_text(example: Example, config: WindowConfig) -> Iterator[tuple[int, list[int]]]:
    """Yields candidate index and tokens, without tags, of each top-level block with text.

    A token is looked at once for each block around it; ``RecordLimits.block_tokens`` bounds their
    number for records of files.
    """
    tokens = example.tokens
    is_html = example.is_html
    if config.switches.angle_bracket_is_tag:
        is_html = ["<" in token for token in tokens]
    for index, candidate in enumerate(example.candidates):
        if candidate.top_level:
            doc = [i for i in range(candidate.span.start, candidate.span.end) if not is_html[i]]
            if any(tokens[i].strip() for i in doc):
                yield index, doc


def contexts(example: Example, config: WindowConfig) -> list[Context]:
    """Returns the null context, then at most ``max_blocks`` top-level blocks with text.

    The counter of a block type stops at ``max_position`` (``[Paragraph=50]`` may come twice).
    """
    counts: Counter[str] = Counter()
    read = [NULL_CONTEXT]
    for index, doc in islice(_blocks_with_text(example, config), config.max_blocks):
        kind = example.block_type(example.candidates[index].span)
        counts[kind] = min(counts[kind] + 1, config.max_position)
        marker = f"[{kind}={counts[kind]}]"
        read.append(Context(index, marker, [example.tokens[i] for i in doc], doc))
    return read


def unread_blocks(example: Example, config: WindowConfig) -> int:
    """Returns how many top-level blocks with text are beyond ``max_blocks`` and not read."""
    return sum(1 for _ in islice(_blocks_with_text(example, config), config.max_blocks, None))


def words(contexts: Sequence[Context], config: WindowConfig) -> Words:
    """Joins contexts to one word sequence.

    With ``split_words_again`` the map is looked up by the new word number: on pages whose words
    are split it is off by the number of extra words, exactly as in the original.
    """
    sequence: list[str] = []
    doc: list[int] = []
    markers: list[int] = []
    for context in contexts:
        markers += [len(sequence), len(sequence) + 1]
        sequence += [*context.markers, *context.words]
        doc += [-1, -1, *context.doc]
    if not config.switches.split_words_again:
        return Words(sequence, doc, markers)
    again = split_again(sequence)
    doc += [-1] * (len(again) - len(doc))  # where the originals end in an IndexError
    return Words(again, doc[: len(again)], [])


@dataclass(frozen=True, slots=True, eq=False)
class RunningText:
    """The text of some blocks, and where its document tokens are in it.

    Args:
        tokens: ``[T]`` document tokens.
        chars: ``[T, 2]`` half-open range of characters of each of them, ascending.
        blocks: the first character of each block.
    """

    text: str
    tokens: IntArray
    chars: IntArray
    blocks: Sequence[int]

    def tokens_of(self, chars: IntArray) -> IntArray:
        """Returns ``[P]`` the token that has the last character of each piece, -1 for none.

        >>> chars = np.array([[0, 2], [2, 3], [4, 5]])
        >>> text = RunningText("ab, c", np.array([4, 5, 7]), chars, [0])
        >>> text.tokens_of(np.array([[0, 1], [1, 3], [3, 5], [3, 4]])).tolist()
        [4, 5, 7, -1]
        """
        if not len(self.tokens):
            return np.full(len(chars), -1)
        last = chars[:, 1] - 1
        row = np.maximum(np.searchsorted(self.chars[:, 0], last, side="right") - 1, 0)
        inside = (chars[:, 0] <= last) & (self.chars[row, 0] <= last) & (last < self.chars[row, 1])
        return np.where(inside, self.tokens[row], -1)


def running_text(example: Example, contexts: Sequence[Context]) -> RunningText:
    """Returns the text of contexts: the user's own, or the words with blanks between them."""
    blocks = [list(context.doc) for context in contexts if context.doc]
    tokens = np.array([i for block in blocks for i in block], np.int64)
    firsts = [block[0] for block in blocks]
    original = example.original
    if original is not None and original.plain is not None and len(tokens):
        chars = original.chars[tokens]
        if (chars[:, 0] >= 0).all() and (np.diff(chars[:, 0]) >= 0).all():
            start, end = chars[0, 0], chars[-1, 1]
            places = (original.chars[firsts, 0] - start).tolist()
            return RunningText(original.plain[start:end], tokens, chars - start, places)
    texts = list[str]()
    places = list[tuple[int, int]]()
    size = 0
    for block in blocks:
        for n, i in enumerate(block):
            word = example.tokens[i]
            blank = " " if n else "\n"
            if size == 0 or (n and example.adjacent(block[n - 1], i)):
                blank = ""
            start = size + len(blank)
            size = start + len(word)
            texts += [blank, word]
            places.append((start, size))
    chars = np.array(places, np.int64).reshape(-1, 2)
    edges = np.cumsum([0, *map(len, blocks[:-1])])
    return RunningText("".join(texts), tokens, chars, chars[edges, 0].tolist() if blocks else [])


def split_again(words: Sequence[str]) -> list[str]:
    """Returns the words as the originals see them: joined, then split at more than blanks.

    >>> split_again(["10\u202fkm", "", "\tnorth"])
    ['10', 'km', 'north']
    """
    return [word for word in _ORIGINAL_BLANKS.split(" ".join(words)) if word]
