"""Tests of the blocks of a page against a slow search, and of their features."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import RankingWeights
from nq.formats.documents import page_from_html, page_from_text
from nq.postprocess.blocks import FEW, B, Blocks, K, block_of_token, bm25, lower_words, part_starts
from nq.records import Example, Passage
from nq.text import terms
from tests.postprocess import slow_evidence, synthetic_pages
from tests.preprocess.synthetic_examples import page

seeds = st.integers(0, 2**32 - 1)
words = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=8)


def with_tags(seed: int) -> Example:
    """Returns a random page with tags among its words; some blocks have no words."""
    example, draw = synthetic_pages.example(seed), np.random.default_rng(seed)
    names = ["Who", "wrote", "<P>", "<Table>", "<Ul>", "<Tr>"]
    tokens = draw.choice(names, len(example.tokens)).tolist()
    return replace(example, tokens=tokens, is_html=[token[0] == "<" for token in tokens])


def slow_bm25(question: list[str], blocks: list[list[str]]) -> list[float]:
    mean = max(1.0, sum(map(len, blocks)) / len(blocks)) if blocks else 1.0
    scores = []
    for block in blocks:
        score = 0.0
        for word in set(question):
            df = sum(word in other for other in blocks)
            idf = math.log(1 + (len(blocks) - df + 0.5) / (df + 0.5))
            tf = block.count(word)
            score += idf * tf * (K + 1) / (tf + K * (1 - B + B * len(block) / mean))
        scores.append(score)
    return scores


@given(words, st.lists(words, max_size=5))
def test_bm25_is_that_of_the_formula(question: list[str], blocks: list[list[str]]) -> None:
    assert bm25(" ".join(question), blocks).tolist() == pytest.approx(slow_bm25(question, blocks))


@given(seeds)
def test_blocks_are_the_first_top_level_candidates_with_a_word(seed: int) -> None:
    example = with_tags(seed)
    blocks, of_token = Blocks.of(example), block_of_token(example)
    slow = [slow_evidence.block_of(example, t) for t in range(len(example.tokens))]
    assert of_token.tolist() == slow
    words = ~np.array(example.is_html)
    with_words = sorted({int(block) for block in of_token[words] if block >= 0})
    assert blocks.candidates.tolist() == with_words
    expected = [block if block in with_words else -1 for block in slow]
    assert blocks.of_token.tolist() == expected


@given(seeds)
def test_features_are_those_of_the_formulas_in_the_order_of_the_weights(seed: int) -> None:
    example, draw = with_tags(seed), np.random.default_rng(seed)
    given_scores = draw.normal(80, 9, len(example.candidates)).tolist()
    passages = [Passage(None, "", n, score) for n, score in enumerate(given_scores, 1)]
    example = replace(example, passages=tuple(passages))
    blocks = Blocks.of(example)
    candidates = blocks.candidates.tolist()
    spans = [example.candidates[i].span for i in candidates]
    words = [
        [example.tokens[t].lower() for t in range(s.start, s.end) if not example.is_html[t]]
        for s in spans
    ]
    scores = np.array(slow_bm25(["did", "who"], words))
    lengths = [math.log(max(1, len(spans)))] * len(spans)
    few = [max(0.0, math.log(FEW / max(1, len(spans))))] * len(spans)
    mean = sum(given_scores) / max(1, len(given_scores))
    spread = math.sqrt(sum((x - mean) ** 2 for x in given_scores) / max(1, len(given_scores)))
    retriever = np.array([(given_scores[i] - mean) / (spread or 1.0) for i in candidates])
    columns = np.column_stack([scores, lengths, few, retriever, *np.zeros((3, len(spans)))])
    np.testing.assert_allclose(blocks.features, columns, atol=1e-9)
    without = [*passages[:-1], *(replace(passage, score=None) for passage in passages[-1:])]
    assert not Blocks.of(replace(example, passages=tuple(without))).features[:, 3].any()
    weights = RankingWeights(bm25=2, page_length=-3, few_blocks=5, retriever=7, evidence=11)
    expected = columns @ [2, -3, 5, 7, 0, 0, 0]
    assert blocks.prior(weights).tolist() == pytest.approx(expected.tolist())


def test_notes_references_and_footers_are_no_blocks() -> None:
    texts = ["lakes are deep", "^ Jump up to : Lakes", "Jump up ^ Lakes", "Jump to : lakes"]
    page = page_from_text("\n\n".join([*texts, "This page was last edited on 1 May 2018"]))
    example = replace(page.with_question("how deep"), is_wiki=True)
    of_token = block_of_token(example)
    starts = [candidate.span.start for candidate in example.candidates]
    assert [int(of_token[start]) for start in starts] == [0, -1, -1, 3, -1]
    assert Blocks.of(example).candidates.tolist() == [0, 3]
    assert Blocks.of(page.example).candidates.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "parts",
    [
        ["It fell in 1986 .", "Ada Brenn was there ( so he said . )", "He left ."],
        ["Dr . Ada L . Brenn and J. R. Smith of the U.S. Army made 1,207 lamps for St . Gallen ."],
        ["He works for Yahoo ! Inc and Who Am I ? Films of D . C . now ."],
        ["It was in F . Scott Fitzgerald 's book by E. Nesbit ."],
        ["C is in C , or C , if not in C .", "It was so .", "We write C.", "PyPy is not ."],
    ],
)
def test_sentences_end_before_capital_letters_but_not_at_abbreviations(parts: list[str]) -> None:
    words = [word for part in parts for word in part.split()]
    starts = part_starts(Example(1, "who", words, [False] * len(words), ()))
    lengths = np.cumsum([len(part.split()) for part in parts])[:-1]
    assert np.flatnonzero(starts).tolist() == lengths.tolist()


def test_cells_items_and_headings_are_parts() -> None:
    html = "<h2>Lamps</h2><table><tr><th>sold</th><td>18,880</td><td>1,207</td></tr></table>"
    example = page_from_html(
        html + "<h2>Its keeper</h2><p>Ada Brenn</p><ul><li>a</li><li>b"
    ).example
    parts, words = np.cumsum(part_starts(example)), dict[int, list[str]]()
    for token, is_html, part in zip(example.tokens, example.is_html, parts.tolist(), strict=True):
        words.setdefault(part, []).extend([] if is_html else [token])
    texts = [" ".join(part) for part in words.values() if part]
    assert texts == ["Lamps", "sold", "18,880", "1,207", "Its keeper", "Ada Brenn", "a", "b"]


ODD_WORDS = (
    "O'Hara O\u2019Hara didn't Été e\u0301 STRASSE straße o\ufb03ce full-time auto\u00admated U.S.",
    "A&M 1,642.5 a_b 東京 ปี हिन्दी a\u200bb http://a.org/b?c שָׁלוֹם ½ ｶﾞ \0 don\u2019t",
)


@given(st.lists(st.sampled_from(" ".join(ODD_WORDS).split(" "))).map(" ".join))
def test_words_of_questions_are_those_of_pages(text: str) -> None:
    example = page_from_text(f"It {text}").example
    assert lower_words(example, example.candidates[0].span) == ["it", *terms(text)]


ARTICLE = (
    "<H1> Ice </H1> <Table> a b c </Table> <P> </P> <P> d </P> <H2> Uses </H2> <P> e f </P> "
    "<H3> Food </H3> <Ul> g </Ul> <H2> Trade </H2> <P> h i j k l m n </P>"
)


def article(text: str = ARTICLE) -> Example:
    """Returns a page on which headings are no blocks, as in NQ."""
    example = page(text)
    blocks = [c for c in example.candidates if "<H" not in example.tokens[c.span.start].upper()]
    return replace(example, candidates=blocks)


def place_features(example: Example) -> list[list[float]]:
    names = RankingWeights.BLOCK_FEATURES
    features: list[list[float]] = Blocks.of(example).features[:, names.index("place") :].tolist()
    return features


def test_blocks_of_an_article_have_a_place_a_lead_and_a_relative_length() -> None:
    log_words = [math.log1p(n) for n in (3, 1, 2, 1, 7)]
    mean = sum(log_words) / 5
    expected = [
        [math.log1p(place), float(place < 2), log_words[place] - mean] for place in range(5)
    ]
    assert np.allclose(place_features(article()), expected)


@pytest.mark.parametrize(
    "other",
    [
        article(ARTICLE.replace("Trade", "Uses")),  # as in an excerpt that repeats its headings
        article(ARTICLE.replace("<H2> Trade </H2>", "<H1> Trade </H1>")),
        replace(article(), is_wiki=False),
        replace(article(), passages=(Passage(None, "", 1, None),) * 6),
        article("<H2> a </H2> <H2> b </H2> <H2> c </H2>"),
        article(""),
    ],
)
def test_the_place_counts_in_articles_alone(other: Example) -> None:
    assert not np.any(place_features(other))


HTML_ARTICLE = (
    '<meta name="generator" content="MediaWiki 1.45"><h1>Ice</h1><table><tr><td>a b c</td></tr>'
    "</table><p>d<br>e</p><h2>Uses</h2><p>f</p><h3>Food</h3><ul><li>g</li></ul><h2>Trade</h2><p>h</p>"
)


def test_a_saved_page_of_mediawiki_has_the_places_of_its_article() -> None:
    lines = "<Table> Ice a b c </Table> <P> d e </P> <H2> Uses </H2> <P> Uses f </P>"
    same = f"{lines} <H3> Food </H3> <Ul> Food g </Ul> <H2> Trade </H2> <P> Trade h </P>"
    expected = place_features(article(same))
    assert np.any(expected)
    assert place_features(page_from_html(HTML_ARTICLE).example) == expected
    for other in (
        HTML_ARTICLE.replace("MediaWiki", "other"),
        HTML_ARTICLE.replace("<h2>Trade</h2>", ""),
    ):
        assert not np.any(place_features(page_from_html(other).example))
