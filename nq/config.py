"""Settings that several packages share, and the base of all: frozen, checked on construction.

The settings of one package are in its own ``config.py``. Defaults are in these fields only; the
command line and the tables of the README are made from them and their help texts.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import UnionType
from typing import Any, ClassVar, Self, get_type_hints

DECISION_RULES = ("default", "squad", "bert-joint", "kisialiou")
PAGE_SCOPE = "page"
BLOCK_SCOPE = "block"
TEXT_SCOPE = "text"
ORIGINAL_CONTEXTS = 48
ALL_CONTEXTS = 1 << 30
"""The ``max_contexts`` of BERT-Joint, and one beyond the blocks of every page."""
DOC_STRIDE = 128
ORIGIN = re.compile(
    r"(?!http:.*:80$|https:.*:443$)"
    r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?"
)
"""What browsers send as the origin of a page, without the default port: HTML standard, 7.1.1."""


def option(default: Any, help: str = "", **checks: Any) -> Any:
    """Returns a dataclass field that ``Settings`` checks and the command line offers.

    Without ``help`` the command line has no such option. ``checks`` are ``choices``, ``minimum``,
    or ``within``, an interval such as ``"[0, 1)"``; ``shown_default`` replaces the default in the
    help text.
    """
    return field(default=default, metadata={"help": help, **checks})


class Settings:
    """Base of all settings: checks of the fields, and conversion to and from plain mappings."""

    def __post_init__(self) -> None:
        """Checks type and range of each field; an integer may stand for a float.

        A field of another kind of type checks itself (``nq.runs.config.Converted``).
        """
        hints = get_type_hints(type(self))
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            expected = hints[f.name]
            if not isinstance(expected, type | UnionType):
                continue
            kinds: Any = (int, float) if expected is float else expected
            is_wrong_bool = isinstance(value, bool) and expected is not bool
            if is_wrong_bool or not isinstance(value, kinds):
                kind = getattr(expected, "__name__", expected)
                raise ValueError(f"{f.name} is {value!r:.80}: expected a value of type {kind}")
            ensure(value == value, f"{f.name} is nan: expected a number")  # noqa: PLR0124
            choices = f.metadata.get("choices", (value,))
            if value not in choices:
                names = ", ".join(choices)
                raise ValueError(f"unknown {f.name} {value!r:.80}; known are {names}")
            if isinstance(value, str | None):
                continue
            minimum = f.metadata.get("minimum")
            if minimum is not None and value < minimum:
                raise ValueError(f"{f.name} must be at least {minimum}, got {value}")
            within = f.metadata.get("within")
            if within and not is_within(value, within):
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
        unknown = sorted(set(values) - set(names))
        known = f"known are {names}"
        ensure(not unknown, f"unknown settings {unknown!r:.80} for {cls.__name__}; {known}")
        nested = {
            name: hints[name].from_dict(value)
            for name, value in values.items()
            if isinstance(hints[name], type) and issubclass(hints[name], Settings)
        }
        return cls(**{**values, **nested})


def ensure(condition: bool, message: str) -> None:
    """Raises a ``ValueError`` with a message if a condition does not hold."""
    if not condition:
        raise ValueError(message)


def is_within(value: float, interval: str) -> bool:
    """Returns whether a value is in an interval such as ``"(0, 1]"``."""
    low, high = map(float, interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    return above and (value <= high if interval[-1] == "]" else value < high)


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
        counts_as_original: ``max_contexts`` is 48 unless given; the first block is read even if it
            is 1, since the originals append it before they count.
        keep_unannotated: an example without annotations gives negative training windows,
            instead of none.
        running_text: windows have the plain text of the blocks, without markers, in pieces of the
            whole text, as readers of SQuAD know it; a model trained on them has no head for types.
        rule: decision rule of a model trained on such windows.
        id_name: name of the TFRecord column that holds the window's id.
        max_seq_length: pieces in a window, unless ``WindowConfig`` says otherwise.
        overlap: ``max_seq_length`` less ``doc_stride``; 0 where that is ``DOC_STRIDE``.
    """

    keep_query_marker: bool = True
    angle_bracket_is_tag: bool = False
    split_words_again: bool = False
    original_wordpiece: bool = False
    merge_all_short_answers: bool = False
    counts_as_original: bool = False
    keep_unannotated: bool = False
    running_text: bool = False
    rule: str = "default"
    id_name: str = "unique_ids"
    max_seq_length: int = 512
    overlap: int = 0


_BERT_JOINT = Compat(
    keep_query_marker=False,
    split_words_again=True,
    original_wordpiece=True,
    merge_all_short_answers=True,
    counts_as_original=True,
    keep_unannotated=True,
    max_seq_length=384,
)
COMPAT = {
    "ours": Compat(),
    "squad": Compat(
        running_text=True,
        rule="squad",
        max_seq_length=384,
        overlap=128,
    ),
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
            which for ``bert-joint`` is that of Google's command line, for ``squad`` that with
            which such readers are trained.
        doc_stride: 0 stands for the default of the compatibility mode, which for ``squad`` is 128
            less than ``max_seq_length``, or half of that.
        max_contexts: 0 stands for all blocks, and for 48 in the compatibility modes of the
            originals.
        question_prefix, block_prefix: text that a dual encoder was trained with before each
            question and before each block. It is of no word of the page.
    """

    max_seq_length: int = option(
        0,
        "pieces in a window, padding included",
        shown_default="512, with compat bert-joint or squad 384",
    )
    doc_stride: int = option(
        0,
        "pieces from the start of one window to the start of the next",
        minimum=0,
        shown_default=f"{DOC_STRIDE}, with compat squad 256",
    )
    max_query_length: int = option(
        64,
        "pieces of the question, [Q] included",
        minimum=1,
    )
    max_contexts: int = option(
        0,
        "blocks of a page to read, with the null context (0: all, 48 as the originals do)",
        minimum=0,
    )
    max_position: int = option(
        50, "where the counters in the [Paragraph=n] markers stop", minimum=1
    )
    compat: str = option(
        "ours",
        "which features: ours, those of a reader of SQuAD, or those of the original or of the 2020 "
        "port, piece by piece",
        choices=tuple(COMPAT),
    )
    window_scope: str = option(
        PAGE_SCOPE,
        "what a window may hold: text of several blocks of the page, of one block only, or, for a "
        "dual encoder, whole blocks that are encoded apart",
        choices=(PAGE_SCOPE, BLOCK_SCOPE, TEXT_SCOPE),
    )
    question_prefix: str = ""
    block_prefix: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        ensure(
            self.window_scope == PAGE_SCOPE or not self.switches.split_words_again,
            f"compat {self.compat} has no windows of one block: leave window_scope at {PAGE_SCOPE}",
        )
        ensure(
            self.window_scope != TEXT_SCOPE or not self.switches.running_text,
            f"compat {self.compat} reads question and page together: window_scope cannot be "
            f"{TEXT_SCOPE}",
        )
        if self.max_seq_length == 0:
            object.__setattr__(self, "max_seq_length", self.switches.max_seq_length)
        if self.doc_stride == 0:
            length = self.max_seq_length
            overlap = self.switches.overlap
            stride = length - min(overlap, length // 2) if overlap else DOC_STRIDE
            object.__setattr__(self, "doc_stride", stride)
        ensure(
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
        counts_as_original = self.switches.counts_as_original
        default = ORIGINAL_CONTEXTS if counts_as_original else ALL_CONTEXTS
        limit = self.max_contexts or default
        return max(limit - 1, int(counts_as_original))


@dataclass(frozen=True)
class RankingWeights(Settings):
    """Weights of the default decision (``nq.postprocess.ranking``), fitted by ``nq tune``.

    With the defaults the model's own probabilities count and nothing else.
    """

    BLOCK_FEATURES: ClassVar[tuple[str, ...]] = (
        "bm25",
        "page_length",
        "few_blocks",
        "retriever",
        "place",
        "lead",
        "words",
    )

    evidence: float = option(1.0, "weight of the log odds that the model gives a block")
    bm25: float = option(0.0, "weight of the BM25 score of question and block")
    page_length: float = option(0.0, "weight of log(n) for a block of a page with n blocks")
    few_blocks: float = option(0.0, "weight of log(8 / n) for a block of a page with n < 8 blocks")
    retriever: float = option(0.0, "weight of the score of a retriever, if it found the page")
    place: float = option(0.0, "weight of log(1 + place) of a block in an article, from place 0")
    lead: float = option(0.0, "added for a block before the first heading of an article")
    words: float = option(0.0, "weight of log(1 + words) of a block, less the mean of the article")
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
    """Weights of the decision of two models, by default that of the reader's evidence alone."""

    BLOCK_FEATURES: ClassVar[tuple[str, ...]] = (*RankingWeights.BLOCK_FEATURES, "block_score")

    block_score: float = option(0.0, "weight of the block score of the ranker")


@dataclass(frozen=True)
class DecisionConfig(Settings):
    """How scores become answers; a model folder has its own weights and thresholds.

    Args:
        says_yes_no: whether yes and no are answers; else such a question gets its passage alone.
    """

    rule: str = option("default", "decision rule", choices=DECISION_RULES)
    max_answer_length: int = option(
        30,
        "pieces of a short answer at most",
        minimum=1,
    )
    long_threshold: float = option(0.0, "minimum score of a long answer")
    short_threshold: float = option(
        0.0,
        "minimum score of a short or yes/no answer, which the default rule gives with a long one",
    )
    says_yes_no: bool = option(True)
    prune_blocks: int = option(
        8, "blocks of a page whose windows prune computes, the best without the model", minimum=1
    )
    weights: RankingWeights = field(default_factory=RankingWeights)

    @property
    def evidence_weight(self) -> float:
        """The largest change of a log odds when all evidence changes by 1."""
        return max(self.weights.evidence, self.weights.short_evidence)


@dataclass(frozen=True)
class CascadeDecision(DecisionConfig):
    """How the scores of two models become answers.

    Args:
        first: decision of the ranker alone, by which it ranks the blocks.
    """

    weights: CascadeWeights = field(default_factory=CascadeWeights)
    read_blocks: int = option(
        4,
        "blocks of a page that the reader reads, the best",
        minimum=1,
    )
    first: DecisionConfig = field(default_factory=DecisionConfig)

    @property
    def evidence_weight(self) -> float:
        """The largest change of a log odds when all evidence changes by 1."""
        other = abs(self.weights.block_score) * self.first.weights.evidence
        return max(self.weights.evidence + other, self.weights.short_evidence)


@dataclass(frozen=True)
class TrackingConfig(Settings):
    """Where MLflow records a run.

    Args:
        uri: tracking store or server; by default MLFLOW_TRACKING_URI, then
            ``sqlite:///mlflow.db``.
        experiment: by default that of MLFLOW_EXPERIMENT_NAME or MLFLOW_EXPERIMENT_ID, then ``nq``.
        log_model: whether the run has its model, which MLflow can load and serve.
        register: name in MLflow's registry, of which the logged model is the next version.
    """

    uri: str | None = None
    experiment: str | None = None
    log_model: bool = False
    register: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        ensure(
            self.register is None or self.register.strip() != "", "register is empty: give a name"
        )

    @property
    def logs_model(self) -> bool:
        """Whether the model is logged with the run, which registering it requires."""
        return self.log_model or self.register is not None


@dataclass(frozen=True)
class ServeConfig(Settings):
    """How ``nq serve`` serves a model."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 is every network of the machine")
    port: int = option(
        8000,
        "port to listen on; 0 takes a free one",
        within="[0, 65535]",
    )
    workers: int = option(
        1,
        "processes with a model each, pinned to cores of their own",
        minimum=1,
    )
    batch_size: int = option(
        8,
        "windows in a batch, which may be of several clients",
        minimum=1,
    )
    queue: int = option(
        64,
        "requests in work at once; one more gets 503",
        minimum=1,
    )
    allowed_hosts: str | None = option(None, "further host names, with commas; others get 421")
    allow_origin: tuple[str, ...] = option((), "site whose scripts may ask, or *; may be repeated")
    timeout: float = option(
        30.0,
        "seconds for a request, then it gets 504",
        within="(0, inf)",
    )
    max_body_mb: int = option(
        16,
        "MB (10^6 bytes) of a request; a larger one gets 413",
        minimum=1,
    )
    max_windows: int = option(
        512,
        "windows of a page; one with more gets 422",
        minimum=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        ensure(bool(self.host), "host is empty: expected an address, such as 127.0.0.1")
        for origin in self.allow_origin:
            expected = "expected *, or scheme, host and any port but the default, in lower case"
            text = f"allow_origin is {origin!r:.80}: {expected}, such as https://qa.example.org"
            ensure(origin == "*" or bool(ORIGIN.fullmatch(origin)), text)
