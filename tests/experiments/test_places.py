"""Where answers stand: read from features, and fitted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from experiments import places
from nq.postprocess.position_prior import USUAL

FEATURES = Path(__file__).parents[3] / "shared" / "data" / "google_tfrecord"
PIECES = ["[PAD]", "[CLS]", "[SEP]", "[ContextId=3]", "[Paragraph=1]", "[Table=2]", "a", "b"]


def features(path: Path, rows: list[tuple[list[str], int]]) -> Path:
    """TFRecords with these pieces and starts of the answer."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for pieces, start in rows:
            feature = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in (
                    ("input_ids", [PIECES.index(piece) for piece in pieces]),
                    ("start_positions", [start]),
                )
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return path


def test_the_last_marker_before_the_answer_tells(tmp_path: Path) -> None:
    text = ["[ContextId=3]", "[Paragraph=1]", "a", "[ContextId=3]", "[Table=2]", "b"]
    rows = [
        (["[CLS]", "a", "[SEP]", "b", "b"], 3),  # begins inside the block: the next window tells
        (["[CLS]", "a", "[SEP]", *text], 5),
        (["[CLS]", "a", "[SEP]", *text], 8),  # the same question again
        (["[CLS]", "b", "[SEP]", *text], 8),
        (["[CLS]", "b", "a", "[SEP]", *text], 0),  # no answer
    ]
    path = features(tmp_path / "f.tfrecord", rows)
    assert places.places([str(path)], PIECES) == [("Paragraph", 1), ("Table", 2)]


def test_fit_is_the_most_likely() -> None:
    draw = np.random.default_rng(3)
    truth = np.array([0.0, -1.0, -2.0, -1.5])
    every = [(kind, n) for kind in places.TYPES for n in range(1, places.LAST + 1)]
    weight = dict(zip(places.TYPES, truth, strict=False))
    powers = np.array([np.exp(weight[kind] + truth[3] * np.log(n)) for kind, n in every])
    drawn = draw.choice(len(every), 20000, p=powers / powers.sum())
    found = places.fit(Counter(every[i] for i in drawn))
    np.testing.assert_allclose(found, truth, atol=0.1)


@pytest.mark.skipif(not FEATURES.is_dir(), reason="needs ../shared/data")
def test_the_decision_expects_what_the_features_show(
    capsys: pytest.CaptureFixture[str],
) -> None:
    records = [str(path) for path in FEATURES.glob("*.tfrecords*")]
    assert places.main([*records, "--vocab", str(FEATURES / "vocab-nq.txt"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shown = found["Table"], found["List"], found["place"]
    assert shown == (USUAL.table, USUAL.list, USUAL.place)


def test_features_without_answers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = features(tmp_path / "f.tfrecord", [(["[CLS]", "a", "[SEP]", "b"], 0)])
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    assert places.main([str(path), "--vocab", str(vocab)]) == 1
    assert "no answer" in capsys.readouterr().err
