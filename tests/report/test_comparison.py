"""Tests the comparison of recorded runs: the order, the table and the page."""

from __future__ import annotations

import re
from dataclasses import replace

from nq.report import comparison
from nq.report.comparison import History, RecordedRun

RUN = RecordedRun(
    name="baseline · dev.jsonl",
    profile="baseline",
    total_s=120.5,
    windows_per_s=20.25,
    micro_f1=0.5,
    changed=None,
    peak_mb=1500.4,
    speed_comparable="yes",
    machine="one, 2 cores",
    status="FINISHED",
    started=1.0,
    run_id="a" * 32,
)
FAST = replace(RUN, name="mine", profile="mixed", total_s=40.0, micro_f1=0.25, changed=3)
UNSCORED = replace(RUN, profile="xla", micro_f1=None, total_s=60.0, windows_per_s=None)
ALL = (RUN, FAST, UNSCORED)


def history(*runs: RecordedRun, others: int = 0) -> History:
    return History("nq", runs, others, "mlflow ui")


def test_the_best_run_comes_first_and_those_without_a_value_last() -> None:
    unknown = replace(FAST, micro_f1=float("nan"))
    assert comparison.ordered([unknown, *ALL], "micro_f1") == [RUN, FAST, unknown, UNSCORED]
    assert comparison.ordered(ALL, "changed") == [FAST, RUN, UNSCORED]


def test_the_table_has_a_line_for_each_run_and_tells_what_is_special() -> None:
    killed = replace(
        FAST, name="\x1b[31m", status="KILLED", speed_comparable="no: resumed", machine="two"
    )
    several = replace(UNSCORED, instances=2, threads=1)
    head, *lines, left_out, link = comparison.table(
        history(RUN, killed, several, others=2)
    ).splitlines()
    assert head.split()[:4] == ["name", "profile", "total", "s"]
    assert re.split("  +", lines[0]) == [
        *("dev.jsonl", "baseline", "120.5", "20.2", "0.5000", "1500", "yes; on one, 2 cores"),
    ]
    assert lines[1].startswith("\\u001b[31m")
    assert lines[1].endswith("no: resumed; the run is KILLED; on two")
    assert "yes; 2 instances of 1 thread; on one" in lines[2]
    assert left_out.endswith(": 2") and link == "in MLflow: mlflow ui"
    assert "on one" not in comparison.table(history(*ALL))
    assert "no run with times" in comparison.table(history())


def test_the_page_has_a_mark_for_each_run_with_f1_and_a_row_for_each_run() -> None:
    evil = replace(FAST, name="</title><script>alert(1)</script>", profile="<b>&")
    page = comparison.page(history(*ALL, replace(evil, speed_comparable="no: resumed")))
    assert (page.count("<circle"), page.count("<tr>")) == (3, 5)
    assert not re.search(r"https?://|<script|<link|<img|<b>", page)
    assert page.count('fill="none"') == 1  # the run that is not comparable
    without = comparison.page(history(UNSCORED))
    assert "<svg" not in without and "No run has an F1" in without
