"""Reading TFRecords: all of them, in order, without tf.data's autotuning."""

from __future__ import annotations

from pathlib import Path

from nq.model.data import records
from nq.records import Source
from tests import tiny_models


def test_records_are_read_in_order_without_autotuning(tmp_path: Path) -> None:
    """With autotuning the end of an iterator waits for a sleeping thread, up to a minute."""
    shards = [
        tiny_models.write_shard(
            tmp_path / f"{i}.tfrecord", [(Source(0, "f", 1), tiny_models.features(i, n, 16))]
        )
        for i, n in enumerate((3, 2))
    ]
    dataset = records(shards)
    apart = [[r.numpy() for r in records([shard])] for shard in shards]
    assert [r.numpy() for r in dataset] == [*apart[0], *apart[1]]
    assert list(map(len, apart)) == [3, 2]
    assert dataset.options().autotune.enabled is False
