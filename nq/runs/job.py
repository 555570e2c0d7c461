"""The description of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from nq import processor, storage
from nq.config import Settings, ensure, option
from nq.errors import check_argument
from nq.formats import input_files, outputs
from nq.formats.input_files import shown
from nq.formats.own_data import PageFolder
from nq.inference.load import ScorerSpec, check_rule
from nq.inference.profile import DEFAULT_PROFILE, Profile
from nq.model.model import Model
from nq.postprocess.decision import RULES
from nq.preprocess.prepared import Request
from nq.questions import Questions, page_folder
from nq.runs.config import Beam, Compute, Converted


def _folder(folder: str | Path) -> Path:
    check_argument(isinstance(folder, str | Path), "output", folder, "the path of a folder")
    return Path(folder)


def _resolved(compute: Compute) -> Compute:
    """Resolves automatic numbers of instances, and of threads of each, by the available cores."""
    instances = compute.instances
    threads = compute.threads
    n_cores = len(processor.cores())
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
        model: model folder, or name of a model; by default the bundled models, ``ranker+small``.
            With settings of its own, or with a ranker, ``nq.Model.open(…)``.
        profile: optimizations.
        output: folder of the run, or ``None`` for one under ``root`` named by content.
        root: folder of runs and the windows that they share.
        pages: the folder of the pages that questions name in their field ``page``.
        formats: output formats besides ``predictions.json``; see ``nq.formats.outputs``.
        keep_scores: keep the scores of all windows in the run's folder.
        beam: the runner of Beam that answers the questions; ``None`` to answer them without Beam.

    Raises:
        ValueError: the profile or a format is unknown, an argument has the wrong type or is out of
            range, or the settings of a model are damaged.
        FileNotFoundError, Error: there is no model of this name.
        Error: the decision rule of the model does not fit the profile or a ranker.
    """

    files: Converted[str | Path | Iterable[str | Path], tuple[str, ...]] = Converted(
        lambda files: input_files.path_list("files", files)
    )
    model: Converted[str | Path | Model | None, Model] = Converted(
        lambda model: model if isinstance(model, Model) else Model.open(model), None
    )
    profile: Converted[Profile | str, Profile] = Converted(Profile.of, DEFAULT_PROFILE)
    output: Converted[str | Path | None, Path | None] = Converted(
        lambda folder: None if folder is None else _folder(folder), None
    )
    root: Converted[str | Path, Path] = Converted(_folder, "runs")
    limit: int | None = option(None, minimum=1)
    pages: Converted[PageFolder | str | Path | None, PageFolder | None] = Converted(
        page_folder, None
    )
    formats: Converted[str | Iterable[str], tuple[str, ...]] = Converted(outputs.parse, ())
    keep_scores: bool = False
    compute: Compute = field(default_factory=Compute)
    beam: Beam | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        refused = {"--instances": self.compute.instances, "--keep-scores": self.keep_scores}
        for name, value in refused.items():
            text = f"{name} has no effect with --runner: leave one of them out"
            ensure(self.beam is None or not value, text)
        object.__setattr__(self, "compute", _resolved(self.compute))
        check_rule(self.model, self.profile)

    @property
    def instances(self) -> int | None:
        """How many processes share the windows; ``None`` to compute in this one."""
        return None if self.compute.instances is None else int(self.compute.instances)

    @property
    def sources(self) -> tuple[str | Path, ...]:
        """The files and folders that the run reads."""
        pages = self.pages.files if self.pages else ()
        return (*self.files, *pages, *(part.folder for part in self.model.parts))

    @property
    def scorer(self) -> ScorerSpec:
        """The description of the scorer, without calibration."""
        return ScorerSpec(
            self.model,
            self.profile,
            self.compute.batch_size,
            self.compute.threads,
            keeps_vectors=self.pages is not None,
        )

    def request(self, questions: Questions) -> Request:
        """Returns what the windows are made of."""
        return Request(questions, self.model.tokenizer, self.model.windows)

    def scores(self, request: Request) -> dict[str, Any]:
        """Returns everything that scores depend on; runs with equal values share scores."""
        model = self.model
        rule = RULES[model.decision.rule]
        decision = model.decision.to_dict()
        values: dict[str, Any] = {
            "windows": request.key,
            "weights": model.parts[0].digest,
            "profile": str(self.profile),
            "batch_size": self.compute.batch_size,
            "positions": [rule.k, rule.text_only],
            **({} if self.compute.threads is None else {"threads": self.compute.threads}),
            **({} if self.beam is None else {"runner": self.beam.runner}),
            **({"decision": decision} if self.profile.needs_ranking else {}),
        }
        if model.cascade is not None:
            reader = model.reader
            values["reader"] = {
                "weights": reader.digest,
                "tokenizer": reader.tokenizer.digest,
                "windows": reader.windows.to_dict(),
                "read_blocks": model.cascade.read_blocks,
                "first": model.cascade.first.to_dict(),
            }
        return values

    def folder(self, request: Request) -> Path:
        """Returns the folder of the run: ``output``, or one under ``root`` named by content."""
        if self.output is not None:
            return self.output
        values = [self.scores(request), self.model.decision.to_dict()]
        return self.root / f"{self.profile}-{storage.digest_json(values)[:10]}"

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
        """Returns the job that ``to_dict`` described, without its pages, which may have moved."""
        names = [f.name for f in fields(Compute)]
        return cls(
            files=values["files"],
            model=Model.from_dict(values),
            profile=values["profile"],
            limit=values["limit"],
            compute=Compute(**{name: values[name] for name in names if name in values}),
        )
