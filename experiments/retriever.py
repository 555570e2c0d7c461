"""Measures what the scores of a retriever are worth to a reader, in its decision and for ``prune``.

    python -m experiments.retriever --data dev.jsonl.gz --ranker ranker --model small \\
        --profile mixed+buckets+openvino --output retrieved.jsonl

The retriever is a dual encoder. It ranks the blocks of the pages of the data, and its ranking is
written as the file of a retriever, for the questions that have a gold short answer. The reader
answers that file once; all rows are decided from these scores. A decision is fitted to the
questions with even ids, without the retriever's score and with it; the figures are of the odd ones.
``prune`` keeps the first N passages by BM25, by the retriever, or by both with the fitted weights.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments import Values, command
from experiments.command import markdown
from experiments.scored import answered, judged, metrics
from experiments.training_data import write_records
from nq.bundle import RANKER
from nq.config import DecisionConfig
from nq.evaluation.tuning import fold_of, tune_decision
from nq.inference.prune import best_positions, with_any
from nq.model.folder import ModelFolder
from nq.model.model import Model
from nq.postprocess.ranking import rank
from nq.preprocess.features import features
from nq.records import Example, WindowScores
from nq.runs.folder import FinishedRun
from nq.runs.job import Job
from nq.runs.tuning import start_decision

DEPTHS = (4, 8, 16)
METRICS = {
    "retrieved_exact_match": "exact match",
    "micro_f1": "micro-F1",
    "long-answer-f1": "long F1",
    "short-answer-f1": "short F1",
}


def _options(parser: argparse.ArgumentParser) -> None:
    command.add_answering(parser, " of annotated data", command.add_one_model)
    text = f"folder or name of a dual encoder (default: {RANKER})"
    parser.add_argument("--ranker", default=RANKER, metavar="MODEL", help=text)
    command.add_option(parser, "output", Path, "a jsonl file", metavar="FILE")


def retrieved(example: Example, scores: Mapping[int, float]) -> Values:
    """Returns the blocks of a page as passages, ranked by their scores, in the format of DPR."""
    shorts = dict.fromkeys(a.shorts for a in example.annotations or () if a.shorts)
    passages = [
        {"id": block, "title": "", "text": example.text(example.candidates[block].span), "score": x}
        for block, x in sorted(scores.items(), key=lambda one: -one[1])
    ]
    answers = ["; ".join(map(example.text, spans)) for spans in shorts]
    values = {"id": example.example_id, "question": example.question, "answers": answers}
    return {**values, "ctxs": passages}


def block_scores(finished: FinishedRun) -> Iterator[tuple[Example, dict[int, float]]]:
    """Yields the score of each block by the model of a run, by candidate index."""
    for example, scores in finished:
        evidence = rank(example, scores, finished.job.model.decision).evidence
        yield (
            example,
            dict(zip(evidence.blocks.tolist(), evidence.block_scores().tolist(), strict=True)),
        )


def pruned(
    finished: FinishedRun, example: Example, scores: WindowScores, decision: DecisionConfig
) -> tuple[WindowScores, float]:
    """Returns the scores as ``prune`` gives them, and the share of windows that are computed."""
    config = finished.job.model.windows
    token_map = features(example, finished.tokenizer, config).token_map
    computed = with_any(best_positions(example, token_map, decision))
    values = {}
    for name in WindowScores.__slots__:
        column = getattr(scores, name)
        kept = computed.reshape(-1, *[1] * (column.ndim - 1))
        values[name] = np.where(kept, column, -1 if name.endswith("_doc") else 0)
    return WindowScores(**values), float(np.mean(computed))


Scored = Sequence[tuple[Example, WindowScores]]


def figures(scored: Scored, decision: DecisionConfig) -> dict[str, float]:
    """Returns what a decision is worth on the questions with odd ids."""
    of_all = metrics(judged(scored, decision, "odd"))
    return {name: of_all[name] for name in METRICS}


def without_scores(example: Example) -> Example:
    """Returns an example whose passages have no score."""
    return replace(example, passages=tuple(replace(p, score=None) for p in example.passages or ()))


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    reader = command.one_model(args)
    ranker = Model.open(ModelFolder.open(args.ranker))
    with answered(
        Job(args.data, ranker, args.profile, limit=args.limit, keep_scores=True)
    ) as ranked:
        records = (retrieved(*one) for one in block_scores(ranked))
        write_records(args.output, [one for one in records if one["answers"]])
    with answered(Job([str(args.output)], reader, args.profile, keep_scores=True)) as finished:
        rows = list(_rows(finished))
        return command.show({"questions": len(finished.predictions), "rows": rows}, args, table)


def _rows(finished: FinishedRun) -> Iterator[Values]:
    scored: Scored = [(e, s) for e, s in finished if isinstance(s, WindowScores)]
    unscored = [(without_scores(example), scores) for example, scores in scored]
    shipped = finished.job.model.decision
    start = start_decision(finished.job.model)
    plain = tune_decision(unscored, start, fold_of).decision
    fitted = tune_decision(scored, start, fold_of).decision
    for name, examples, decision in (
        ("shipped", scored, shipped),
        ("fitted without the score", unscored, plain),
        ("fitted with the score", scored, fitted),
    ):
        yield {
            "decision": name,
            "prune": "",
            "windows": 1.0,
            **figures(examples, decision),
        }
    by_words = [(replace(e, passages=None), s) for e, s in scored]
    for depth in DEPTHS:
        for name, ranking, examples, decision in (
            ("shipped", "BM25", by_words, shipped),
            ("shipped", "retriever", scored, shipped),
            ("fitted with the score", "both", scored, fitted),
        ):
            limited = replace(decision, prune_blocks=depth)
            parts = [pruned(finished, example, scores, limited) for example, scores in examples]
            kept = [(example, part) for (example, _), (part, _) in zip(scored, parts, strict=True)]
            yield {
                "decision": name,
                "prune": f"{ranking}, {depth} blocks",
                "windows": float(np.mean([share for _, share in parts])),
                **figures(kept, decision),
            }


def table(result: Values) -> str:
    """Returns the rows as a Markdown table."""
    cells = (
        (
            row["decision"],
            row["prune"] or "no",
            f"{row['windows']:.0%}",
            *(f"{row[name]:.3f}" for name in METRICS),
        )
        for row in result["rows"]
    )
    return markdown(("decision", "prune", "windows computed", *METRICS.values()), *cells)


main = command.main(measure, _options)
