"""Compares the decision rules on the same scores of the same model.

    python -m experiments.decisions --data dev.jsonl.gz --profile mixed+buckets+openvino

Every rule decides from the scores of one run, or of a second run if it needs other positions of the
windows. The default rule was fitted to the even half of dev, so the table is that of the examples
with odd ids, unless ``--half all`` is given. "best" F1 is at the best threshold of the scores.
"""

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import replace

from experiments import Values, command
from experiments.command import add_half, markdown
from experiments.scored import answered, judged, metrics
from nq.config import DECISION_RULES
from nq.postprocess.decision import RULES
from nq.runs.folder import FinishedRun
from nq.runs.job import Job

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
    return command.show({"rows": list(_rows(job, args.half))}, args, table)


def _rows(job: Job, half: str) -> Iterator[Values]:
    """Yields the metrics of each rule; rules with the same kind of positions share a run."""
    runs: dict[bool, FinishedRun] = {}
    with contextlib.ExitStack() as stack:
        # The rule with the most positions comes first: its scores contain those of the others.
        for rule in sorted(DECISION_RULES, key=lambda rule: -RULES[rule].k):
            decision = replace(job.model.decision, rule=rule)
            text_only = RULES[rule].text_only
            if text_only not in runs:
                own = replace(job, model=replace(job.model, decision=decision))
                runs[text_only] = stack.enter_context(answered(own))
            figures = metrics(judged(runs[text_only], decision, half))
            shown = {name: figures[name] for name in ("long-answer-n", *METRICS)}
            yield {"decision": rule, **shown}


def table(result: Values) -> str:
    """Returns the rows as a Markdown table."""
    cells = (
        (f"`{row['decision']}`", *(f"{row[name]:.3f}" for name in METRICS))
        for row in result["rows"]
    )
    return markdown(("decision", *METRICS.values()), *cells)


main = command.main(compare, _options)
