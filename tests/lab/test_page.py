"""Tests which profile a comparison advises to take, and its page in Chromium."""

import re
from dataclasses import replace
from html import escape
from operator import gt, lt
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.lab import rows as comparison
from nq.lab.page import TAKEN_COLOR, Comparison, comparison_page
from nq.lab.rows import Row
from nq.lab.verdict import advice
from tests.support.chromium import browser, needs_chromium

BASE = Row("baseline", 20.0, 19.5, 20.5, 1.0, 34.0, 10.0, 1025.0, 0.5, 0)
BASE = replace(BASE, ratios=(1.0, 1.0, 1.0), loss=(0.0, 0.0))
FAST = replace(BASE, profile="mixed+buckets+openvino", windows_per_s=60.0, low=59.0, high=61.0)
FAST = replace(
    FAST, times_baseline=3.0, micro_f1=0.499, changed=2, ratios=(3.1, 3.0, 2.9), loss=(0.002, 0.001)
)
ROUGH = replace(FAST, profile="openvino+int8", windows_per_s=90.0, low=89.0, high=91.0)
ROUGH = replace(ROUGH, micro_f1=0.4, changed=9, ratios=(4.5, 4.5, 4.5), loss=(0.2, 0.1))
FAILED = Row("onnx", error="ONNX is not installed: " + "do this " * 12)
RUN = replace(BASE, low=None, high=None, times_baseline=None, prepare_s=3.0)
RUN = replace(RUN, name="a file with a long name.jsonl", against="grappler · small in runs/a")
EVIL = replace(BASE, profile="</script><b>&", low=None)
MODEL = replace(FAST, model="small", questions_per_s=6.0, changed=0, loss=None)
MODEL = replace(MODEL, behind=(0.0, 0.0, 0.0), fitted={"micro_f1": 0.6}, quality={"micro_f1": 0.5})
MODEL = replace(MODEL, judged=MODEL.fitted, decision=comparison.FITTED)
SLOW = replace(MODEL, model="org/other", questions_per_s=2.0, ratios=(0.34, 0.33, 0.32), changed=9)
ANSWER = {"s": "Ann <b>", "l": "by Ann", "t": [1, 2], "outcome": "right", "group": 0}
THIRD = replace(SLOW, model="third")
CHANGES = [
    {
        "question": "who?",
        "gold": ["Ann"],
        "answers": {
            "baseline": {**ANSWER, "s": "Bob", "outcome": "wrong"},
            **{key: {**ANSWER, "group": 1} for key in ("mixed", "xla")},
        },
    }
]


def judged(row: Row, f1: float, *behind: float) -> Row:
    one, low, high = behind
    return replace(row, judged={"micro_f1": f1}, behind=(one, low, high))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            [judged(MODEL, 0.6, 0.008, -0.02, 0.03), judged(SLOW, 0.608, 0, 0, 0)],
            "Take small: org/other has the best F1, 0.608; that of small is 0.008 lower "
            "(90%: -0.020 to 0.030, may be chance), and small is 9.09 times as fast.",
        ),
        (
            [MODEL, judged(SLOW, 0.4, 0.2, 0.1, 0.3)],
            "Take small: small has the best F1, 0.600; that of org/other is 0.200 lower "
            "(90%: 0.100 to 0.300).",
        ),
        (
            [judged(MODEL, 0.56, 0.04, 0.01, 0.1), SLOW],
            "Take org/other: org/other has the best F1, 0.600; that of small is 0.040 lower (90%: "
            "0.010 to 0.100). The fastest, small, is not as good: 0.040 lower (90%: 0.0",
        ),
        (
            [SLOW, MODEL],
            "Take small: org/other and small have the same F1, 0.600, and small is 9.09 times as",
        ),
        (
            [MODEL, replace(SLOW, ratios=MODEL.ratios), judged(THIRD, 0.4, 0.2, 0.1, 0.3)],
            "Take org/other: small and org/other have the same F1, 0.600; that of third is 0.200 "
            "lower (90%: 0.100 to 0.300); as fast within the rounds: small.",
        ),
        ([judged(MODEL, 0.56, 0.04, -0.01, 0.1), SLOW], "Take small"),  # may be chance
        ([judged(MODEL, 0.5, 0.1, -0.01, 0.2), SLOW], "Take org/other"),
        ([replace(MODEL, ratios=(3.0,)), replace(SLOW, ratios=(0.3,))], "small"),
        ([replace(one, behind=None) for one in (MODEL, SLOW)], "No model is named, since"),
        ([MODEL, replace(FAILED, model="bad")], "Take small: small has an F1 of 0.600."),
    ],
)
def test_the_model_to_take_is_the_fastest_that_is_as_good_as_the_best(
    rows: list[Row], sentence: str
) -> None:
    name, text = advice(rows)
    assert text.startswith(sentence)
    assert name.partition(" · ")[0] in text and bool(name) == text.startswith("Take")


def test_a_table_of_models_fits_a_terminal_and_a_page_has_all_its_columns() -> None:
    rows = [MODEL, judged(SLOW, 0.4, 0.2, 0.1, 0.3), replace(FAILED, model="bad")]
    quality = {"micro_f1": 0.5, "long_f1": 0.51, "short_f1": 0.52, "squad_f1": 0.53}
    rows[0] = replace(rows[0], judged=quality, size_mb=22.0)
    text = comparison.comparison_table(rows)
    assert max(map(len, text.splitlines())) <= comparison.WIDTH
    heads, body = comparison.cells(rows)
    assert {"long F1", "short F1", "F1 of words", "windows/s", "disk MB"} <= set(heads)
    assert {"0.510", "0.520", "0.530"} <= set(body[0]) and "failed" in body[2]
    assert "micro F1 shipped" in heads and "fitted" in body[0] and " fitted" in text


@given(st.lists(st.text("ab+-/_ ·", min_size=1, max_size=90), min_size=1, max_size=40, unique=True))
def test_a_table_of_runs_fits_a_terminal_and_has_their_whole_names(names: list[str]) -> None:
    rows = [replace(RUN, name=name, busy=0, not_comparable="resumed") for name in names]
    lines = comparison.comparison_table(rows).splitlines()
    assert max(map(len, lines)) <= comparison.WIDTH
    figures = re.compile(r"  +[\d.]+(?:  +[\d.]+)*$")
    labels = "".join(figures.sub("", line) for line in lines[3:] if "not comparable" not in line)
    assert re.sub(r"\s", "", labels) == re.sub(r"\s", "", "".join(row.label for row in rows))


def test_runs_of_several_models_have_their_f1() -> None:
    rows = [replace(RUN, model=name, quality={"micro_f1": 0.25}) for name in ("a", "b")]
    for is_narrow in (True, False):
        heads, body = comparison.cells(rows, is_narrow)
        assert [texts[heads.index("micro F1")] for texts in body] == ["0.250"] * 2


def test_the_texts_of_a_page_of_runs_are_true_of_runs_and_the_others_of_rounds() -> None:
    rows = [replace(RUN, name=name, against="runs/a") for name in ("runs/b", "runs/a", "runs/c")]
    of_runs, of_rounds = (
        comparison_page(Comparison(one), "some").decode() for one in (rows, [FAST, BASE])
    )
    for text in ("<title>nq report", "compared with the first", "not measured in turn"):
        assert text in of_runs and text not in of_rounds
    for text in ("<title>nq compare", "median of the rounds"):
        assert text in of_rounds and text not in of_runs


def test_of_runs_the_best_f1_or_a_tie_is_told_with_the_models() -> None:
    rows = [
        replace(RUN, name=f"runs/{name}", model=name, behind=(0.0, 0.0, 0.0)) for name in "abcd"
    ]
    labels = [row.label for row in rows]
    assert labels[0] == "a · baseline · runs/a"
    same = f"{labels[0]}, {labels[1]} and {labels[2]} have the same F1, 0.500. No run is named"
    assert advice(rows[:3])[1].startswith(same)
    assert advice(rows)[1].startswith(f"{labels[0]} and 3 others have the same F1, 0.500. No run")
    worse = [replace(row, micro_f1=0.4, behind=(0.1, -0.01, 0.2)) for row in rows[1:]]
    text = advice([rows[0], *worse[:1]])[1]
    assert text.startswith(
        f"{labels[0]} has the best F1, 0.500; that of {labels[1]} is 0.100 lower"
    )
    assert "(90%: -0.010 to 0.200, may be chance)." in text
    assert advice([replace(row, behind=None) for row in rows])[1].startswith("No run is named")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([FAST, BASE], "Take mixed+buckets+openvino: 3.00 times as fast as baseline, 2 changed"),
        ([ROUGH, BASE], "Take baseline: no profile"),
        ([BASE, replace(ROUGH, loss=(0.04, 0.0))], "Take openvino+int8"),  # may be chance
        ([BASE, replace(ROUGH, loss=(0.2, 0.0))], "Take baseline"),
        ([BASE, replace(FAST, changed=0, loss=None)], "Take mixed"),
        ([BASE, replace(FAST, loss=None)], "Take baseline"),  # no gold
        (
            [FAST, replace(FAST, profile="mixed", ratios=(3.0, 2.9, 3.0), changed=1), BASE],
            "Take mixed: 3.00 times as fast as baseline, 1 changed answer, relative loss",
        ),
        (  # slower in most rounds, and by much
            [FAST, replace(FAST, profile="mixed", ratios=(2.0, 2.0, 2.95), changed=1), BASE],
            "Take mixed+buckets+openvino",
        ),
        ([FAST, FAILED], "No profile can be named"),
    ],
)
def test_the_profile_to_take_is_the_fastest_that_keeps_the_answers(
    rows: list[Row], sentence: str
) -> None:
    name, text = advice(rows)
    assert text.startswith(sentence)
    assert name in text


def row(profile: str, *speeds: float, baseline: tuple[float, ...], changed: int = 0) -> Row:
    """Returns the row of a profile that had these speeds in quiet rounds."""
    ratios = tuple(one / other for one, other in zip(speeds, baseline, strict=True))
    speed = median(speeds), min(speeds), max(speeds)
    return Row(profile, *speed, median(ratios), changed=changed, ratios=ratios)


def test_rounds_are_compared_with_each_other_and_not_their_ranges() -> None:
    """The range of the fastest one contains all others."""
    slow = (2.92, 2.97, 3.80)
    rows = [
        row("mixed+xla", 2.5, 4.5, 4.4, baseline=slow),
        row("grappler", 4.11, 4.20, 4.27, baseline=slow),
        row("baseline", *slow, baseline=slow),
    ]
    assert advice(rows)[0] == "grappler"


SPEED = st.floats(1, 100)
NAMES = ("baseline", "mixed", "xla", "mixed+xla", "buckets+openvino")


@given(st.data(), st.integers(2, 4), st.permutations(range(len(NAMES))))
def test_no_profile_is_named_that_another_one_beats_in_every_round(
    data: st.DataObject, rounds: int, order: list[int]
) -> None:
    speeds = {name: data.draw(st.tuples(*[SPEED] * rounds)) for name in NAMES}
    changed = {name: data.draw(st.integers(0, 2)) * (name != "baseline") for name in NAMES}
    slow, with_gold = speeds["baseline"], data.draw(st.booleans())
    rows = [row(name, *speeds[name], baseline=slow, changed=changed[name]) for name in NAMES]
    rows = [replace(one, loss=(0.0, 0.0)) for one in rows] if with_gold else rows
    take, reason = advice(rows)
    assert (take, reason) == advice([rows[number] for number in order])
    assert with_gold or not changed[take]
    for one in rows:
        if with_gold or not one.changed:
            ratios = zip(one.ratios, next(r for r in rows if r.profile == take).ratios, strict=True)
            assert not all(other > own for other, own in ratios)
    for n_rounds, busy, todo in ((2, 1, "busy rounds again"), (1, 0, "--rounds 2 or more")):
        few = [replace(r, ratios=r.ratios[:n_rounds], busy=busy) for r in rows]
        assert advice(few)[0] == "" and todo in advice(few)[1]


@given(st.data(), st.integers(3, 5))
def test_on_a_busy_machine_only_what_was_faster_in_every_round_counts(
    data: st.DataObject, rounds: int
) -> None:
    speeds = {name: data.draw(st.tuples(*[SPEED] * rounds)) for name in NAMES}
    slow = speeds["baseline"]
    rows = [replace(row(name, *speeds[name], baseline=slow), busy=1) for name in NAMES]
    take, reason = advice(rows)
    faster = {name for name in NAMES[1:] if all(map(gt, speeds[name], slow))}
    slower = {name for name in NAMES[1:] if all(map(lt, speeds[name], slow))}
    if faster:
        assert take in faster
    else:
        assert take == ("baseline" if slower == {*NAMES[1:]} else "")
    assert "on a busy machine" in reason and bool(take) == reason.startswith("Take")
    assert not take or "auto does not take it" in reason


def test_a_page_needs_no_other_file_and_escapes_its_texts() -> None:
    change = {"question": EVIL.profile, "answers": {}, "gold": [EVIL.profile]}
    page = comparison_page(Comparison([EVIL]), EVIL.profile, [EVIL.profile], [change]).decode()
    assert EVIL.profile not in page
    assert "default-src &#39;none&#39;" in page and "unsafe-eval" not in page
    assert not re.search(r"<link|<img|<script src", page)


def test_a_notebook_shows_the_table_with_bars_and_marks_the_profile_to_take() -> None:
    rows = Comparison([FAST, BASE, EVIL, FAILED], Path("<i>/compare.html"))
    html = rows._repr_html_()
    assert all(escape(text) in html for texts in comparison.cells(rows)[1] for text in texts)
    assert html.count("<svg") == 3 and html.count(TAKEN_COLOR) == 1
    assert f"<b>{FAST.profile}</b>" in html and "<small>ONNX is not installed" in html
    assert "&lt;i&gt;/compare.html" in html and not re.search("<i>|<script|class=", html)
    assert repr(rows) == f"{comparison.comparison_table(rows)}\n\n{advice(rows)[1]}"


PROFILES = [FAST, ROUGH, FAILED, EVIL, *(replace(BASE, profile=f"profile{i}") for i in range(5))]
LONG = [
    replace(SLOW, model=f"org/a-long-name-of-a-model-{i}", questions_per_s=i % 7 + i / 60)
    for i in range(1, 41)
]
LONG = [judged(one, 0.4 + i % 3 / 10, 0.2 - i % 3 / 10, 0.0, 0.2) for i, one in enumerate(LONG)]
RUNS = [replace(RUN, name=f"runs/2026/{'dev-' * i}{i}", micro_f1=i / 9) for i in range(5)]
LABELS = "[...document.querySelectorAll('.labels text')]"
LEGEND = "[...document.querySelectorAll('.points li')]"
IN_CHART = """(chart => element => {
    const box = element.getBoundingClientRect(), border = chart(element).getBoundingClientRect();
    return box.left >= border.left && box.right <= border.right
        && box.top >= border.top && box.bottom <= border.bottom
        && (element instanceof SVGElement || element.scrollWidth <= element.clientWidth);
})(element => element.closest('svg, figure'))"""


def plain(texts: list[str]) -> list[str]:
    """Returns texts of a page without the characters that only keep them apart."""
    return [text.replace("\u200b", "").replace("\xa0", " ").strip() for text in texts]


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("rows", [PROFILES, LONG, RUNS], ids=["profiles", "long", "runs"])
def test_the_labels_of_points_and_bars_are_whole_in_every_width(
    rows: list[Row], tmp_path: Path
) -> None:
    """Where labels have no place beside the points, numbers have, and a list has the labels."""
    (tmp_path / "page.html").write_bytes(comparison_page(Comparison(rows), "rows", (), CHANGES))
    labels = [one.label for one in rows if one.windows_per_s]
    with browser(tmp_path / "profile") as tab:
        for width, dark in ((1500, False), (800, True), (390, False)):
            tab.size(width, dark=dark)
            tab.open((tmp_path / "page.html").as_uri())
            assert tab.run("document.documentElement.scrollWidth") <= width
            charts = tab.run("document.querySelectorAll('.labels').length")
            assert charts and tab.run(f"{LABELS}.every(t => t.getAttribute('opacity') !== '0')")
            texts = plain(tab.run(f"{LABELS}.map(t => t.textContent)"))
            listed = plain(tab.run(f"{LEGEND}.map(item => item.textContent)"))
            numbers = [str(number) for number, _ in enumerate(labels, 1)]
            named = [f"{number} {label}" for number, label in zip(numbers, labels, strict=True)]
            is_numbered = bool(listed)
            assert (texts, listed) == (
                (charts * numbers, charts * named) if is_numbered else (charts * labels, [])
            )
            assert is_numbered or width > 390
            boxes = f"{LABELS}.map(t => t.getBoundingClientRect())"
            hit = "b.x < a.right && a.x < b.right && b.y + 3 < a.bottom && a.y + 3 < b.bottom"
            assert not tab.run(f"{boxes}.some((a, i, all) => all.some((b, j) => i < j && {hit}))")
            names = "[...document.querySelectorAll('#predict_s .name')]"
            assert plain(tab.run(f"{names}.map(name => name.textContent)")) == labels
            for texts_of in (LABELS, LEGEND, names):
                assert tab.run(f"{texts_of}.every({IN_CHART})"), (width, texts_of)
            bars = "[...document.querySelectorAll('#predict_s .fill')].map(bar => bar.clientWidth)"
            assert len(tab.run(bars)) == 2 * len(labels) and min(tab.run(bars)) > 0
            classes = (
                "[...document.querySelectorAll('.change .answers > div')].map(d => d.className)"
            )
            assert tab.run(classes) == ["predicted", "expected"]  # the second is right
        assert tab.messages == []


@needs_chromium
@pytest.mark.slow
def test_models_have_quality_against_speed_or_bars_where_that_tells_nothing(
    tmp_path: Path,
) -> None:
    other = judged(SLOW, 0.4, 0.2, 0.1, 0.3)
    agreement = {one.label: [1.0, 0.25] for one in (MODEL, other)}
    drawn = {"differs": [MODEL, other], "equal": [MODEL, SLOW]}
    with browser(tmp_path / "profile") as tab:
        for name, rows in drawn.items():
            page = comparison_page(Comparison(rows), "2 models", ["now"], CHANGES, agreement)
            (tmp_path / f"{name}.html").write_bytes(page)
            for width in (1500, 390):
                tab.size(width)
                tab.open((tmp_path / f"{name}.html").as_uri())
                assert tab.run("document.documentElement.scrollWidth") <= width
                shown = "[...document.querySelectorAll('figure')].filter(f => !f.hidden)"
                ids = tab.run(f"{shown}.map(f => f.querySelector('.chart').id).join()")
                assert ids == ("f1,predict_s" if name == "differs" else "speed,predict_s")
                assert tab.run(f"{shown}.every(f => f.querySelector('svg, .bars'))")
                assert "25%" in tab.run("document.body.innerText")
                assert "gold: Ann" in tab.run("document.getElementById('changes').innerText")
        assert tab.messages == []
