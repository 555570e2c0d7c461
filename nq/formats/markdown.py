"""Markdown -> a page, whose words have their places in the Markdown text.

The text becomes HTML, as for a browser, with marks that tell where the next character is in it.
"""

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from nq.answers import Page
from nq.formats.fields import LIMITS
from nq.formats.html import CELLS, LocatedWord, PageBuilder, parse_html
from nq.formats.markup import UNKNOWN

SUFFIXES = (".md", ".markdown")
MARKS = "\n\r|*_`[<&\\"
TEXTS = "text", "code_inline", "code_block", "fence"
"""Tokens of markdown-it whose content is displayed."""
_LINE_END = re.compile(r"\r\n|[\n\r]")
_MARK = "\ufdd0"  # Unicode has no such character
_WORD = re.compile(r"\||\s+|[^\s|]+")
_MARKED = re.compile(f"(?:{_MARK}(-?[0-9]{{1,7}}){_MARK})?([^{_MARK}]*)")


def parse_markdown(text: str) -> Page:
    """Returns the page of a Markdown text (CommonMark with tables)."""
    # A mark gives up to three tokens of markdown-it, which are larger than the page's.
    LIMITS.check(characters=len(text), tokens=3 * sum(map(text.count, MARKS)))
    parser = MarkdownIt()
    parser.inline = _Inline()
    parser.configure("commonmark").enable("table").disable(["text_join", "fragments_join"])
    text = text.replace("\0", "\ufffd").replace(_MARK, "\ufffd")
    tokens = parser.parse(text)
    _mark(tokens, text)
    return parse_html(
        parser.renderer.render(tokens, parser.options, {}),
        lambda _: _Builder(),
    )


class _Inline(ParserInline):
    """Parses the text of a block; each token has the range of its characters there."""

    def tokenize(self, state: StateInline) -> None:
        rules = self.ruler.getRules("")
        while state.pos < state.posMax:
            start = state.pos
            count = len(state.tokens)
            if not any(rule(state, False) for rule in rules):
                state.pending += state.src[start]
                state.pos += 1
            if state.pending:
                state.pushPending()
            for token in state.tokens[count:]:
                token.type = token.type.removesuffix("_special")
                token.meta.setdefault("range", (start, state.pos))


class _Builder(PageBuilder):
    """Builds a page from HTML with marks."""

    def _words(self) -> Iterator[LocatedWord]:
        text = "".join(text for text, _ in self._text)
        self._text = [(part[2], int(part[1] or UNKNOWN)) for part in _MARKED.finditer(text)]
        return super()._words()


def _mark(tokens: Sequence[Token], text: str) -> None:
    lines = [0, *(match.end() for match in _LINE_END.finditer(text))]
    lines += [len(text)] * 3
    is_cell = False
    end = 0
    for token in tokens:
        flat = token.content.replace("\n", " ")
        places = list[int]()
        first = token.map[0] if token.map else 0
        if token.type == "fence":
            first += 1
        for n, line in enumerate(token.content.split("\n"), first):
            source = line.lstrip(" \t")  # blanks may stand for a part of a tab
            if is_cell:
                source = source.replace("|", "\\|")
                at = text.find(source, max(lines[n], end), lines[n + 1])
                end = max(end, at + len(source))
            else:
                at = text.rfind(source, lines[n], lines[n + 1])
            found = range(at, at + len(source)) if at >= 0 else ()
            there = [i for i in found if not (is_cell and text.startswith("\\|", i))]
            places += [UNKNOWN] * (len(line) - len(there)) + there + [UNKNOWN]
        for one in token.children or [token]:
            at = flat.rfind(one.content.replace("\n", " "), *one.meta.get("range", ()))
            if at >= 0 and one.type in TEXTS:
                words = _WORD.finditer(one.content)
                marked = (f"{_MARK}{places[at + word.start()]}{_MARK}{word[0]}" for word in words)
                one.content = "".join(marked) + f"{_MARK}{UNKNOWN}{_MARK}"
        is_cell = token.tag in CELLS
