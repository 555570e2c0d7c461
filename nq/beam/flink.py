"""The id of a job in a Flink cluster, by Flink's REST API.

The id that Beam's job server gives to a job is another one.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Sequence

from nq.beam.runner import flink_master

TIMEOUT_S = 5.0
NO_CLUSTER = ("[local]", "[auto]", "[collection]")
"""Values of ``--flink_master`` by which Beam starts a Flink of its own."""


def flink_job_id(options: Sequence[str], job_name: str) -> str | None:
    """Returns the id of the newest job of this name; ``None`` if it cannot be found.

    Args:
        options: of Beam; ``--flink_master`` names the cluster.
        job_name: of the pipeline.
    """
    master = flink_master(options)
    if not master or master in NO_CLUSTER:
        return None
    address = master if "://" in master else f"http://{master}"
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        with urllib.request.urlopen(f"{address}/jobs/overview", timeout=TIMEOUT_S) as response:
            jobs = json.load(response)["jobs"]
        named = [job for job in jobs if job["name"] == job_name]
        return str(max(named, key=lambda job: job["start-time"])["jid"]) if named else None
    return None
