"""``nq clean``: removes prepared windows, unfinished runs and caches."""

import argparse
from pathlib import Path
from typing import Any

from nq.commands import arguments, terminal
from nq.errors import Error
from nq.text import format_bytes


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq clean",
        description="Removes what other commands left and can make again: prepared windows, "
        "unfinished runs, the state of finished trainings and, if no folder is given, what is in "
        "the cache: converted models (for each engine four bytes a weight: 128 MB for each bundled "
        "model) and vectors of documents. "
        "Files of others and what a running process uses are kept.",
        examples=("nq clean --dry-run", "nq clean runs more_runs", "nq clean --runs"),
    )
    text = "folders to search, with all below them (default: runs)"
    parser.add_argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        help=text,
    )
    text = "remove results too: of runs and nq preprocess, state of unfinished trainings; no models"
    parser.flag("runs", text)
    parser.flag("dry-run", "only list what would be removed, with sizes")
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from nq import cleaning

    roots = args.folders or [root for root in [Path("runs")] if root.exists()]
    items = cleaning.clean(roots, args.runs, args.dry_run, caches=not args.folders)
    removed_bytes = sum(item.bytes for item in items if not item.kept)
    verb = "would remove" if args.dry_run else "removed"
    result: dict[str, Any] = {"dry_run": args.dry_run, "removed_bytes": removed_bytes}
    result |= {"removed": [], "kept": []}
    for item in items:
        values = {"path": str(item.folder), "what": item.what, "bytes": item.bytes}
        if item.kept:
            result["kept"].append({**values, "reason": item.kept})
        else:
            result["removed"].append(values)
        if not args.json:
            print(
                f"{'keep' if item.kept else verb:<13} {format_bytes(item.bytes):>11}  "
                f"{item.folder}: {item.what}{f' ({item.kept})' if item.kept else ''}"
            )
    if args.json:
        terminal.print_json(result)
    else:
        removed = f"{len(result['removed'])} of {len(items)} places"
        print(f"{verb} {format_bytes(removed_bytes)} in {removed}")
    failed = [item for item in items if item.kept.startswith(cleaning.FAILED)]
    if failed:
        raise Error(f"{failed[0].folder} {failed[0].kept}")
    return 0
