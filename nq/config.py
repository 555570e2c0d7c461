"""Settings of every stage: frozen, checked on construction, defaults only here.

The command line and the README's tables are made from these fields and their help texts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Self, TypeVar, get_origin, get_type_hints, overload

MAX_NUMBER = 1e18
"""The largest number that a file of settings may hold."""
DECISION_RULES = ("default", "bert-joint", "kisialiou", "kisialiou-2020-04")
STORES = ("float32", "float16", "int8")
AUTO = "auto"
PAGE, BLOCK = "page", "block"
ALL_CONTEXTS = 1 << 30
"""A ``max_contexts`` beyond the blocks of every page."""


def option(default: Any, help: str = "", **checks: Any) -> Any:
    """Returns a dataclass field that ``Settings`` checks and the command line offers.

    Without ``help`` the command line has no such option. ``checks`` are ``choices``, ``minimum``,
    or ``within``, an interval such as ``"[0, 1)"``; ``shown_default`` replaces the default in the
    help text.
    """
    return field(default=default, metadata={"help": help, **checks})


Given = TypeVar("Given")
Stored = TypeVar("Stored")


class Converted(Generic[Given, Stored]):
    """A field of a dataclass that converts and checks its value when it is set.

    See "Descriptor-typed fields" in Python's documentation of ``dataclasses``. The default is
    converted, too; without one the field is required.
    """

    def __init__(self, convert: Callable[[Given], Stored], *default: Given) -> None:
        self._convert, self._default = convert, default

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


class Settings:
    """Base of all settings: checks of the fields, and conversion to and from plain mappings."""

    def __post_init__(self) -> None:
        """Checks type and range of each field; an integer may stand for a float."""
        hints = get_type_hints(type(self))
        for f in fields(self):  # type: ignore[arg-type]
            value, expected = getattr(self, f.name), hints[f.name]
            if get_origin(expected) is Converted:
                continue
            kinds = (int, float) if expected is float else expected
            wrong_bool = isinstance(value, bool) and expected is not bool
            if wrong_bool or not isinstance(value, kinds):
                kind = getattr(expected, "__name__", expected)
                raise ValueError(f"{f.name} is {value!r:.80}: expected a value of type {kind}")
            if expected is float and not (abs(value) < 1e308 or abs(value) == math.inf):
                raise ValueError(f"{f.name} is {value!r:.80}: expected a number")
            choices, minimum, within = map(f.metadata.get, ("choices", "minimum", "within"))
            if choices and value not in choices:
                names = ", ".join(choices)
                raise ValueError(f"unknown {f.name} {value!r:.80}; known are {names}")
            if minimum is not None and not isinstance(value, str | None) and value < minimum:
                raise ValueError(f"{f.name} must be at least {minimum}, got {value}")
            if within and value is not None and not is_within(value, within):
                raise ValueError(f"{f.name} must be in {within}, got {value}")

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as plain JSON values."""
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns the settings in a mapping; settings within settings are mappings too."""
        if not isinstance(values, Mapping):
            raise ValueError(f"found {values!r:.80} for {cls.__name__}: expected an object")
        hints = get_type_hints(cls)
        names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        if unknown := sorted(set(values) - set(names)):
            raise ValueError(
                f"unknown settings {unknown!r:.80} for {cls.__name__}; known are {names}"
            )
        for name, value in values.items():
            if isinstance(value, int | float) and not abs(value) <= MAX_NUMBER:
                raise ValueError(f"{name} is {value!r:.80}: expected a number that is finite")
        nested = {
            name: hints[name].from_dict(value)
            for name, value in values.items()
            if isinstance(hints[name], type) and issubclass(hints[name], Settings)
        }
        return cls(**{**values, **nested})


def is_within(value: float, interval: str) -> bool:
    """Returns whether a value is in an interval such as ``"(0, 1]"``."""
    low, high = map(float, interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    return above and (value <= high if interval[-1] == "]" else value < high)


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class Compat:
    """The switches of a compatibility mode; the defaults are the mode ``ours``.

    Args:
        keep_query_marker: a question that is too long keeps its ``[Q]`` and its last pieces,
            instead of its last pieces alone.
        angle_bracket_is_tag: every token with a ``<`` in it counts as an HTML tag, ``<3`` too.
        split_words_again: words are split once more at blanks, tabs, line ends and U+202F, and
            the map to document tokens, the markers and the target follow the new words.
        original_wordpiece: words become pieces by the original's own WordPiece, in which a word
            in brackets is looked up as one piece; other tokenizers are refused.
        merge_all_short_answers: the target spans all short answers, however far apart.
        always_reads_block: the first block is read even if ``max_contexts`` is 1, since the
            originals append it before they count.
        keep_unannotated: an example without annotations gives negative training windows,
            instead of none.
        id_name: name of the TFRecord column that holds the window's id.
        max_seq_length: pieces in a window, unless ``WindowConfig`` says otherwise.
    """

    keep_query_marker: bool = True
    angle_bracket_is_tag: bool = False
    split_words_again: bool = False
    original_wordpiece: bool = False
    merge_all_short_answers: bool = False
    always_reads_block: bool = False
    keep_unannotated: bool = False
    id_name: str = "unique_ids"
    max_seq_length: int = 512


_BERT_JOINT = Compat(
    keep_query_marker=False,
    split_words_again=True,
    original_wordpiece=True,
    merge_all_short_answers=True,
    always_reads_block=True,
    keep_unannotated=True,
    max_seq_length=384,
)
COMPAT = {
    "ours": Compat(),
    "bert-joint": _BERT_JOINT,
    "kisialiou": replace(
        _BERT_JOINT, angle_bracket_is_tag=True, id_name="unique_id", max_seq_length=512
    ),
}
"""Maps each compatibility mode to its switches."""


@dataclass(frozen=True)
class WindowConfig(Settings):
    """How a page becomes windows.

    >>> WindowConfig().max_seq_length, WindowConfig(compat="bert-joint").max_seq_length
    (512, 384)

    Args:
        max_seq_length: pieces in a window; 0 stands for the default of the compatibility mode,
            which for ``bert-joint`` is that of Google's command line.
        question_prefix, block_prefix: text that a dual encoder was trained with before each
            question and before each block. It is of no word of the page.
    """

    max_seq_length: int = option(
        0,
        "pieces in a window, padding included",
        shown_default="512, with --compat bert-joint 384",
    )
    doc_stride: int = option(
        128, "pieces from the start of one window to the start of the next", minimum=1
    )
    max_query_length: int = option(64, "pieces of the question, [Q] included", minimum=1)
    max_contexts: int = option(
        48, "blocks of a page that are read, the null context included", minimum=1
    )
    max_position: int = option(
        50, "where the counters in the [Paragraph=n] markers stop", minimum=1
    )
    compat: str = option(
        "ours",
        "which features: ours, or those of the original or of the 2020 port, piece by piece",
        choices=tuple(COMPAT),
    )
    window_scope: str = option(
        PAGE,
        "what a window may hold: text of several blocks of the page, or of one block only",
        choices=(PAGE, BLOCK),
    )
    question_prefix: str = ""
    block_prefix: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(
            self.window_scope == PAGE or not self.switches.split_words_again,
            f"compat {self.compat} has no windows of one block: leave window_scope at {PAGE}",
        )
        if self.max_seq_length == 0:
            object.__setattr__(self, "max_seq_length", self.switches.max_seq_length)
        _check(
            self.max_seq_length > self.max_query_length + 3,
            f"max_seq_length {self.max_seq_length} leaves no room for the page: it must be more "
            f"than max_query_length + 3 = {self.max_query_length + 3}",
        )

    @property
    def switches(self) -> Compat:
        """The switches of the compatibility mode."""
        return COMPAT[self.compat]

    @property
    def max_blocks(self) -> int:
        """The number of blocks that are read besides the null context."""
        return max(self.max_contexts - 1, int(self.switches.always_reads_block))


@dataclass(frozen=True)
class ModelConfig(Settings):
    """Shape of the encoder, in the words of a BERT ``config.json``.

    The defaults describe BERT base. Its relatives differ in ``type_vocab_size`` and in the
    five fields from ``model_type`` on.

    Args:
        type_vocab_size: rows of the segment table; 0 for no such table (DistilBERT).
        model_type: whose names the weights have in a folder (``nq.model.families``).
        embedding_size: width of the tables, of which a projection makes ``hidden_size``
            (ALBERT, RemBERT, ELECTRA); 0 for no projection.
        num_hidden_groups: so many sets of weights are shared by all layers (ALBERT);
            0 for weights of each layer's own.
        position_offset: row of the position table that the first piece has (RoBERTa: 2).
        relative_attention_num_buckets: rows of the table of attention biases by the distance of
            two pieces, which all layers share (MPNet: 32); 0 for no such table.
        head_size: columns of query, key and value for each head where heads were removed; 0 for
            ``hidden_size / num_attention_heads``, the only size that ``transformers`` knows.
            ``head_width`` has the size in either case.
        separator_id, unknown_id: ids of [SEP] and [UNK] for a dual encoder, else 0.
        first_marker_id, last_marker_id: ids of the first and the last type marker for a dual
            encoder, else 0. The ids of [ContextId=n] follow, up to ``last_context_id``.
        prefix_pieces: pieces of ``WindowConfig.block_prefix``.
        pools_first_piece: whether the output of its first piece stands for a text in a dual
            encoder; otherwise the mean of all outputs does.
    """

    DUAL_ENCODER_IDS: ClassVar[tuple[str, ...]] = (
        "separator_id",
        "unknown_id",
        "first_marker_id",
        "last_marker_id",
        "last_context_id",
    )
    BEYOND_TRANSFORMERS: ClassVar[tuple[str, ...]] = (
        "head_size",
        *DUAL_ENCODER_IDS,
        "prefix_pieces",
        "pools_first_piece",
    )

    vocab_size: int = option(30522, minimum=1)
    hidden_size: int = option(768, minimum=1)
    num_hidden_layers: int = option(12, minimum=1)
    num_attention_heads: int = option(12, minimum=1)
    intermediate_size: int = option(3072, minimum=1)
    max_position_embeddings: int = option(512, minimum=1)
    type_vocab_size: int = option(2, minimum=0)
    hidden_act: str = option("gelu", choices=("gelu", "gelu_new", "relu"))
    layer_norm_eps: float = option(1e-12, within="(0, inf)")
    initializer_range: float = option(0.02, within="(0, inf)")
    model_type: str = "bert"
    embedding_size: int = option(0, minimum=0)
    num_hidden_groups: int = option(0, minimum=0)
    position_offset: int = option(0, minimum=0)
    relative_attention_num_buckets: int = option(0, minimum=0)
    head_size: int = option(0, minimum=0)
    separator_id: int = 0
    unknown_id: int = 0
    first_marker_id: int = 0
    last_marker_id: int = 0
    last_context_id: int = 0
    prefix_pieces: int = option(0, minimum=0)
    pools_first_piece: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        own = [getattr(self, name) for name in self.DUAL_ENCODER_IDS]
        _check(
            (min(own) > 0 and own[2] <= own[3] < own[4]) or not any(own),
            f"{', '.join(self.DUAL_ENCODER_IDS)} are {', '.join(map(str, own))}: expected "
            "none, or all of a dual encoder",
        )
        if self.head_size * self.num_attention_heads == self.hidden_size:
            object.__setattr__(self, "head_size", 0)
        _check(
            self.head_size > 0 or self.hidden_size % self.num_attention_heads == 0,
            f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
            f"{self.num_attention_heads}",
        )
        groups = self.num_hidden_groups
        _check(
            0 <= groups <= self.num_hidden_layers,
            f"num_hidden_groups {groups} is more than num_hidden_layers {self.num_hidden_layers}",
        )
        _check(
            self.positions > 0,
            f"max_position_embeddings {self.max_position_embeddings} leaves no position behind "
            f"the first {self.position_offset}",
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as plain JSON values, ``BEYOND_TRANSFORMERS`` only where not 0."""
        values = super().to_dict().items()
        return {n: v for n, v in values if v or n not in self.BEYOND_TRANSFORMERS}

    @property
    def is_dual_encoder(self) -> bool:
        """Whether question and blocks are encoded apart, and compared."""
        return self.first_marker_id > 0

    @property
    def head_width(self) -> int:
        """Columns of query, key and value for each head."""
        return self.head_size or self.hidden_size // self.num_attention_heads

    @property
    def attention_width(self) -> int:
        """Columns of query, key and value for all heads together."""
        return self.num_attention_heads * self.head_width

    @property
    def table_width(self) -> int:
        """Columns of the embedding tables."""
        return self.embedding_size or self.hidden_size

    @property
    def positions(self) -> int:
        """Pieces that a window may have."""
        return self.max_position_embeddings - self.position_offset

    @property
    def layer_sets(self) -> int:
        """How many sets of layer weights there are."""
        return self.num_hidden_groups or self.num_hidden_layers

    def layer_set(self, layer: int) -> int:
        """Which set of weights a layer has."""
        return layer * self.layer_sets // self.num_hidden_layers


@dataclass(frozen=True)
class RankingWeights(Settings):
    """Weights of the default decision (``nq.postprocess.ranking``), fitted by ``nq tune``.

    With the defaults the model's own probabilities count and nothing else.
    """

    BLOCK_FEATURES: ClassVar[tuple[str, ...]] = ("bm25", "page_length")

    evidence: float = option(1.0, "weight of the log odds that the model gives a block")
    bm25: float = option(0.0, "weight of the BM25 score of question and block")
    page_length: float = option(0.0, "weight of log(n) for a block of a page with n blocks")
    max_evidence: float = option(1000.0, "largest weighted block score that is to be expected")
    null: float = option(0.0, "utility of no answer")
    short_evidence: float = option(1.0, "weight of the log odds that the model gives an option")
    short_length: float = option(0.0, "weight of log(tokens) of a span")
    no_short: float = option(0.0, "added for no short answer, only the block")
    yes_no: float = option(0.0, "added for yes and for no")

    def block_vector(self) -> tuple[float, ...]:
        """Returns the weights of ``BLOCK_FEATURES``."""
        return tuple(getattr(self, name) for name in self.BLOCK_FEATURES)

    def option_vector(self) -> tuple[float, ...]:
        """Returns the weights of an option's features, in the order of the features."""
        return self.short_length, self.no_short, self.yes_no


@dataclass(frozen=True)
class CascadeWeights(RankingWeights):
    """Weights of the decision of a cascade: the evidence is the second model's.

    With the default that evidence counts alone. If the second model is a dual encoder, the two
    models change places (``nq.postprocess.ranking``).
    """

    BLOCK_FEATURES: ClassVar[tuple[str, ...]] = (*RankingWeights.BLOCK_FEATURES, "block_score")

    block_score: float = option(0.0, "weight of the block score of the other model")


@dataclass(frozen=True)
class DecisionConfig(Settings):
    """How scores become answers; a model folder has its own weights and thresholds.

    Args:
        says_yes_no: whether yes and no are answers; else such a question gets its passage alone.
    """

    rule: str = option("default", "decision rule", choices=DECISION_RULES)
    max_answer_length: int = option(30, "pieces of a short answer at most", minimum=1)
    long_threshold: float = option(0.0, "minimum score of a long answer")
    short_threshold: float = option(0.0, "minimum score of a short or yes/no answer")
    says_yes_no: bool = option(True)
    weights: RankingWeights = field(default_factory=RankingWeights)

    @property
    def evidence_weight(self) -> float:
        """The largest change of a log odds by a change of all evidence by 1."""
        return max(self.weights.evidence, self.weights.short_evidence)


@dataclass(frozen=True)
class CascadeDecision(DecisionConfig):
    """How the scores of two models become answers.

    The folder of the second model has one for each model that it was tuned with. Without one, its
    own decision is used for the blocks that it reads.

    Args:
        first: decision of the first model alone, by which it ranks the blocks.
    """

    weights: CascadeWeights = field(default_factory=CascadeWeights)
    read_blocks: int = option(
        4, "blocks of a page that the second model reads, the best", minimum=1
    )
    first: DecisionConfig = field(default_factory=DecisionConfig)

    @property
    def evidence_weight(self) -> float:
        """See ``DecisionConfig``."""
        other = abs(self.weights.block_score) * self.first.weights.evidence
        return max(self.weights.evidence + other, self.weights.short_evidence)


@dataclass(frozen=True)
class Compute(Settings):
    """How a run computes: batches, processes and threads.

    Args:
        chunk_bytes: bytes of input files after which the preprocessing begins a new chunk.
    """

    batch_size: int = option(16, "windows in a batch", minimum=1)
    workers: int | None = option(
        None,
        "processes for preprocessing; with a runner of Beam: workers among which few files are "
        "divided",
        minimum=1,
    )
    instances: int | str | None = option(
        None,
        "processes that share the windows, each on cores of its own; auto: as many as there are "
        "cores for; default: this process alone",
        minimum=1,
    )
    threads: int | None = option(
        None,
        "threads of each instance, or of this process without instances; default: those for which "
        "there are cores; with auto instances: 1",
        minimum=1,
    )
    chunk_bytes: int = option(64 << 20, minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(
            self.instances == AUTO or not isinstance(self.instances, str),
            f"instances is {self.instances!r:.80}: expected a whole number from 1 on, or {AUTO!r}",
        )


@dataclass(frozen=True)
class Beam(Settings):
    """A runner of Apache Beam whose workers answer the questions.

    Args:
        options: further options of Beam, such as ``"--flink_master=host:8081"``.
    """

    runner: str = option(
        dataclasses.MISSING,
        "answer on other machines, by FlinkRunner, PortableRunner, SparkRunner, DataflowRunner and "
        "others; the workers have nq installed and see the data; an interrupted run begins again",
    )
    options: Converted[Iterable[str], tuple[str, ...]] = Converted(tuple, ())
    temp: str | None = option(
        None,
        "folder that every worker sees, a path or s3://…, gs://…, hdfs://…: they write to it, and "
        "copy the model from it; what a killed run left there, the next one with its --output "
        "removes; default: they write to the folder of the run, and read the model under its path",
    )


@dataclass(frozen=True)
class TrackingConfig(Settings):
    """Where MLflow records a run.

    Args:
        uri: tracking store or server; by default MLFLOW_TRACKING_URI, then
            ``sqlite:///mlflow.db``.
        experiment: by default MLFLOW_EXPERIMENT_NAME, then ``nq``.
        log_model: whether the run has its model, which MLflow can load and serve.
    """

    uri: str | None = None
    experiment: str | None = None
    log_model: bool = False


@dataclass(frozen=True)
class ServeConfig(Settings):
    """How ``nq serve`` serves a model."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 is every network of the machine")
    port: int = option(8000, "port to listen on; 0 takes a free one", within="[0, 65535]")
    workers: int = option(1, "processes with a model each, pinned to cores of their own", minimum=1)
    batch_size: int = option(8, "windows in a batch, which may be of several clients", minimum=1)
    queue: int = option(
        64,
        "requests that are read, wait or are computed at once; one more is answered with 503",
        minimum=1,
    )
    allowed_hosts: str | None = option(
        None, "names besides --host, localhost and own addresses, with commas; others get 421"
    )
    timeout: float = option(
        30.0, "seconds for a request; 504 says that it was too slow", within="(0, inf)"
    )
    max_body_mb: int = option(
        16, "MB (10^6 bytes) of a request; 413 says that it is too large", minimum=1
    )
    max_windows: int = option(
        512, "windows that a page may have; 422 says that it has more", minimum=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(bool(self.host), "host is empty: expected an address, such as 127.0.0.1")

    @property
    def max_body_bytes(self) -> int:
        """The largest request in bytes."""
        return self.max_body_mb * 10**6


@dataclass(frozen=True)
class TrainConfig(Settings):
    """How a model is trained."""

    epochs: float = option(
        2.0, "passes over the training windows; a fraction is allowed", within="(0, inf)"
    )
    batch_size: int = option(32, "windows in a step", minimum=1)
    learning_rate: float = option(
        2e-4, "highest learning rate, reached after the warm-up", within="(0, inf)"
    )
    warmup: float = option(
        0.1, "share of the steps in which the learning rate rises", within="[0, 1)"
    )
    weight_decay: float = option(0.01, "AdamW's weight decay; biases and norms are exempt")
    dropout: float = option(0.1, "rate of dropout on attention and layer outputs", within="[0, 1)")
    negatives: float = option(
        0.02, "probability of keeping a window without the answer", within="[0, 1]"
    )
    seed: int = option(2020, "of the shuffling, the negatives, dropout and fresh weights")
    save_every: int = option(200, "steps between two checkpoints to resume from", minimum=1)
    precision: str = option(
        "float32",
        "compute type of the training step",
        choices=("float32", "bfloat16", "float16"),
    )


@dataclass(frozen=True)
class StorageConfig(Settings):
    """How a model folder stores its weights."""

    store: str = option(
        "float32",
        "type of the stored weights; int8: matrices and word embeddings in 8 bits, with scales per "
        "output and input channel, the rest in float32",
        choices=STORES,
    )


@dataclass(frozen=True)
class DistillationConfig(Settings):
    """How a student learns from a teacher; the defaults are DistilBERT's for SQuAD."""

    teacher_weight: float = option(
        0.5,
        "share of the teacher's probabilities in the loss, from 0 to 1; the labels have the rest",
        within="[0, 1]",
    )
    temperature: float = option(
        2.0,
        "divides the logits of teacher and student; more makes the probabilities more even",
        within="[0.1, 100]",
    )
