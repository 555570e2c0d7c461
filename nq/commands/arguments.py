"""Arguments that several commands share; nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import Field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from nq import extras
from nq.commands.terminal import Parser, UsageError
from nq.config import CascadeDecision, Settings, TrackingConfig, WindowConfig
from nq.inference.profile import DEFAULT_PROFILE, Profile, describe, reader_profile
from nq.mlflow_store import DEFAULT_EXPERIMENT, DEFAULT_URI
from nq.model.config import STORES
from nq.runs.config import AUTO
from nq.text import did_you_mean

if TYPE_CHECKING:
    from nq.formats.own_data import PageFolder
    from nq.model.folder import ModelSettings
    from nq.model.model import Model

PROFILES_HELP = f"profiles, joined by '+' in any order:\n{describe()}"
_METAVARS = {int: "N", float: "X", str: "TEXT"}

S = TypeVar("S", bound=Settings)
T = TypeVar("T")


def _options(cls: type[Settings]) -> Iterator[tuple[Field[Any], Any]]:
    """Yields the fields of a class that have a help text, with their types."""
    hints = get_type_hints(cls)
    for f in fields(cls):  # type: ignore[arg-type]
        if f.metadata.get("help"):
            yield f, hints[f.name]


def add_settings(
    parser: argparse._ActionsContainer,
    cls: type[Settings],
    only: Collection[str] | None = None,
    show_default: bool = True,
) -> None:
    """Adds an option for each field of ``cls`` with a help text; ``settings`` reads them."""
    for f, hint in _options(cls):
        if only is not None and f.name not in only:
            continue
        kinds = {*(get_args(hint) or [hint])} - {type(None), ...}
        kind = next(iter(kinds))
        metavar = _METAVARS[kind]
        if kinds == {int, str}:
            kind = _number_or_auto
            metavar = f"N|{AUTO}"
        choices = f.metadata.get("choices")
        text = f.metadata["help"]
        shown = f.metadata.get("shown_default", f.default)
        if show_default and shown not in (None, ()):
            text += f" (default: {shown})"
        parser.add_argument(
            f"--{f.name.replace('_', '-')}",
            type=kind,
            action="append" if isinstance(f.default, tuple) else "store",
            choices=choices,
            metavar=None if choices else metavar,
            help=text.replace("%", "%%"),
        )


def _number_or_auto(text: str) -> int | str:
    try:
        return text if text == AUTO else int(text)
    except ValueError:
        expected = f"must be a whole number, or {AUTO}, got {text!r}"
        raise argparse.ArgumentTypeError(expected) from None


def settings(base: type[S] | S, args: argparse.Namespace) -> S:
    """Returns the settings in ``args``; options that were not given are as in ``base``."""
    values = vars(args) | dict(getattr(args, "set", ()))
    names = [f.name for f in fields(base)]  # type: ignore[arg-type]
    given = {name: values[name] for name in names if values.get(name) is not None}
    try:
        return base(**given) if isinstance(base, type) else replace(base, **given)  # type: ignore[type-var]
    except ValueError as error:
        raise UsageError(str(error)) from error


def window_settings(args: argparse.Namespace, stored: ModelSettings) -> WindowConfig:
    """Returns the window settings in ``args``, by default those of a model folder."""
    from nq.model.folder import ModelSettings

    return settings(WindowConfig if stored == ModelSettings() else stored.windows, args)


def open_model(args: argparse.Namespace) -> Model:
    """Returns the models that ``args`` name, with the windows that ``args`` give the first one."""
    from nq.model.folder import ModelFolder, open_folder
    from nq.model.model import Model

    files = open_folder(args.ranker or args.model)
    first = files if isinstance(files, ModelFolder) else files.ranker
    return Model.open(
        args.model if args.ranker else files,
        windows=window_settings(args, first.settings),
        ranker=args.ranker,
        read_blocks=args.read_blocks,
    )


def positive(text: str, minimum: int = 1) -> int:
    """Converts an argument to an integer of at least ``minimum``."""
    if not text.isdecimal() or int(text) < minimum:
        raise argparse.ArgumentTypeError(f"must be a whole number from {minimum} on, got {text!r}")
    return int(text)


count_from_0 = partial(positive, minimum=0)


def parsed_by(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Returns a converter of arguments by ``parse``, whose ``ValueError`` is an error of usage."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


profile = parsed_by(Profile)


def check_beam_options(options: Sequence[str]) -> None:
    """Checks that options that a command does not know are options of Apache Beam."""
    if extras.missing("beam"):
        unknown = f"unrecognized arguments: {' '.join(options)}; if they are options of Apache Beam"
        raise UsageError(f"{unknown}, {extras.install('beam')}")
    from nq.beam.runner import parse_options

    try:
        parse_options(options)
    except ValueError as error:
        raise UsageError(str(error)) from error


def add_data(parser: argparse.ArgumentParser, required: bool = True, note: str = "") -> None:
    text = f"files, globs, folders, hf://datasets/…, or - for standard input{note}"
    parser.add_argument(
        "--data",
        nargs="+",
        required=required,
        metavar="FILE",
        help=text,
    )
    text = "text, HTML, Markdown, PDF or docx files, which questions name as their page"
    parser.add_argument("--pages", metavar="FOLDER", help=text)
    text = "field that names the page (default: page)"
    parser.add_argument("--page-column", metavar="NAME", help=text)


def pages(args: argparse.Namespace) -> PageFolder | None:
    """Returns the pages that ``args`` give, ``None`` if they give none."""
    if args.pages is None:
        if args.page_column is not None:
            raise UsageError("--page-column needs --pages")
        return None
    from nq.formats.own_data import list_pages

    return list_pages(args.pages, args.page_column)


def add_limit(parser: argparse.ArgumentParser) -> None:
    text = "read the first N records only"
    parser.add_argument("--limit", type=positive, metavar="N", help=text)


def add_workers(parser: argparse.ArgumentParser) -> None:
    text = "processes for preprocessing (default: 1)"
    parser.add_argument("--workers", type=positive, metavar="N", help=text)


def add_store(parser: argparse.ArgumentParser) -> None:
    text = (
        "type of the stored weights; int8: matrices and word embeddings in 8 bits, with scales per "
        f"output and input channel, the rest in float32 (default: {STORES[0]})"
    )
    parser.add_argument("--store", choices=STORES, default=STORES[0], help=text)


def add_profile(parser: argparse.ArgumentParser, auto: bool = False, reader: bool = False) -> None:
    """Adds ``--profile``, with ``auto`` as the word; the epilog should be ``PROFILES_HELP``.

    A command that answers questions in memory has the default of a ``reader``; one with ``auto``
    has ``None``.
    """
    text = "openvino, onnx or grappler, as installed" if reader else DEFAULT_PROFILE
    if auto:
        text = f"{AUTO}: what nq compare says to take, else what suits this machine"
    default = reader_profile() if reader else Profile(DEFAULT_PROFILE)
    parser.add_argument(
        "--profile",
        type=lambda text: text if auto and text == AUTO else profile(text),
        default=None if auto else default,
        metavar="P",
        help=f"optimizations to run under (default: {text}); see below",
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    text = "folder or name of a model, or org/name[@revision] of the Hugging Face hub; "
    text += "default: ranker+small, the two bundled models"
    parser.add_argument("--model", metavar="MODEL", help=text)


def add_ranker(parser: argparse.ArgumentParser) -> None:
    text = "folder or name of a model that ranks the blocks, of which --model reads the best"
    parser.add_argument("--ranker", metavar="MODEL", help=text)
    text = f"blocks that are read of those; default: as tuned, else {CascadeDecision.read_blocks}"
    parser.add_argument("--read-blocks", type=positive, metavar="K", help=text)


def add_set(parser: argparse.ArgumentParser, *classes: type[Settings]) -> None:
    """Adds ``--set`` for the fields of classes that have a help text; ``settings`` reads them."""
    options = {f.name: (f.metadata, kind) for cls in classes for f, kind in _options(cls)}
    lines = []
    for name, (about, _) in options.items():
        choices = f" ({', '.join(about['choices'])})" if "choices" in about else ""
        lines.append(f"  {name:<17}  {about['help']}{choices}")

    def assignments(text: str) -> list[tuple[str, Any]]:
        values = []
        for part in text.split(","):
            name, _, value = part.partition("=")
            if name not in options:
                raise ValueError(f"unknown setting {name!r}{did_you_mean(name, options)}")
            _, kind = options[name]
            try:
                values.append((name, kind(value)))
            except ValueError:
                expected = "a whole number" if kind is int else "a number"
                raise ValueError(f"{name} is {value!r}: expected {expected}") from None
        return values

    title = "settings; default: those of the model folder"
    group = parser.add_argument_group(title, "\n".join(lines))
    group.add_argument(
        "--set",
        action="extend",
        type=parsed_by(assignments),
        default=[],
        metavar="NAME=VALUE[,…]",
        help="change these settings, such as doc_stride=64,max_contexts=201",
    )


def add_common(parser: Parser) -> None:
    parser.flag("json", "print the result as one JSON object on stdout")
    add_verbose(parser)


def add_verbose(parser: Parser) -> None:
    parser.flag("verbose", "log more, and show the traceback of an error")


def add_tracking(
    parser: argparse.ArgumentParser, records: bool = True, logs_model: bool = False
) -> None:
    """Adds the options of MLflow's store and, if wanted, those of recording a run and a model."""
    group = parser.add_argument_group("tracking")
    text = f"MLflow store or server; default: $MLFLOW_TRACKING_URI, else {DEFAULT_URI}"
    group.add_argument("--tracking-uri", metavar="U", help=text)
    text = "MLflow experiment; default: that of $MLFLOW_EXPERIMENT_NAME or $MLFLOW_EXPERIMENT_ID, "
    text += f"else {DEFAULT_EXPERIMENT}"
    group.add_argument("--experiment", metavar="E", help=text)
    if records:
        group.add_argument(
            "--no-track",
            action="store_true",
            help="do not record the run",
        )
    if logs_model:
        text = "record the model with the run, so that mlflow models serve answers with it"
        group.add_argument("--log-model", action="store_true", help=text)
        text = "record the model, as the next version of this name in MLflow's registry"
        group.add_argument("--register", metavar="NAME", help=text)


def tracking_config(args: argparse.Namespace) -> TrackingConfig | None:
    """Returns where the run is recorded; ``None`` with ``--no-track``."""
    models = getattr(args, "log_model", False), getattr(args, "register", None)
    config = TrackingConfig(args.tracking_uri, args.experiment, *models)
    if args.no_track and config.logs_model:
        raise UsageError("--log-model and --register need a recorded run: leave --no-track out")
    return None if args.no_track else config
