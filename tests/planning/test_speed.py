"""The speed of TensorFlow on some cores, measured for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from nq.config import ModelConfig
from nq.errors import Error
from nq.inference.cores import available
from nq.planning import speed

SMALL = ModelConfig(hidden_size=64, num_attention_heads=2, intermediate_size=128)


@pytest.mark.slow
def test_a_process_of_its_own_measures_on_its_cores() -> None:
    speeds = speed.on_cores(SMALL, 2, 16, available()[:1])
    assert set(speeds) == set(speed.PROFILES)
    assert all(value > 1e6 for value in speeds.values())


@pytest.mark.slow
def test_layers_that_do_not_fit_are_an_error() -> None:
    wide = ModelConfig(hidden_size=1 << 20, num_attention_heads=2, intermediate_size=1 << 22)
    with pytest.raises(Error, match=r"the speed of this machine cannot be measured: .*memory"):
        speed.on_cores(wide, 1, 16, available()[:1])


@pytest.mark.slow
def test_the_process_uses_no_other_core_and_one_thread_for_each() -> None:
    """The cores are set before any thread of TensorFlow starts."""
    program = (
        "import json\n"
        f"{speed.PROGRAM.replace('sys.exit', '')}"
        "import tensorflow as tf\n"
        "threads = tf.config.threading.get_intra_op_parallelism_threads()\n"
        "cores = {c for t in os.listdir('/proc/self/task') for c in os.sched_getaffinity(int(t))}\n"
        "print(json.dumps([threads, sorted(cores)]))"
    )
    core = available()[-1]
    done = subprocess.run(
        [sys.executable, "-c", program, str(core)],
        input=json.dumps([SMALL.to_dict(), 1, 16]),
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [1, [core]]


def test_all_layers_of_a_small_model_are_measured_and_two_of_a_large_one() -> None:
    large = ModelConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    assert speed.measured_layers(SMALL, 2, 16) == SMALL.num_hidden_layers
    assert speed.measured_layers(large, 8, 512) == speed.LEAST_LAYERS
    assert speed.LEAST_LAYERS < speed.measured_layers(large, 1, 512) < large.num_hidden_layers
    assert speed.measured_layers(ModelConfig(num_hidden_layers=1), 8, 512) == 1
