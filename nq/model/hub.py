"""Models of the Hugging Face hub, by names such as ``org/name`` and ``org/name@revision``.

They lie in the cache of ``huggingface_hub``, which also reads ``HF_HOME``, ``HF_TOKEN``,
``HF_ENDPOINT`` and ``HF_HUB_OFFLINE``. Only configuration, tokenizer and safetensors are fetched:
no pickle and no code.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nq import __version__, extras
from nq.errors import Error

log = logging.getLogger(__name__)

_PART = r"[a-zA-Z0-9](?:[\w.-]{0,94}[a-zA-Z0-9_])?"
NAME = re.compile(rf"({_PART}/{_PART})(?:@([\w][\w./-]{{0,199}}))?", re.ASCII)
WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors")
SMALL = (
    *("config.json", "nq.json", "model.safetensors.index.json", "tokenizer.json"),
    *("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "spiece.model", "spm.model", "sentencepiece.bpe.model"),
    "1_Pooling/config.json",
)
MAX_SMALL_BYTES = 64 << 20
PICKLE = (
    "which are never loaded: convert it where you trust it and have transformers: python -c "
    "'import sys; from transformers import AutoModelForQuestionAnswering as M; "
    "M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])' {} NEW_FOLDER"
)


def is_name(model: str) -> bool:
    """Returns whether text may be the name of a model on the hub.

    >>> [is_name(text) for text in ("org/name@v1.0", "./name", "name", "a/b/c", "org/..")]
    [True, False, False, False, False]
    """
    return NAME.fullmatch(model) is not None


def fetch(model: str) -> Path:
    """Returns the folder of a model in the cache; fetches the files that are missing there.

    The name of the folder is the commit. Without a network it is the one of the revision that was
    fetched last.

    Raises:
        Error: the model cannot be fetched or read, or the extra ``hub`` is not installed.
    """
    extras.require("hub")
    from huggingface_hub import errors, snapshot_download
    from tqdm.auto import tqdm

    match = NAME.fullmatch(model)
    if match is None:
        raise ValueError(f"{model!r:.200} is no name of a model on the hub")
    repository, revision = match.groups()
    options: dict[str, Any] = {
        "repo_id": repository,
        "allow_patterns": [*SMALL, *WEIGHTS],
        "library_name": "nq",
        "library_version": __version__,
    }
    try:
        try:
            files = snapshot_download(**options, revision=revision, dry_run=True)
        except errors.DryRunError as error:  # the hub gives no list: the cache may have the model
            try:
                return _said(
                    Path(snapshot_download(**options, revision=revision, local_files_only=True)),
                    model,
                )
            except errors.LocalEntryNotFoundError:
                raise _error(model, repository, error.__cause__ or error) from error
        _check(repository, files)
        options |= {"revision": files[0].commit_hash}
        if not sys.stderr.isatty():
            options["tqdm_class"] = _Silent.of(tqdm)
        missing = sum(one.file_size or 0 for one in files if one.will_download)
        if missing:
            log.info("fetching %s, %.0f MB", model, missing / 1e6)
        return _said(Path(snapshot_download(**options)), model)
    except errors.RevisionNotFoundError as error:
        raise Error(f"{repository} has no revision {revision!r}: give another one") from error
    except Error:
        raise
    except Exception as error:  # of the network, the disk, or the client, which has many kinds
        raise _error(model, repository, error) from error


class _Silent:
    """Makes a class of progress bars that show nothing."""

    @staticmethod
    def of(tqdm: Any) -> Any:
        return type("Silent", (tqdm,), {"__init__": _Silent._init(tqdm)})

    @staticmethod
    def _init(tqdm: Any) -> Any:
        def init(self: Any, *args: Any, **options: Any) -> None:
            tqdm.__init__(self, *args, **{**options, "disable": True})

        return init


def _check(repository: str, files: Sequence[Any]) -> None:
    """Checks names and sizes of a repository's files before any is fetched."""
    sizes = {one.filename: one.file_size or 0 for one in files}
    if "config.json" not in sizes:
        raise Error(f"{repository} has no config.json, so it is no model of transformers")
    if not any(name.endswith(".safetensors") for name in sizes):
        raise Error(f"{repository} has no safetensors but pickles, {PICKLE.format(repository)}")
    large = [n for n, size in sizes.items() if n in SMALL and size > MAX_SMALL_BYTES]
    if large:
        raise Error(
            f"{large[0]} of {repository} has {sizes[large[0]]} bytes: expected at most "
            f"{MAX_SMALL_BYTES}; choose another model"
        )


def _said(folder: Path, model: str) -> Path:
    """Logs what of a repository is not used; returns its folder."""
    if b'"auto_map"' in (folder / "config.json").read_bytes():
        log.info("%s has code of its own (auto_map in its config.json), which is not run", model)
    return folder


def _error(model: str, repository: str, cause: BaseException) -> Error:
    """Returns the error for a model that cannot be fetched."""
    from huggingface_hub import constants, errors

    endpoint = constants.ENDPOINT
    if isinstance(cause, errors.GatedRepoError):
        text = f"is gated: accept its conditions at {endpoint}/{repository} and set HF_TOKEN"
    elif isinstance(cause, errors.RepositoryNotFoundError):
        text = f"is neither a folder nor a public model at {endpoint}: check the name"
    elif isinstance(cause, errors.OfflineModeIsEnabled):
        text = f"is not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set: unset it once"
    elif isinstance(cause, errors.HfHubHTTPError) and cause.response is not None:
        text = (
            f"cannot be fetched, {endpoint} answers {cause.response.status_code}: try again later"
        )
    else:
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())[:200]
        text = f"cannot be fetched from {endpoint} ({reason}): run the same command again"
    return Error(f"{model} {text}")
