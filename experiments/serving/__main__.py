"""Measures ``nq serve`` on this machine.

    python -m experiments.serving
    python -m experiments.serving --profile mixed+openvino --workers 2 --json

One server is started; its clients run on the same machine and take a part of its cores. Pages are
short: the first blocks of the pages of the bundled questions.

1. Throughput: one client asks in a loop, then several at once, in turn.
2. Latency: questions arrive at random times, half as many as the server can answer.
3. Endurance: requests of which a third is broken, too large or cut off.
"""

import argparse
import asyncio
import logging
import statistics
from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np

from experiments import Values, command
from experiments.command import markdown
from experiments.serving.load import (
    ServerProcess,
    closed_loop,
    open_loop,
    running_server,
    short_pages,
    soak,
)
from nq.bundle import bundled_sample
from nq.commands import arguments
from nq.config import ServeConfig

log = logging.getLogger("nq.experiments")

LOAD = 0.5
SERVER = ("workers", "batch_size", "queue", "timeout", "max_body_mb", "max_windows")
TARGETS = {
    "gain": ("at least", 2.5),
    "p95_ratio": ("at most", 2),
    "crashes": ("at most", 0),
    "lost": ("at most", 0),
    "memory_ratio": ("at most", 1.05),
}
"""Maps figures to their bounds."""


def _options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = arguments.PROFILES_HELP
    arguments.add_model(parser)
    arguments.add_ranker(parser)
    arguments.add_profile(parser)
    arguments.add_settings(parser, ServeConfig, only=SERVER)
    for name, default, text in (
        ("clients", 16, "clients at once"),
        ("questions", 64, "questions of a round of throughput"),
        ("rounds", 3, "rounds of throughput"),
        ("arrivals", 200, "questions for the latency"),
        ("requests", 1000, "requests of the endurance test"),
        ("seed", 1, "of the times of arrival"),
    ):
        command.add_option(parser, name, default, text)


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    config = arguments.settings(ServeConfig, args)
    bodies = short_pages([str(bundled_sample())])
    with running_server(_server_options(args, config)) as server:
        figures = asyncio.run(_figures(server, bodies, args, config))
    return command.show(figures, args, table)


def _server_options(args: argparse.Namespace, config: ServeConfig) -> list[str]:
    """Returns the options of the server."""
    options = ["--profile", str(args.profile)]
    for name in ("model", "ranker", "read_blocks"):
        value = getattr(args, name)
        options += [f"--{name.replace('_', '-')}", str(value)] if value is not None else []
    for name in SERVER:
        options += [f"--{name.replace('_', '-')}", str(getattr(config, name))]
    return options


async def _figures(
    server: ServerProcess,
    bodies: Sequence[Values],
    args: argparse.Namespace,
    config: ServeConfig,
) -> Values:
    """Returns all figures of a server; seconds end in ``_s``."""
    one = list[float]()
    many = list[float]()
    alone = list[float]()
    some = list(islice(cycle(bodies), args.questions))
    await closed_loop(server.url, some[: args.clients], args.clients)
    for number in range(args.rounds):
        log.info("throughput: round %d of %d", number + 1, args.rounds)
        per_s, latencies = await closed_loop(server.url, some, 1)
        one.append(per_s)
        alone += latencies
        many.append((await closed_loop(server.url, some, args.clients))[0])
    capacity = statistics.median(many)
    alone_s = statistics.median(alone)
    log.info("latency at %.1f questions/s", LOAD * capacity)
    arrivals = list(islice(cycle(bodies), args.arrivals))
    latencies = await open_loop(server.url, arrivals, LOAD * capacity, args.seed)
    p50_s, p95_s = map(float, np.percentile(latencies, (50, 95)))
    log.info("endurance: %d requests", args.requests)
    endured = await soak(server, bodies, args.requests, config.max_body_mb * 10**6)
    return {
        "profile": str(args.profile),
        "server": {name: getattr(config, name) for name in SERVER},
        "clients": args.clients,
        "one_per_s": statistics.median(one),
        "many_per_s": capacity,
        "gain": statistics.median(m / o for m, o in zip(many, one, strict=True)),
        "alone_s": alone_s,
        "load_p50_s": p50_s,
        "load_p95_s": p95_s,
        "p95_ratio": p95_s / alone_s,
        **endured,
        "rounds": {"one_per_s": one, "many_per_s": many},
    }


def table(figures: Values) -> str:
    """Returns the figures as Markdown, with the targets and whether they are reached."""
    f = figures
    rows = [
        ("one client in a loop, questions/s", f"{f['one_per_s']:.2f}", ""),
        (f"{f['clients']} clients at once, questions/s", f"{f['many_per_s']:.2f}", ""),
        ("ratio", f"{f['gain']:.2f}x", "gain"),
        ("one question alone, median", f"{f['alone_s']:.3f} s", ""),
        ("p95 at half of the capacity", f"{f['load_p95_s']:.3f} s", ""),
        ("ratio to one question alone", f"{f['p95_ratio']:.2f}x", "p95_ratio"),
        (f"crashes in {f['requests']} requests", str(f["crashes"]), "crashes"),
        (f"answers lost of {f['good']}", str(f["lost"]), "lost"),
        ("memory of the last 100 to the first 100", f"{f['memory_ratio']:.3f}x", "memory_ratio"),
    ]
    verdicts = {name: _verdict(f[name], *target) for name, target in TARGETS.items()}
    return markdown(
        ("figure", "value", "target"),
        *((text, value, verdicts.get(name, "")) for text, value, name in rows),
    )


def _verdict(value: float, relation: str, bound: float) -> str:
    """Returns a target and whether a value reaches it.

    >>> _verdict(4.73, "at most", 2)
    'at most 2: missed'
    """
    is_reached = value >= bound if relation == "at least" else value <= bound
    return f"{relation} {bound:g}: {'reached' if is_reached else 'missed'}"


main = command.main(measure, _options)
