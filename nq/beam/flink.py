"""Flink's REST API: whether a cluster answers, and the id of a job in it.

The id that Beam's job server gives to a job is another one.
"""

import base64
import contextlib
import json
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

from nq.beam.runner import FlinkRunnerOptions, parse_options
from nq.errors import Error
from nq.text import without_password

TIMEOUT_S = 5.0
NO_CLUSTER = ("[local]", "[auto]", "[collection]")
"""Values of ``--flink_master`` by which Beam starts a Flink of its own."""


def address(options: Sequence[str]) -> str | None:
    """Returns the URL of the cluster that options of Beam name by ``--flink_master``, if any."""
    master = parse_options(options).view_as(FlinkRunnerOptions).flink_master
    if not master or master in NO_CLUSTER:
        return None
    return str(master if "://" in master else f"http://{master}").rstrip("/")


def check_flink(options: Sequence[str]) -> None:
    """Checks that the cluster which options name answers."""
    url = address(options)
    if url is None:
        return
    try:
        _get(f"{url}/overview")
    except (OSError, ValueError, HTTPException) as error:
        what = f"no Flink answers at {without_password(url)}"
        reason = without_password(str(getattr(error, "reason", None) or error), url)
        raise Error(f"{what} ({reason}): start it, or give another --flink_master") from error


def flink_job_id(options: Sequence[str], job_name: str) -> str | None:
    """Returns the id of the newest job of this name; ``None`` if it cannot be found."""
    url = address(options)
    if url is None:
        return None
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, HTTPException):
        jobs = [job for job in _get(f"{url}/jobs/overview")["jobs"] if job["name"] == job_name]
        return str(max(jobs, key=lambda job: job["start-time"])["jid"])
    return None


def _get(url: str) -> Any:
    scheme, _, rest = url.partition("://")
    user, _, place = rest.rpartition("@")
    basic = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
    headers = {"Authorization": f"Basic {basic}"} if user else {}
    request = urllib.request.Request(f"{scheme}://{place}", headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        return json.load(response)
