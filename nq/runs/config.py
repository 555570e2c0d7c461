"""How a run computes: batches, processes, threads, and the runner of Apache Beam."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

from nq.config import Settings, ensure, option

AUTO = "auto"
Given = TypeVar("Given")
Stored = TypeVar("Stored")


class Converted(Generic[Given, Stored]):
    """A field of a dataclass that converts and checks its value when it is set.

    See "Descriptor-typed fields" in Python's documentation of ``dataclasses``. The default is
    converted, too; without one the field is required.
    """

    def __init__(self, convert: Callable[[Given], Stored], *default: Given) -> None:
        self._convert = convert
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Given: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Stored: ...
    def __get__(self, instance: object | None, owner: type) -> Given | Stored:
        if instance is not None:
            stored: Stored = vars(instance)[self._name]
            return stored
        if not self._default:
            raise AttributeError(f"{self._name} has no default")
        return self._default[0]

    def __set__(self, instance: object, value: Given) -> None:
        vars(instance)[self._name] = self._convert(value)


@dataclass(frozen=True)
class Compute(Settings):
    """How a run computes: batches, processes and threads."""

    batch_size: int = option(16, "windows in a batch", minimum=1)
    workers: int | None = option(None, "processes for preprocessing, or workers of Beam", minimum=1)
    instances: int | str | None = option(
        None,
        "processes that share the windows, on cores of their own; default: this one",
        minimum=1,
    )
    threads: int | None = option(
        None, "threads of each instance, or of this process; default: one for each core", minimum=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        ensure(
            self.instances == AUTO or not isinstance(self.instances, str),
            f"instances is {self.instances!r:.80}: expected a whole number from 1 on, or {AUTO!r}",
        )


@dataclass(frozen=True)
class Beam(Settings):
    """A runner of Apache Beam whose workers answer the questions, and options of Beam."""

    runner: str = option(
        dataclasses.MISSING,
        "answer on other machines, by FlinkRunner, PortableRunner, SparkRunner, DataflowRunner and "
        "others; the workers have nq installed and see the data; an interrupted run begins again",
    )
    options: Converted[Iterable[str], tuple[str, ...]] = Converted(tuple, ())
    temp: str | None = option(
        None,
        "folder that every worker sees, a path or s3://…, gs://…, hdfs://…, for files and the "
        "model; default: they write to the folder of the run, and read the model under its path",
    )
