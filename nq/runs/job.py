"""The description of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nq import folders
from nq.config import DecisionConfig, WindowConfig
from nq.errors import check_argument, is_count
from nq.formats import inputs, outputs
from nq.formats.streams import shown
from nq.inference.profile import AUTO, DEFAULT_PROFILE, Profile
from nq.model.folder import folder_and_settings
from nq.preprocess.request import CHUNK_BYTES, Request, chunks


@dataclass(frozen=True, init=False)
class Job:
    """What a run answers, with which model and settings, and where it writes.

    >>> job = Job(files=["dev.jsonl.gz"], profile="xla+mixed")
    >>> str(job.profile), job.batch_size
    ('mixed+xla', 16)

    Args:
        files: files, globs or folders of questions, in order; ``-`` is standard input.
        model: model folder; by default the bundled model.
        profile: optimizations, as text or ``Profile``; ``"auto"`` lets the run choose.
        windows: how pages become windows; by default the settings of the model folder.
        decision: how scores become answers; by default the settings of the model folder.
        batch_size: windows in a batch.
        output: folder of the run, or ``None`` for one under ``root`` named by content.
        root: folder of runs and the windows that they share.
        limit: answer only so many records, the first ones.
        workers: processes for preprocessing.
        keep_scores: keep the scores of all windows in the run's folder.
        formats: output formats besides ``predictions.json``; see ``nq.formats.outputs``.
        against: compare the run with one under this profile.
        chunk_bytes: bytes of input files after which a chunk ends.

    Raises:
        ValueError: the profile or a format is unknown, an argument has the wrong type or is out of
            range, or the model's settings are damaged.
    """

    files: tuple[str, ...]
    model: Path
    profile: Profile | str
    windows: WindowConfig
    decision: DecisionConfig
    batch_size: int
    output: Path | None
    root: Path
    limit: int | None
    workers: int | None
    keep_scores: bool
    formats: tuple[str, ...]
    against: Profile | None
    chunk_bytes: int

    def __init__(
        self,
        files: Iterable[str | Path],
        model: str | Path | None = None,
        profile: Profile | str = DEFAULT_PROFILE,
        windows: WindowConfig | None = None,
        decision: DecisionConfig | None = None,
        batch_size: int = 16,
        output: str | Path | None = None,
        root: str | Path = "runs",
        limit: int | None = None,
        workers: int | None = None,
        keep_scores: bool = False,
        formats: str | Iterable[str] = (),
        against: Profile | str | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        folder, settings = folder_and_settings(model, windows, decision)
        for name, path in (("output", output or ""), ("root", root)):
            check_argument(isinstance(path, str | Path), name, path, "the path of a folder")
        for name, number in (
            ("batch_size", batch_size),
            ("limit", 1 if limit is None else limit),
            ("workers", 1 if workers is None else workers),
            ("chunk_bytes", chunk_bytes),
        ):
            check_argument(is_count(number), name, number, "a whole number from 1 on")
        values: dict[str, Any] = {
            "files": inputs.path_list("files", files),
            "model": folder,
            "profile": profile if profile == AUTO else Profile.of(profile),
            "windows": settings.windows,
            "decision": settings.decision,
            "batch_size": batch_size,
            "output": None if output is None else Path(output),
            "root": Path(root),
            "limit": limit,
            "workers": workers,
            "keep_scores": keep_scores or against is not None,
            "formats": outputs.parse(formats),
            "against": None if against is None else Profile.of(against),
            "chunk_bytes": chunk_bytes,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def optimizations(self) -> Profile:
        """The profile, once it is chosen.

        Raises:
            ValueError: it is still ``"auto"``.
        """
        if isinstance(self.profile, str):
            raise ValueError("the profile is 'auto': choose one with nq.runs.profile_choice")
        return self.profile

    @property
    def sources(self) -> tuple[str | Path, ...]:
        """The files and folders that the run reads."""
        return (*self.files, self.model)

    def check_output(self) -> None:
        """Checks that the run may write where it is told to; reads no file and changes nothing.

        Raises:
            Error: the folder holds files of others, or an input.
            OSError: the folder cannot be created or written.
        """
        if self.output is None:
            folders.check_writable(self.root)
        else:
            folders.check_writable(self.output, folders.RUN)
            folders.check(self.output, folders.RUN, self.sources)

    def requests(self) -> tuple[Request, ...]:
        """Returns the preprocessing requests, one for each chunk of the files."""
        request = Request(self.files, str(self.model), self.windows, self.limit)
        return chunks(request, self.chunk_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Returns what the predictions depend on, as JSON values with absolute paths."""
        return {
            "files": [shown(str(Path(path).absolute())) for path in self.files],
            "model": str(self.model.absolute()),
            "profile": str(self.profile),
            "windows": self.windows.to_dict(),
            "decision": self.decision.to_dict(),
            "batch_size": self.batch_size,
            "limit": self.limit,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns the job that ``to_dict`` described."""
        settings = {
            "windows": WindowConfig.from_dict(values["windows"]),
            "decision": DecisionConfig.from_dict(values["decision"]),
        }
        return cls(**{**values, **settings})
