"""What the server counts, in the text format of Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

GONE = 499
"""Status of a request whose client had gone before the answer."""
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # nobody uses them
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "nq_requests", "Answered requests.", ["endpoint", "status"], registry=registry
        )
        self.seconds = Histogram(
            "nq_request_seconds",
            "Seconds of a request.",
            ["endpoint"],
            registry=registry,
            buckets=SECONDS,
        )
        self.in_progress = Gauge(
            "nq_requests_in_progress",
            "Requests that are read, wait or are computed.",
            registry=registry,
        )
        self.queue_length = Gauge(
            "nq_queue_length", "Questions whose windows wait for a batch.", registry=registry
        )
        self.windows = Counter("nq_windows", "Windows of computed batches.", registry=registry)
        self.batch_windows = Histogram(
            "nq_batch_windows", "Windows of a batch.", registry=registry, buckets=WINDOWS
        )
        ProcessCollector(registry=registry)

    def text(self) -> bytes:
        """Returns all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
