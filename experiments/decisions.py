"""Compares the decision rules on the same scores of the same model.

    python -m experiments.decisions --data dev.jsonl.gz --profile mixed+buckets+openvino

Every rule decides from the scores of one run, or of a second run if it needs other positions of the
windows. The default rule was fitted to the even half of dev, so the table is that of the examples
with odd ids, unless ``--half all`` is given. "best" F1 is at the best threshold of the scores.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import command
from experiments.command import add_half, in_half, markdown
from nq.config import DECISION_RULES, DecisionConfig
from nq.errors import Error
from nq.evaluation.evaluate import Evaluation, judge
from nq.formats.outputs import encode_prediction
from nq.postprocess.decision import RULES, decide
from nq.runs.folder import FinishedRun
from nq.runs.job import Job
from nq.runs.run import run

METRICS = {
    "long-answer-f1": "long F1",
    "long-best-threshold-f1": "long F1 best",
    "short-answer-f1": "short F1",
    "short-best-threshold-f1": "short F1 best",
    "micro_f1": "micro-F1",
}


def _options(parser: argparse.ArgumentParser) -> None:
    command.add_answering(parser, " of annotated data", command.add_one_model)
    add_half(parser, default="odd")


def compare(args: argparse.Namespace) -> int:
    """Runs the command."""
    model = command.one_model(args)
    job = Job(args.data, model, args.profile, limit=args.limit, keep_scores=True)
    with tempfile.TemporaryDirectory() as folder:
        rows = list(_rows(replace(job, root=Path(folder)), args.half))
    return command.show({"rows": rows}, args, table)


def _rows(job: Job, half: str) -> Iterator[dict[str, Any]]:
    """Yields the metrics of each rule; rules with the same kind of positions share a run."""
    runs: dict[bool, FinishedRun] = {}
    # The rule with the most positions comes first: its scores contain those of the others.
    for rule in sorted(DECISION_RULES, key=lambda rule: -RULES[rule].k):
        decision, text_only = replace(job.model.decision, rule=rule), RULES[rule].text_only
        if text_only not in runs:
            model = replace(job.model, decision=decision)
            runs[text_only] = FinishedRun(run(replace(job, model=model)).folder)
        metrics = _evaluate(runs[text_only], decision, half)
        yield {"decision": rule, **{name: metrics[name] for name in ("long-answer-n", *METRICS)}}


def _evaluate(finished: FinishedRun, decision: DecisionConfig, half: str) -> dict[str, float]:
    """Returns the metrics of a rule on the scores of a run; an ``Error`` without gold."""
    evaluation = Evaluation()
    for source, example in finished.sources():
        if finished.scores is not None and in_half(example.example_id, half):
            scores = finished.scores.scores((source.file_index, source.line))
            prediction = decide(example, scores, decision).prediction
            evaluation.add(judge(example, encode_prediction(prediction)))
    metrics = evaluation.metrics()
    if not metrics:
        raise Error(f"the half {half!r} of the examples has no annotations: give annotated data")
    return metrics


def table(result: Mapping[str, Any]) -> str:
    """Returns the rows as a Markdown table."""
    cells = (
        (f"`{row['decision']}`", *(f"{row[name]:.3f}" for name in METRICS))
        for row in result["rows"]
    )
    return markdown(("decision", *METRICS.values()), *cells)


main = command.main(compare, _options)

if __name__ == "__main__":
    raise SystemExit(main())
