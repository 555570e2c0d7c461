"""Made-up vocabularies and pages for the tests of this folder, by hand and by chance."""

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from nq.formats.natural_questions import is_tag
from nq.preprocess.tokenizers.base import MARKERS
from nq.records import Annotation, Candidate, Example, Span, YesNo

few = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


_WORDS = """
    the of and in to a is was river water king city ice glass light north south year made
    born first who when what 19 42 flow flow##s walk walk##ing un##do bridge
"""
WORDS = _WORDS.split()
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
SYMBOLS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»…中文かガ한ß\u0301\u0345\u03b1\u03c2\u03c3\u2013"

_SPECIAL_WORDS = """
    [SEP] [CLS] [UNK] [PAD] [MASK] [Q] [YES] [NoLongAnswer] [ContextId=3] [ContextId=51]
    [Paragraph=1] [Other=1] [unused5] [1] [] [ ] [[SEP]] a[SEP] [SEP]b [sep] <s> </s> <mask>
"""
SPECIAL_WORDS = _SPECIAL_WORDS.split()
BLANK_WORDS = ("", " ", "\t", "\n", "\u00a0", "\u202f", "\u2028", "\u3000", "\x0b", "\x1c", "\x85")
FULLWIDTH_SEP = "\uff3bSEP\uff3d"
ODD_WORDS = (
    *("10\u202fkm", "\u202fx", "x\u202f", "a\tb", "a\nb", "a\u00a0b", "a\u2028b", "a\x1cb"),
    *("\x00", "a\x00b", "\u200b", "a\u200bb", "\ufeffa", "so\u00adft", "\ufffd", "\x7f"),
    *("e\u0301", "\u0301", "\u0301ab", "İstanbul", "\u0131", "Straße", "ﬁn", "Ångström"),
    *("\u039f\u0394\u039f\u03a3", "\u03b1\u03c3\u03b1", "Ⅷ", "½", "ﷺ", "\U0001f600"),
    *("中文", "a中b", "\U00020000", "かガ", "한국", "\ue000", "\u0378", FULLWIDTH_SEP),
    *("a" * 200, "a" * 201, "." * 70, "un-do/walking", "it's", "U.S.", "##s", "--", "…"),
    *("<3", "<br", "a<b>", "<>", "a<b", "\u2581", "a\u2581b", "<0x0A>"),
)
TAGS = ("<P>", "<Table>", "<Ul>", "<Ol>", "<Dl>", "<Tr>", "<Div>")


def bert_rows(markers: bool = True) -> list[str]:
    """An uncased BERT vocabulary in small, with or without BERT-Joint's marker names."""
    rows = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    rows += MARKERS if markers else [f"[unused{i}]" for i in range(99, 99 + len(MARKERS))]
    pieces = [f"##{part}" if i else part for w in WORDS for i, part in enumerate(w.split("##"))]
    letters = [*SYMBOLS, *LETTERS, *(f"##{c}" for c in LETTERS)]
    return list(dict.fromkeys([*rows, *letters, *pieces]))


def page(text: str, question: str = "who made the ice", **gold: Any) -> Example:
    """A page from words and tags between single blanks; every pair of tags is a candidate.

    Args:
        gold: the only annotation, as ``long=2, shorts=[(5, 7)], yes_no="YES"``; ``long`` is
            the number of the candidate.
    """
    tokens = text.split(" ")
    is_html = [is_tag(token) for token in tokens]
    opened: list[int] = []
    found: list[Candidate] = []
    for i, token in enumerate(tokens):
        if is_html[i] and token.startswith("</"):
            start = opened.pop()
            found.append(Candidate(Span(start, i + 1), top_level=not opened))
        elif is_html[i]:
            opened.append(i)
    found.sort(key=lambda candidate: candidate.span.start)
    annotations = (annotation(found, **gold),) if gold else ()
    return Example(7, question, tokens, is_html, found, annotations)


def annotation(
    found: Sequence[Candidate],
    long: int | None = None,
    shorts: Sequence[tuple[int, int]] = (),
    yes_no: str = "NONE",
) -> Annotation:
    """What one annotator says of the page with the candidates ``found``."""
    span = None if long is None else found[long].span
    return Annotation(span, long, tuple(Span(*short) for short in shorts), YesNo(yes_no))


plain_words = st.sampled_from([word.replace("##", "") for word in WORDS] + [".", ",", "(", "Zyx"])
any_words = st.one_of(
    plain_words,
    st.sampled_from([*SPECIAL_WORDS, *BLANK_WORDS, *ODD_WORDS]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)


@st.composite
def pages(draw: DrawFn, words: st.SearchStrategy[str] = any_words) -> Example:
    """Pages of up to eight blocks, nested and empty ones among them, with annotations."""
    tokens: list[str] = draw(st.lists(words, max_size=3))
    is_html = [False] * len(tokens)
    found: list[Candidate] = []
    for _ in range(draw(st.integers(0, 8))):
        start, tag = len(tokens), draw(st.sampled_from(TAGS))
        body = draw(st.lists(st.one_of(words, words, words, st.sampled_from(TAGS)), max_size=12))
        tokens += [tag, *body, tag.replace("<", "</")]
        is_html += [True, *(word in TAGS for word in body), True]
        found.append(Candidate(Span(start, len(tokens)), draw(st.integers(0, 5)) > 0))
        if draw(st.booleans()):
            inner = draw(st.integers(start, len(tokens) - 1))
            found.append(Candidate(Span(inner, draw(st.integers(inner, len(tokens)))), False))
    annotations = tuple(draw(st.lists(_annotations(found), max_size=3)))
    question = " ".join(draw(st.lists(words, max_size=12)))
    number = draw(st.integers(-(2**63), 2**63 - 1))
    return Example(number, question, tokens, is_html, found, annotations)


@st.composite
def _annotations(draw: DrawFn, found: Sequence[Candidate]) -> Annotation:
    if not found or draw(st.integers(0, 5)) == 0:
        return annotation(found)
    long = draw(st.integers(0, len(found) - 1))
    span = found[long].span
    cuts = sorted(draw(st.lists(st.integers(span.start, span.end), max_size=4, unique=True)))
    shorts = list(zip(cuts[::2], cuts[1::2], strict=False))
    return annotation(found, long, shorts, draw(st.sampled_from(sorted(YesNo))))
