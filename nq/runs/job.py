"""The description of a run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from nq import processor, storage
from nq.config import Settings, option
from nq.errors import check_argument
from nq.formats import input_files, inputs, outputs
from nq.formats.input_files import shown
from nq.formats.questions import PageFolder, list_pages
from nq.inference.load import ScorerSpec
from nq.inference.profile import DEFAULT_PROFILE, Profile
from nq.model.spec import ModelSpec, find_model
from nq.preprocess.request import Request, chunks
from nq.records import Example
from nq.runs.config import AUTO, Beam, Compute, Converted


def _folder(folder: str | Path, name: str = "output") -> Path:
    check_argument(isinstance(folder, str | Path), name, folder, "the path of a folder")
    return Path(folder)


def _resolved(compute: Compute) -> Compute:
    """Resolves automatic numbers of instances, and of threads of each, by the available cores."""
    instances, threads, n_cores = compute.instances, compute.threads, len(processor.cores())
    if instances is None:
        return compute
    if isinstance(instances, str):
        threads = threads or 1
        return replace(compute, instances=max(1, n_cores // threads), threads=threads)
    return replace(compute, threads=threads or max(1, n_cores // instances))


@dataclass(frozen=True)
class Job(Settings):
    """What a run answers, with which model and settings, and where it writes.

    >>> job = Job(files=["dev.jsonl.gz"], profile="xla+mixed", compute=Compute(batch_size=8))
    >>> str(job.profile), job.compute.batch_size
    ('mixed+xla', 8)

    Args:
        files: files, globs or folders of questions, in order; ``-`` is standard input.
        model: model folder, or name of a model; by default the bundled model, ``small``. With
            settings of its own, or with a second model, ``nq.find_model(…)``.
        profile: optimizations; ``"auto"`` lets the run choose.
        output: folder of the run, or ``None`` for one under ``root`` named by content.
        root: folder of runs and the windows that they share.
        pages: the folder of the pages that questions name in their field ``page``.
        formats: output formats besides ``predictions.json``; see ``nq.formats.outputs``.
        keep_scores: keep the scores of all windows in the run's folder.
        against: compare the run with the finished run in this folder, of any model and profile.
        max_loss: the share of the other run's micro-F1 that the run may lose; needs ``against``.
            ``Result.parity`` has the outcome.
        beam: the runner of Beam that answers the questions; ``None`` to answer them without Beam.

    Raises:
        ValueError: the profile or a format is unknown, an argument has the wrong type or is out of
            range, or the settings of a model are damaged.
        FileNotFoundError, Error: there is no model of this name.
    """

    files: Converted[str | Path | Iterable[str | Path], tuple[str, ...]] = Converted(
        lambda files: input_files.path_list("files", files)
    )
    model: Converted[str | Path | ModelSpec | None, ModelSpec] = Converted(
        lambda model: model if isinstance(model, ModelSpec) else find_model(model), None
    )
    profile: Converted[Profile | str, Profile | str] = Converted(
        lambda profile: profile if profile == AUTO else Profile.of(profile), DEFAULT_PROFILE
    )
    output: Converted[str | Path | None, Path | None] = Converted(
        lambda folder: None if folder is None else _folder(folder), None
    )
    root: Converted[str | Path, Path] = Converted(_folder, "runs")
    limit: int | None = option(None, minimum=1)
    pages: Converted[PageFolder | str | Path | None, PageFolder | None] = Converted(
        inputs.page_folder, None
    )
    formats: Converted[str | Iterable[str], tuple[str, ...]] = Converted(outputs.parse, ())
    keep_scores: bool = False
    against: Converted[str | Path | None, Path | None] = Converted(
        lambda folder: None if folder is None else _folder(folder, "against"), None
    )
    max_loss: float | None = option(None, within="[0, 1)")
    compute: Compute = field(default_factory=Compute)
    beam: Beam | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        has_other = self.max_loss is None or self.against is not None
        check_argument(has_other, "against", None, "the folder of a run, for max_loss")
        instances = self.compute.instances
        with_beam = (
            ("keep_scores", self.keep_scores, not self.keep_scores, "False"),
            ("instances", instances, instances is None, "None"),
        )
        for name, value, is_possible, expected in with_beam if self.beam else ():
            check_argument(is_possible, name, value, f"{expected}, since a runner is given")
        object.__setattr__(self, "compute", _resolved(self.compute))

    @property
    def optimizations(self) -> Profile:
        """The profile, once it is chosen."""
        return Profile.of(self.profile)

    @property
    def instances(self) -> int | None:
        """How many processes share the windows; ``None`` to compute in this one."""
        return None if self.compute.instances is None else int(self.compute.instances)

    @property
    def sources(self) -> tuple[str | Path, ...]:
        """The files and folders that the run reads."""
        pages = self.pages.files if self.pages else ()
        return (*self.files, *pages, *(model.folder for model in self.model.models))

    @property
    def scorer(self) -> ScorerSpec:
        """The description of the scorer under the chosen profile, without calibration."""
        compute = self.compute
        return ScorerSpec(self.model, self.optimizations, compute.batch_size, compute.threads)

    def examples(self) -> Iterator[Example]:
        """Yields the examples of the files, which are paths, or URIs if a runner is given."""
        read: Any = inputs.read_records
        if self.beam is not None:
            from nq.beam.files import read_records as read
        for path in self.files:
            for _, item in read(path, pages=self.pages):
                if isinstance(item, Example):
                    yield item

    def check_output(self) -> None:
        """Checks that the run may write its output; reads no file and changes nothing."""
        if self.output is None:
            storage.check_writable(self.root)
        else:
            storage.check_folder(self.output, storage.RUN, self.sources)

    def request(self, file_sha256: Mapping[str, str] | None = None) -> Request:
        """Returns the preprocessing request for all files, whose SHA-256 may be known."""
        model, pages = str(self.model.folder), self.pages
        settings = self.model.windows, self.limit
        return Request(self.files, model, *settings, pages=pages, file_sha256=file_sha256 or {})

    def requests(self) -> tuple[Request, ...]:
        """Returns the preprocessing requests, one for each chunk of the files."""
        return chunks(self.request(), self.compute.chunk_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Returns what the predictions depend on, as JSON values with absolute paths."""
        paths = (p if input_files.is_uri(p) else str(Path(p).absolute()) for p in self.files)
        copies = input_files.COPIES.values()  # of standard input and pipes
        values: dict[str, Any] = {
            "files": [name if (name := shown(path)) in copies else path for path in paths],
            **self.model.to_dict(),
            "profile": str(self.profile),
            "limit": self.limit,
            "batch_size": self.compute.batch_size,
        }
        if self.compute.threads is not None:
            values["threads"] = self.compute.threads
        if self.pages is not None:
            values["pages"] = str(Path(self.pages.folder).absolute())
            values["page_column"] = self.pages.column
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns the job that ``to_dict`` described."""
        folder = values.get("pages")
        names = [f.name for f in fields(Compute)]
        return cls(
            files=values["files"],
            model=ModelSpec.from_dict(values),
            profile=values["profile"],
            limit=values["limit"],
            pages=None if folder is None else list_pages(folder, values["page_column"]),
            compute=Compute(**{name: values[name] for name in names if name in values}),
        )
