"""The peak speed of the machine, to compare speeds with."""

import time

SIZE, TIMES = 2048, 10
TYPES = ("float32", "bfloat16")


def peaks(size: int = SIZE, times: int = TIMES) -> dict[str, float]:
    """Returns the best GFLOP/s of large square TensorFlow matrix products on the CPU, by type."""
    import tensorflow as tf

    best = dict.fromkeys(TYPES, 0.0)
    with tf.device("CPU"):
        for name in TYPES:
            factor = tf.cast(tf.random.normal((size, size)), name)
            tf.matmul(factor, factor)
            for _ in range(times):
                started = time.perf_counter()
                tf.matmul(factor, factor)
                best[name] = max(best[name], 2 * size**3 / (time.perf_counter() - started) / 1e9)
    return best
