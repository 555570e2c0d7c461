"""A preprocessing request: which files, which tokenizer, which settings."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from nq import __version__
from nq.config import WindowConfig
from nq.errors import Error
from nq.formats import input_files
from nq.formats.input_files import is_uri, shown
from nq.formats.questions import PageFolder
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest

Training = tuple[float, int] | tuple[float, int, bool]
"""The arguments ``negatives``, ``seed`` and ``unlabelled`` of ``training_features``, the last one
only if it is true."""


@dataclass(frozen=True)
class Request:
    """The inputs and settings of preprocessing; equal requests give equal windows.

    The files are read for ``digests``, ``description`` and ``key`` once: after a file has changed,
    make a new request.

    Args:
        tokenizer: folder or file of the tokenizer.
        limit: read at most so many records in all.
        training: settings of training features, ``None`` for inference.
        first_file: number of the first file, where the files before it are in other requests.
        tokenizer_sha256, file_sha256: digests, where they are known; computed by default.
    """

    files: tuple[str, ...]
    tokenizer: str
    windows: WindowConfig
    limit: int | None = None
    training: Training | None = None
    first_file: int = 0
    tokenizer_sha256: str = field(default="", compare=False, repr=False)
    pages: PageFolder | None = None
    file_sha256: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each file, by path."""
        known = self.file_sha256
        return {path: known.get(path) or input_files.sha256(path) for path in self.files}

    def check_unchanged(self) -> None:
        """Raises ``Error`` if a file on a disk has no longer the content that is described."""
        for path, digest in {**self.digests, **self.page_digests}.items():
            if not is_uri(path) and input_files.sha256(path) != digest:
                raise Error(input_files.CHANGED.format(path))

    @cached_property
    def page_digests(self) -> dict[str, str]:
        """The SHA-256 of each page, by path."""
        return {path: input_files.sha256(path) for path in self.pages.files} if self.pages else {}

    @cached_property
    def description(self) -> dict[str, Any]:
        """The request as JSON values for the manifest, with digests in place of paths."""
        values = {
            "version": __version__,
            "inputs": [{"name": shown(Path(f).name), "sha256": d} for f, d in self.digests.items()],
            "tokenizer": self.digest_tokenizer(),
            "windows": self.windows.to_dict(),
            "limit": self.limit,
            "training": list(self.training) if self.training else None,
        }
        if self.first_file:
            values["first_file"] = self.first_file
        if self.pages is not None:
            total = hashlib.sha256()
            for path, digest in self.page_digests.items():
                name = shown(str(Path(path).relative_to(self.pages.folder)))
                total.update(f"{name}\0{digest}\n".encode())
            values["pages"] = {"column": self.pages.column, "sha256": total.hexdigest()}
        return values

    @cached_property
    def key(self) -> str:
        """A short name for the request's content."""
        text = json.dumps(self.description, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def digest_tokenizer(self) -> str:
        return self.tokenizer_sha256 or tokenizer_digest(
            load_tokenizer(self.tokenizer, self.windows.compat)
        )


def chunks(request: Request, chunk_bytes: int) -> tuple[Request, ...]:
    """Divides a request into requests for consecutive files, so that the first windows come soon.

    A chunk ends with the file that brings it to ``chunk_bytes``. A request with a limit is not
    divided, because only reading the files in order tells how many records of each belong to it.
    """
    starts, size = [0], 0
    for i, path in enumerate(request.files[:-1], start=1):
        size += os.path.getsize(path)
        if size >= chunk_bytes:
            starts.append(i)
            size = 0
    if request.limit is not None or len(starts) == 1:
        return (request,)
    shared = replace(request, tokenizer_sha256=request.digest_tokenizer())
    return tuple(
        replace(shared, files=request.files[start:end], first_file=request.first_file + start)
        for start, end in pairwise([*starts, len(request.files)])
    )
