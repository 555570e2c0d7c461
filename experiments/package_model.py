"""Puts a trained model into its distribution, with weights in 8 bits.

    python -m experiments.package_model runs/model/base models/base

The distribution is a folder with a ``pyproject.toml`` that registers one model (entry point of the
group ``nq.models``), and with the package that it names. The files of the model are replaced, the
model card and the code of the package stay. The limits of size are checked before anything changes.
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.text_tables import markdown
from nq import storage
from nq.commands import arguments, terminal
from nq.config import StorageConfig
from nq.errors import Error
from nq.model.convert import convert
from nq.model.folder import CARD, check
from nq.model.registry import GROUP, model_folder
from nq.model.safetensors_file import INDEX
from nq.preprocess.tokenizers.load import NAMES

PROJECT = "pyproject.toml"
MB = 10**6


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.package_model",
        description="Puts a trained model into its distribution, with weights in 8 bits.",
    )
    parser.add_argument("model", metavar="MODEL", help="model folder, trained and tuned")
    parser.add_argument(
        "distribution", type=Path, metavar="DIR", help=f"folder with {PROJECT} and the package"
    )
    parser.add_argument(
        "--shard-mb",
        type=arguments.positive,
        default=50,
        metavar="N",
        help="MB (10^6 bytes) that a file has at most (default: 50)",
    )
    parser.add_argument(
        "--total-mb",
        type=arguments.positive,
        default=125,
        metavar="N",
        help="MB that the package has at most (default: 125)",
    )
    arguments.add_common(parser)
    return parser


def package_folder(distribution: Path) -> Path:
    """Returns the folder of the package that a distribution registers as a model.

    Raises:
        Error: the distribution does not register one package of its own.
        OSError: there is no ``pyproject.toml``.
    """
    path = distribution / PROJECT
    try:
        models = tomllib.loads(path.read_text("utf-8"))["project"]["entry-points"][GROUP]
        (package,) = models.values()
        folder = distribution.joinpath(*package.split("."))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Error(
            f'{path} registers no model: expected one line such as base = "nq_model_base" below '
            f'[project.entry-points."{GROUP}"]'
        ) from error
    if not folder.is_dir():
        raise Error(f"{path} names the package {package}, but {folder} does not exist: create it")
    return folder


def package_model(
    model: Path, distribution: Path, shard_mb: int = 50, total_mb: int = 125
) -> dict[str, int]:
    """Replaces the files of the model in a distribution.

    Args:
        model: a trained model folder.
        distribution: see ``package_folder``.
        shard_mb: MB (10^6 bytes) that a file has at most.
        total_mb: MB that the package has at most.

    Returns:
        The bytes of each file of the package, by name.

    Raises:
        Error: the model lacks weights, or the package would be larger than allowed.
        OSError, ValueError: the model cannot be read, or the package not be written.
    """
    package = package_folder(distribution)
    storage.check_writable(package)
    with tempfile.TemporaryDirectory(dir=distribution, prefix=".package-") as temporary:
        new = Path(temporary) / "model"
        missing = convert(model, new, storage=StorageConfig("int8", shard_mb)).report.missing
        if missing:
            raise Error(f"{model} lacks {missing[0]}: train the model first")
        (new / CARD).unlink()
        stale = {*package.glob("*.safetensors"), *(package / name for name in (INDEX, *NAMES))}
        kept = [path for path in package.iterdir() if path.is_file() and path not in stale]
        sizes = {path.name: path.stat().st_size for path in (*kept, *new.iterdir())}
        if sum(sizes.values()) > total_mb * MB:
            raise Error(
                f"the package would have {sum(sizes.values()) / MB:.1f} MB, more than {total_mb}: "
                "choose a smaller model, or allow more (--total-mb)"
            )
        for path in stale:
            path.unlink(missing_ok=True)
        for path in new.iterdir():
            path.replace(package / path.name)
    check(package)
    return dict(sorted(sizes.items()))


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    model = model_folder(args.model)
    sizes = package_model(model, args.distribution, args.shard_mb, args.total_mb)
    total = sum(sizes.values())
    if args.json:
        terminal.print_json({"files": sizes, "total_bytes": total})
        return 0
    rows: Any = [(name, f"{size / MB:.2f}") for name, size in sizes.items()]
    print(markdown(("file", "MB"), *rows, ("all", f"{total / MB:.2f}")), end="")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(run, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
