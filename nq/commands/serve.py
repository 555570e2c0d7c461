"""``nq serve``: answers questions over HTTP."""

import argparse
import logging
import os
import sys

from nq import extras
from nq.commands import arguments, terminal
from nq.config import ServeConfig, WindowConfig
from nq.errors import Error

log = logging.getLogger(__name__)

TOKEN = "NQ_TOKEN"
LOCAL = ("127.", "localhost", "::1")
NOTES = (
    f"The environment variable {TOKEN} makes every client send it as a bearer token.\n"
    "SIGTERM or Ctrl-C ends the server when the accepted requests are answered, a second one at "
    "once."
)


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq serve",
        description="Answers questions over HTTP: a page at /, POST /v1/ask, GET /healthz, "
        "/readyz, /metrics, and a description of them at /docs.",
        examples=(
            "nq serve",
            "nq serve --model ranker --workers 2 --port 8080",
            f"{TOKEN}=secret nq serve --host 0.0.0.0",
        ),
        notes=f"{NOTES}\n\n{arguments.PROFILES_HELP}",
    )
    arguments.add_model(parser)
    arguments.add_ranker(parser)
    arguments.add_profile(parser, reader=True)
    arguments.add_settings(parser, ServeConfig)
    arguments.add_set(parser, WindowConfig)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    config = arguments.settings(ServeConfig, args)
    token = os.environ.get(TOKEN)
    if token is not None and not token.strip():
        raise Error(f"{TOKEN} is empty: give it a value, or unset it to let everyone ask")
    if token is None and not config.host.startswith(LOCAL):
        log.warning(
            "everyone who reaches %s may ask: set %s, or listen on 127.0.0.1", config.host, TOKEN
        )
    extras.require("serve")
    args.profile.require()
    from nq.reader import checked_scorer
    from nq.serving.server import serve as serve_model

    model = arguments.open_model(args)
    spec = checked_scorer(model, args.profile, config.batch_size)

    def on_ready(url: str) -> None:
        log.info(
            "%s under %s answers at %s; Ctrl-C ends it",
            model.name,
            args.profile,
            url,
        )
        if args.json:
            terminal.print_json({"url": url, "pid": os.getpid()})
            sys.stdout.flush()

    serve_model(spec, config, token and token.strip(), on_ready)
    return 0
