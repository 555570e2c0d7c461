"""Files of the Hugging Face hub, of models and of data, through its client and the client's cache.

``huggingface_hub`` reads ``HF_HOME``, ``HF_TOKEN``, ``HF_ENDPOINT`` and ``HF_HUB_OFFLINE``. A file
is fetched once; the name of its folder in the cache is the commit. What is in the cache is used
where the hub cannot be reached, and without asking the hub where a whole commit is named. The
server that ``HF_ENDPOINT`` names must be trusted.
"""

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from nq import __version__, extras
from nq.errors import Error
from nq.text import format_bytes, truncate, without_password

log = logging.getLogger(__name__)

DATA = "hf://"
MAX_SHOWN = 4
_PART = r"[a-zA-Z0-9](?:[\w.-]{0,94}\w)?"
_MODEL = re.compile(rf"(?!.*(?:\.\.|--)){_PART}/{_PART}(?:@[\w./-]{{1,200}})?", re.ASCII)
_CACHED = re.compile(r".*/(model|dataset)s--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})/?(.*)")
_COMMIT = re.compile("[0-9a-f]{40}")
_NAME = re.compile(r"(?!/)(?!.*(?:^|/)\.\.(?:/|$))[^\0]+", re.DOTALL)

Select = Callable[[Mapping[str, int]], Sequence[str]]
"""Chooses files of a repository, given the bytes of each by name; it may raise ``Error``.

It returns few patterns, since the client compares each with each name. A pattern with a slash is
one of files in a folder, not deeper.
"""


def is_model(name: str) -> bool:
    """Returns whether text may name a model of the hub.

    >>> [is_model(text) for text in ("org/name@v1.0", "./name", "name", "a/b/c", "org/a..b")]
    [True, False, False, False, False]
    """
    return bool(_MODEL.fullmatch(name))


def fetch_model(name: str, select: Select) -> Path:
    """Returns the folder of a model ``org/name`` or ``org/name@revision`` in the cache.

    The files that ``select`` chooses are fetched if they are not there.

    Raises:
        Error: they cannot be fetched, or the extra ``hub`` is not installed.
    """
    repository, _, revision = name.partition("@")
    return _fetch("model", repository, revision or None, select)[0]


def data_files(address: str, suffixes: tuple[str, ...]) -> list[str]:
    """Returns the paths, in the cache, of data ``hf://datasets/ORG/NAME[@REVISION]/PATH``.

    Args:
        address: its path is a file, a glob, or a folder with files that end in ``suffixes``.

    Raises:
        Error: they cannot be fetched, or the extra ``hub`` is not installed.
    """
    extras.require("hub")
    from huggingface_hub.utils import parse_hf_uri  # type: ignore[attr-defined]

    expected = "expected hf://datasets/ORG/NAME/PATH, or …/NAME@REVISION/PATH"
    try:
        uri = parse_hf_uri(address)
    except ValueError as error:
        raise Error(f"{truncate(address, 200)} is no address of data: {expected}") from error
    path = uri.path_in_repo.rstrip("/")
    if uri.type != "dataset" or not path:
        raise Error(f"{truncate(address, 200)} names no files of a data set: {expected}")

    def select(sizes: Mapping[str, int]) -> Sequence[str]:
        for patterns in (
            [path],
            [f"{path}/*{suffix}" for suffix in suffixes],
        ):
            if _matching(sizes, patterns):
                return patterns
        others = [name for name in sizes if name.endswith(suffixes)][:MAX_SHOWN]
        examples = f", such as {', '.join(others)}" if others else ""
        raise Error(f"no file matches {path}; give a file, a glob in quotes, or a folder{examples}")

    folder, names = _fetch("dataset", uri.id, uri.revision, select)
    return [str(folder / name) for name in names]


def _matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Returns the names that match a pattern with as many slashes."""

    def matches(name: str, pattern: str) -> bool:
        return name.count("/") == pattern.count("/") and fnmatchcase(name, pattern)

    return sorted(name for name in names if any(matches(name, one) for one in patterns))


def name_of(path: str | Path) -> str:
    """Returns the hub's name, with the commit, of a path in its cache; empty for other paths.

    >>> name_of(f"/hub/datasets--org--name/snapshots/{'0' * 40}/dev.parquet")
    'hf://datasets/org/name@0000000000000000000000000000000000000000/dev.parquet'
    """
    match = _CACHED.fullmatch(str(path))
    if match is None:
        return ""
    kind, owner, name, commit, file = match.groups()
    start = f"{DATA}datasets/" if kind == "dataset" else ""
    return f"{start}{owner}/{name}@{commit}{file and '/'}{file}"


def _fetch(
    kind: str, repository: str, revision: str | None, select: Select
) -> tuple[Path, Sequence[str]]:
    """Returns the folder of a repository's commit in the cache, and the files that were chosen."""
    extras.require("hub")
    from huggingface_hub import HfApi, constants
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    name = f"{repository}@{revision}" if revision else repository
    if revision and (".." in revision or revision[:1] in "/-."):
        raise Error(f"{name}: {revision!r} is no revision, give a branch, a tag or a commit")
    api = HfApi(library_name="nq", library_version=__version__)
    options: dict[str, Any] = {"repo_id": repository, "repo_type": kind}
    try:
        offline = constants.is_offline_mode()
        resolved = api.resolve_revision(**options, revision=revision, local_files_only=offline)
        options["revision"] = _check(_COMMIT, resolved.resolved)
        folder = Path(constants.HF_HUB_CACHE).expanduser().resolve()
        folder /= f"{kind}s--{repository.replace('/', '--')}/snapshots/{resolved.resolved}"
        sizes = _sizes(api, folder, options)
        patterns = list(select(sizes))
        names = _matching(sizes, patterns)
        missing = [one for one in names if not (folder / one).exists()]
        if missing:
            n_bytes = sum(sizes[one] for one in missing)
            log.info(
                "fetching %s of %s, commit %s",
                format_bytes(n_bytes),
                repository,
                folder.name,
            )
            deeper = "*/" * (1 + max(one.count("/") for one in patterns)) + "*"
            options |= {
                "allow_patterns": patterns,
                "ignore_patterns": [deeper],
            }
            with contextlib.nullcontext() if sys.stderr.isatty() else disable_progress_bars():
                api.snapshot_download(**options)
        return folder, names
    except Error as error:
        raise Error(f"{name}: {error}") from error
    except Exception as error:  # of the network, the disk, or the client, which has many kinds
        place = f"{'datasets/' if kind == 'dataset' else ''}{repository}"
        raise Error(f"{name} {_reason(error, place)}") from error


def _sizes(api: Any, folder: Path, options: Mapping[str, Any]) -> Mapping[str, int]:
    """Returns the bytes of each file of a commit, offline of those that are known."""
    from huggingface_hub import constants, errors, get_cached_repo_tree
    from huggingface_hub.hf_api import RepoFile

    offline = constants.is_offline_mode()
    try:
        tree = get_cached_repo_tree(**options)
    except errors.CachedRepoTreeNotFoundError:
        tree = [] if offline else api.list_repo_tree(**options, recursive=True)
    entries = (entry for entry in tree if isinstance(entry, RepoFile))
    sizes = {_check(_NAME, entry.path): entry.size for entry in entries}
    if offline and not sizes:  # another program may have fetched single files
        files = [path for path in folder.rglob("*") if path.is_file()]
        if not files:
            raise errors.OfflineModeIsEnabled
        log.warning("only those files are known that are in %s", folder)
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in files}
    return sizes


def _check(pattern: re.Pattern[str], value: str) -> str:
    """Returns a value from the hub that becomes part of a path, if it matches the pattern."""
    if pattern.fullmatch(value):
        return value
    raise Error(f"the hub sends {value!r:.80}, which cannot be part of a path: do not trust it")


def _reason(error: BaseException, repository: str) -> str:
    """Returns why a repository cannot be fetched, and what to do."""
    from huggingface_hub import constants, errors

    later = "try again later; HF_HUB_OFFLINE=1 takes what was fetched before"
    hub = constants.ENDPOINT
    local = errors.RevisionResolutionError | errors.LocalEntryNotFoundError
    if isinstance(error, local) and error.__cause__ is not None:
        error = error.__cause__
    match error:
        case errors.GatedRepoError():
            text = f"is gated: accept its conditions at {hub}/{repository}, and set HF_TOKEN"
        case errors.RepositoryNotFoundError():
            text = f"is neither a folder here nor public at {hub}: check the name"
        case errors.RevisionNotFoundError():
            text = f"does not exist: there is no such revision at {hub}/{repository}"
        case errors.OfflineModeIsEnabled() | errors.RevisionResolutionError():
            text = f"is not in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set: unset it once"
        case errors.HfHubHTTPError():
            text = f"cannot be fetched, {hub} answers {error.response.status_code}: {later}"
        case OSError(filename=str(path)):
            text = f"cannot be stored, {path}: {error.strerror}; set HF_HOME to another folder"
        case _:
            cause = truncate(" ".join(f"{type(error).__name__}: {error}".split()), 200)
            text = f"cannot be fetched from {hub} ({cause}): run the same command again"
    return without_password(text, hub)
