"""The server's metrics in the text format of Prometheus."""

from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

GONE = 499  # status of a request whose client had gone before the answer
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # nobody uses them
        self.registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.requests = counter("nq_requests", "Answered requests.", ["endpoint", "status"])
        of, text = ["endpoint"], "Seconds of a request."
        self.seconds = histogram("nq_request_seconds", text, of, buckets=SECONDS)
        text = "Requests that are read, wait or are computed."
        self.in_progress = gauge("nq_requests_in_progress", text)
        self.queue_length = gauge("nq_queue_length", "Questions whose windows wait for a batch.")
        self.windows = counter("nq_windows", "Windows of computed batches.")
        self.batch_windows = histogram("nq_batch_windows", "Windows of a batch.", buckets=WINDOWS)
        ProcessCollector(registry=registry)
