"""The description of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from nq import storage
from nq.config import CascadeDecision, DecisionConfig, WindowConfig
from nq.errors import check_argument, is_count
from nq.formats import input_files, inputs, outputs
from nq.formats.questions import PageFolder, list_pages
from nq.formats.streams import shown
from nq.inference import cores
from nq.inference.profile import AUTO, DEFAULT_PROFILE, Profile, parse_against
from nq.model.spec import ModelSpec, find_model
from nq.preprocess.request import CHUNK_BYTES, Request, chunks


@dataclass(frozen=True, init=False)
class Job:
    """What a run answers, with which model and settings, and where it writes.

    >>> job = Job(files=["dev.jsonl.gz"], profile="xla+mixed")
    >>> str(job.profile), job.batch_size
    ('mixed+xla', 16)

    Args:
        files: files, globs or folders of questions, in order; ``-`` is standard input.
        model: model folder, or name of a model; by default the bundled model, ``small``. Or a model
            that is found already (``nq.model.spec.find_model``), which is ``Job.model``.
        profile: optimizations, as text or ``Profile``; ``"auto"`` lets the run choose.
        windows: how pages become windows; by default the settings of the model folder.
        decision: how scores become answers; by default the settings of the model folder.
        batch_size: windows in a batch.
        output: folder of the run, or ``None`` for one under ``root`` named by content.
        root: folder of runs and the windows that they share.
        limit: answer only so many records, the first ones.
        workers: processes for preprocessing; with a runner, readers among which few files are
            divided.
        keep_scores: keep the scores of all windows in the run's folder.
        formats: output formats besides ``predictions.json``; see ``nq.formats.outputs``.
        against: compare the run with one under this profile, or with the finished run in this
            folder, which may be of another model; of a text, a profile comes first.
        max_loss: the share of the other run's micro-F1 that the run may lose, from 0 on and below
            1; needs ``against``. ``Result.parity`` has the outcome.
        chunk_bytes: bytes of input files after which a chunk ends.
        second_model: folder or name of a model that reads the blocks that ``model`` ranks best; the
            decision is then one of both.
        read_blocks: blocks of a page that the second model reads; by default those of the decision.
        pages: the folder of the pages that questions name in their field ``page``.
        instances: processes that share the windows, each on cores of its own; ``"auto"`` for as
            many as there are cores for; ``None`` to compute in this process.
        threads: threads of each instance, or of this process; by default those for which there are
            cores, or 1 with ``"auto"``.
        runner: name of a runner of Apache Beam, such as ``"FlinkRunner"``, whose workers answer the
            questions; ``None`` to answer them without Beam.
        beam_options: further options of Beam.
        temp: path or URI of a folder that all workers of the runner see: they write to it, and copy
            the model from it; by default they write to the folder of the run, and read the model
            under its path.

    Raises:
        ValueError: the profile or a format is unknown, an argument has the wrong type or is out of
            range, or the settings of a model are damaged.
        FileNotFoundError, Error: there is no model of this name.
    """

    files: tuple[str, ...]
    model: ModelSpec
    profile: Profile | str
    batch_size: int
    output: Path | None
    root: Path
    limit: int | None
    workers: int | None
    keep_scores: bool
    formats: tuple[str, ...]
    against: Profile | Path | None
    max_loss: float | None
    chunk_bytes: int
    pages: PageFolder | None
    instances: int | None
    threads: int | None
    runner: str | None
    beam_options: tuple[str, ...]
    temp: str | None

    def __init__(
        self,
        files: Iterable[str | Path],
        model: str | Path | ModelSpec | None = None,
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
        against: Profile | str | Path | None = None,
        max_loss: float | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        second_model: str | Path | None = None,
        read_blocks: int | None = None,
        pages: PageFolder | str | Path | None = None,
        instances: int | str | None = None,
        threads: int | None = None,
        runner: str | None = None,
        beam_options: Iterable[str] = (),
        temp: str | Path | None = None,
    ) -> None:
        if isinstance(model, ModelSpec):
            windows, decision = windows or model.windows, decision or model.decision
            model = replace(model, windows=windows, decision=decision)
        else:
            model = find_model(model, windows, decision, second_model, read_blocks)
        for name, path in (("output", output or ""), ("root", root)):
            check_argument(isinstance(path, str | Path), name, path, "the path of a folder")
        for name, number in (
            ("batch_size", batch_size),
            ("limit", 1 if limit is None else limit),
            ("workers", 1 if workers is None else workers),
            ("chunk_bytes", chunk_bytes),
            ("threads", 1 if threads is None else threads),
        ):
            check_argument(is_count(number), name, number, "a whole number from 1 on")
        other = None if against is None else parse_against(against)
        if max_loss is not None:
            is_loss = isinstance(max_loss, int | float) and 0 <= max_loss < 1
            check_argument(is_loss, "max_loss", max_loss, "a number from 0 on and below 1")
            has_other = other is not None
            check_argument(has_other, "against", other, "a profile or a folder, for max_loss")
        is_valid = instances in (None, AUTO) or is_count(instances)
        check_argument(is_valid, "instances", instances, f"a whole number from 1 on, or {AUTO!r}")
        if runner is not None:
            _check_runner(profile, keep_scores, instances, other)
        for name, value in (("beam_options", beam_options), ("temp", temp)):
            check_argument(runner is not None or not value, name, value, "none without a runner")
        instances, threads = cores.resolved(instances, threads)
        values: dict[str, Any] = {
            "files": input_files.path_list("files", files),
            "model": model,
            "profile": profile if profile == AUTO else Profile.of(profile),
            "batch_size": batch_size,
            "output": None if output is None else Path(output),
            "root": Path(root),
            "limit": limit,
            "workers": workers,
            "keep_scores": keep_scores or isinstance(other, Profile),
            "formats": outputs.parse(formats),
            "against": other,
            "max_loss": max_loss,
            "chunk_bytes": chunk_bytes,
            "pages": inputs.page_folder(pages),
            "instances": instances,
            "threads": threads,
            "runner": runner,
            "beam_options": tuple(beam_options),
            "temp": None if temp is None else str(temp),
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
        pages = self.pages.files if self.pages else ()
        return (*self.files, *pages, *(model.folder for model in self.model.models))

    def check_output(self) -> None:
        """Checks that the run may write where it is told to; reads no file and changes nothing.

        Raises:
            Error: the folder holds files of others, or an input.
            OSError: the folder cannot be created or written.
        """
        if self.output is None:
            storage.check_writable(self.root)
        else:
            storage.check(self.output, storage.RUN, self.sources)

    def request(self, file_sha256: Mapping[str, str] | None = None) -> Request:
        """Returns the preprocessing request for all files.

        Args:
            file_sha256: the SHA-256 of each file, where it is known.
        """
        model, pages = str(self.model.folder), self.pages
        settings = self.model.windows, self.limit
        return Request(self.files, model, *settings, pages=pages, file_sha256=file_sha256 or {})

    def requests(self) -> tuple[Request, ...]:
        """Returns the preprocessing requests, one for each chunk of the files."""
        return chunks(self.request(), self.chunk_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Returns what the predictions depend on, as JSON values with absolute paths."""
        second: dict[str, Any] = {}
        if self.model.second is not None:
            second["second_model"] = str(self.model.second.folder.absolute())
            second["second_windows"] = self.model.second.windows.to_dict()
        pages: dict[str, Any] = {}
        if self.pages is not None:
            pages["pages"] = shown(str(Path(self.pages.folder).absolute()))
            pages["page_column"] = self.pages.column
        return {
            "files": [shown(_absolute(path)) for path in self.files],
            "model": str(self.model.folder.absolute()),
            "profile": str(self.profile),
            "windows": self.model.windows.to_dict(),
            "decision": self.model.decision.to_dict(),
            "batch_size": self.batch_size,
            "limit": self.limit,
            **second,
            **pages,
            **({} if self.threads is None else {"threads": self.threads}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns the job that ``to_dict`` described."""
        settings = dict(values)
        windows = WindowConfig.from_dict(settings.pop("windows"))
        described, second = settings.pop("decision"), None
        if "second_model" in settings:
            decision: DecisionConfig = CascadeDecision.from_dict(described)
            own = WindowConfig.from_dict(settings.pop("second_windows"))
            second = ModelSpec(Path(settings.pop("second_model")), own, decision)
        else:
            decision = DecisionConfig.from_dict(described)
        settings["model"] = ModelSpec(Path(settings["model"]), windows, decision, second)
        if "pages" in settings:
            settings["pages"] = list_pages(settings["pages"], settings.pop("page_column"))
        return cls(**settings)


def _check_runner(
    profile: Profile | str,
    keep_scores: bool,
    instances: int | str | None,
    against: Profile | Path | None,
) -> None:
    """Checks that a runner of Beam can do what a job requires.

    Raises:
        ValueError: it cannot.
    """
    for name, value, is_possible, expected in (
        ("profile", profile, profile != AUTO, "another profile"),
        ("keep_scores", keep_scores, not keep_scores, "False"),
        ("instances", instances, instances is None, "None"),
        ("against", against, not isinstance(against, Profile), "the folder of a finished run"),
    ):
        check_argument(is_possible, name, value, f"{expected}, since a runner is given")


def _absolute(path: str) -> str:
    return path if input_files.is_uri(path) else str(Path(path).absolute())
