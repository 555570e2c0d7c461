"""Reading TFRecords: all of them, in order, and without a thread that nobody needs."""

from __future__ import annotations

from pathlib import Path

from nq.model.data import records
from nq.records import Source
from tests import tiny_models


def test_records_come_shard_by_shard_and_nothing_is_tuned(tmp_path: Path) -> None:
    """With autotuning the end of an iterator waits for a sleeping thread, up to a minute."""
    shards = [
        tiny_models.write_shard(
            tmp_path / f"{i}.tfrecord", [(Source(0, "f", 1), tiny_models.features(i, n, 16))]
        )
        for i, n in enumerate((3, 2))
    ]
    found = records(shards)
    apart = [[r.numpy() for r in records([shard])] for shard in shards]
    assert [r.numpy() for r in found] == [*apart[0], *apart[1]]
    assert list(map(len, apart)) == [3, 2]
    assert found.options().autotune.enabled is False
