"""The reader: a loaded model that answers questions in memory."""

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from os.path import isfile
from pathlib import Path
from typing import Any, Self, cast, overload

from nq import hub
from nq.answers import Answer, Page, Selection
from nq.bundle import bundled_sample
from nq.collection import select_page
from nq.config import DecisionConfig, WindowConfig
from nq.errors import Error, check_argument, is_count
from nq.formats.documents import page_of
from nq.formats.inputs import is_file_name, read_page
from nq.formats.own_data import files_in
from nq.index import BlockIndex
from nq.inference.batches import Shape
from nq.inference.load import ScorerSpec, load_predictor, load_scorer, vector_scorer
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile, reader_profile
from nq.inference.reduction import AllLogits
from nq.inference.scorer import (
    PART_BATCHES,
    Rows,
    Scored,
    Scorer,
    ScorerWrapper,
    Steps,
    answers,
    concatenate,
    split_examples,
    windowed,
)
from nq.model.model import Model
from nq.model.runtime import use_device
from nq.postprocess.decision import RankedPrediction
from nq.preprocess.contexts import unread_blocks
from nq.preprocess.tokenizers.base import Tokenizer
from nq.questions import read_examples
from nq.records import Alternative, Columns, Example, Prediction, Windowed, YesNo
from nq.text import visible
from nq.transformers_pipeline import (
    DOC_STRIDE,
    MAX_ANSWER_LEN,
    MAX_SEQ_LEN,
    Asked,
    ContextWindows,
    as_list,
    examples_of,
    pairs_of,
    parts_of,
    span_answers,
    streamed,
)

log = logging.getLogger(__name__)

Document = Page | str | Path
"""A page, its text or HTML, or its file."""
Documents = Document | list[Document] | list[Page] | list[str] | list[Path]
"""A page, or the documents of which the best blocks are read."""
TASK = "question-answering"
BATCH_SIZE = 8
URL = re.compile(r"\s*https?://\S+\s*\Z")
SLOW_WINDOWS = 200
"""A page with more windows takes so long that the log mentions it."""


class Reader:
    """A model, loaded once, that answers questions; ``nq.load`` makes one.

    A reader may be used from several threads: their windows are computed one part after the other,
    because a lock guards the model (which uses all cores itself). It is a context manager, and may
    also be closed by ``close``.

    Attributes:
        profile: the optimizations.
        windows: how pages become windows.
        decision: how scores become answers.
        index: ranks the blocks of several documents; ``None`` without a dual encoder.
    """

    def __init__(self, spec: ScorerSpec, makes_index: bool = False) -> None:
        model = spec.model
        self.profile = spec.profile
        self.windows = model.windows
        self.decision = model.decision
        self._tokenizer: Tokenizer = model.tokenizer
        scorer = load_scorer(spec)
        self._scorer = _SharedScorer(scorer)
        dual_encoder = vector_scorer(scorer)
        self.index: BlockIndex | None = None
        if dual_encoder is not None:
            lock = self._scorer.lock
            self.index = BlockIndex(dual_encoder, model.parts[0], lock, makes_index)
        self._spec = spec
        self._predictor: Predictor | None = None
        is_squad_reader = model.ranker is None and model.reader.files.is_squad_reader
        self._has_types = not is_squad_reader

    def __repr__(self) -> str:
        model = self._spec.model.name
        device = self._scorer.device.lower()
        return f"Reader({model=}, profile='{self.profile}', {device=})"

    @property
    def model(self) -> Any:
        """The Keras model: ``input_ids``, ``input_mask``, ``segment_ids`` (int32 ``[B, L]``) to
        ``start_logits``, ``end_logits`` (``[B, L]``) and ``type_logits`` (``[B, 5]``).
        """
        return self._scorer.open().network.model

    @overload
    def ask(self, question: str, page: Documents, top: int = 3) -> Answer: ...
    @overload
    def ask(self, question: list[Any], page: Documents = ..., top: int = 3) -> list[Answer]: ...
    @overload
    def ask(self, question: Any, page: Any = None, top: int = 3) -> Any: ...
    @streamed
    def ask(self, question: Any, page: Any = None, top: int = 3) -> Any:
        """Returns the answer to a question about a page, or those to several ones in order.

        The windows of several questions share batches.

        Args:
            question: a question in the model's language, a list of questions about the page, or
                without a page one of pairs ``(question, page)`` or dicts with ``question`` and
                ``context``. A tuple, a pandas Series and a frame are lists; for an iterator and a
                ``datasets.Dataset`` the answers are in an iterator.
            page: a page from ``nq.read_page`` and the like, a ``pathlib.Path`` of a file that
                ``nq.read_page`` reads, or a ``str`` with the text or HTML itself. Of a list of
                several, and of the documents in a folder (a ``Path``), the best blocks are read,
                and the answers ranked over all of them. Beside a folder, documents that cannot be
                read are left out and named in ``skipped``.
            top: number of alternatives.

        Raises:
            OSError: a file cannot be read, or a ``str`` is the name of one that does not exist.
            ValueError: a question is empty, or an argument has the wrong type.
        """
        check_argument(is_count(top, 0), "top", top, "a whole number from 0 on")
        are_several = isinstance(question, list)
        page = as_list(page)
        pairs: list[tuple[Any, Any]] = [*question] if are_several and page is None else []
        pairs = [parts_of(one) if isinstance(one, Mapping) else one for one in pairs]
        for pair in pairs:
            is_pair = isinstance(pair, tuple) and len(pair) == 2
            expected = "a pair (question, page), or a dict with question and context"
            check_argument(is_pair, "an element of the list", pair, expected)
        if page is not None or not are_several:
            source = page if isinstance(page, list) or _is_folder(page) else _page(page)
            pairs = [(q, source) for q in (question if are_several else [question])]
        for text, _ in pairs:
            is_text = isinstance(text, str) and bool(text.strip())
            check_argument(is_text, "question", text, "a text that is not empty")
        pairs = [(text, self._page_for(text, source)) for text, source in pairs]
        read = self.windows.max_query_length - 1
        for text, _ in pairs:
            n_pieces = sum(map(len, self._tokenizer.encode(text.split())))
            if n_pieces > read:
                log.warning("the question has %d pieces; the last %d are read", n_pieces, read)
        decided = self._answers([page.with_question(text) for text, page in pairs])
        answers = [
            make_answer(text, page, ranked, top, self.windows)
            for (text, page), (_, ranked) in zip(pairs, decided, strict=True)
        ]
        return answers if are_several else answers[0]

    @streamed
    def __call__(
        self,
        question: Asked,
        context: str | Iterable[str] | None = None,
        *,
        top_k: int = 1,
        topk: int | None = None,
        handle_impossible_answer: bool = False,
        max_answer_len: int = MAX_ANSWER_LEN,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        align_to_words: bool = True,
        batch_size: int | None = None,
    ) -> Any:
        """Returns short answers as the question-answering pipeline of transformers 4 did.

        Args:
            question: a question, a dict with ``question`` and ``context`` or with lists of both, or
                a list, pandas Series, frame, iterator or ``datasets.Dataset`` of either.
            context: plain text; a list with one for each question, or one for all of them.
            top_k, topk: number of answers to a question.
            handle_impossible_answer: whether an answer may be empty; otherwise the best short
                answer is given even if the reader's decision is "no answer".
            max_answer_len: pieces of a short answer at most.
            max_seq_len, doc_stride, align_to_words: of a Hugging Face model alone: pieces in a
                window (by default 384 at most), pieces that two windows share (half of that, at
                most 128), and whether answers are whole words.
            batch_size: questions of an iterator that are read and answered at once, by default 1;
                windows in a batch are a setting of ``nq.load``.

        Returns:
            A dict with ``score``, ``start``, ``end`` and ``answer``, which is
            ``context[start:end]``. With ``top_k`` above 1 it is a list of them, best first; for a
            list of questions it is a list with a result for each, for an iterator an iterator.

        Raises:
            ValueError: a question or context is empty, or an argument has the wrong type, or is of
                another kind of model.
        """
        top_k = top_k if topk is None else topk
        windows = {"max_seq_len": max_seq_len, "doc_stride": doc_stride}
        optional = {"batch_size": batch_size, **windows}
        given = {name: value for name, value in optional.items() if value is not None}
        numbers = {"top_k": top_k, "max_answer_len": max_answer_len, **given}
        for name, value in numbers.items():
            minimum = int(name != "doc_stride")
            expected = f"a whole number from {minimum} on"
            check_argument(is_count(value, minimum), name, value, expected)
        pairs, several = pairs_of(question, context)
        if self._has_types:
            for name, option in windows.items():
                expected = "none, since windows of this model are settings of nq.load(windows=…)"
                check_argument(option is None, name, option, expected)
            decision = replace(self.decision, rule="default", max_answer_length=max_answer_len)
            decided = self._answers(examples_of(pairs), decision)
            rankings = (ranked.ranking for _, ranked in decided if ranked.ranking)
            answers = span_answers(rankings, top_k, handle_impossible_answer)
        else:
            context_windows = self._context_windows(pairs, max_seq_len, doc_stride)
            answers = (
                one.answers(
                    logits,
                    top_k,
                    handle_impossible_answer,
                    max_answer_len,
                    align_to_words,
                )
                for one, logits in self._with_logits(context_windows)
            )
        results = [spans if top_k > 1 else spans[0] for spans in answers]
        return results if several else results[0]

    def predict(self, examples: Iterable[Example]) -> Iterator[Prediction]:
        """Returns an iterator over one prediction per example, in order.

        Several examples share a batch.

        Args:
            examples: for example from ``nq.read_examples``.

        Raises:
            ValueError: there are no examples to iterate over, or an element is not an example.
        """
        self._scorer.open()
        several = isinstance(examples, Iterable) and not isinstance(examples, str | bytes)
        check_argument(several, "examples", examples, "examples, as from nq.read_examples(FILE)")
        return (ranked.prediction for _, ranked in self._answers(examples))

    def close(self) -> None:
        """Frees the model; later calls of other methods raise ``nq.Error``."""
        self._scorer.close()
        self._predictor = self.index = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _page_for(self, question: str, source: Any) -> Page:
        """Returns a page; of several documents one with the best blocks for a question."""
        given = source if isinstance(source, list) else [source]
        check_argument(bool(given), "page", given, "a list with at least one page")
        documents = list[Document]()
        for one in given:
            documents += map(Path, files_in(str(one))) if _is_folder(one) else [one]
        has_folder = any(map(_is_folder, given))
        return select_page(question, documents, _page, self.windows, has_folder, index=self.index)

    def _answers(
        self, examples: Iterable[Example], decision: DecisionConfig | None = None
    ) -> Iterator[tuple[Scored, RankedPrediction]]:
        return answers(self._scorer, map(self._windowed, examples), decision or self.decision)

    def _windowed(self, example: Example) -> Windowed:
        expected = "an nq.Example"
        check_argument(isinstance(example, Example), "an element of examples", example, expected)
        one = windowed(example, self._tokenizer, self.windows)
        if len(one) > SLOW_WINDOWS:
            log.info("a long page: %d windows", len(one))
        return one

    def _context_windows(
        self, pairs: Iterable[tuple[str, str]], length: int | None, overlap: int | None
    ) -> Iterator[ContextWindows]:
        """Yields the windows of questions and contexts for a Hugging Face model."""
        longest = self.windows.max_seq_length
        length = min(longest, MAX_SEQ_LEN) if length is None else length
        check_argument(length <= longest, "max_seq_len", length, f"at most {longest}")
        overlap = min(length // 2, DOC_STRIDE) if overlap is None else overlap
        for question, context in pairs:
            yield ContextWindows.of(question, context, self._tokenizer, length, overlap)

    def _with_logits(
        self, windows: Iterator[ContextWindows]
    ) -> Iterator[tuple[ContextWindows, Columns]]:
        """Yields windows with their logits."""
        longest = self.windows.max_seq_length
        spec = self._spec
        while group := list(islice(windows, PART_BATCHES * spec.batch_size)):
            rows = concatenate([one.rows for one in group])
            with self._scorer.lock:
                network = self._scorer.open().network
                predictor = self._predictor or load_predictor(spec, AllLogits(longest), network)
                predictor.shape = Shape(spec.batch_size, rows["input_ids"].shape[1])
                logits = predictor.scores(rows)
                self._predictor = predictor
            yield from zip(group, split_examples(rows, logits), strict=True)


class _SharedScorer(ScorerWrapper):
    """A scorer for several threads, which may be closed."""

    def __init__(self, inner: Scorer) -> None:
        super().__init__(inner)
        self.lock = threading.RLock()

    def steps(self, rows: Rows, examples: Sequence[Example]) -> Steps:
        """See ``Scorer.steps``; one thread computes at a time."""
        with self.lock:
            return (yield from self.open().steps(rows, examples))

    def open(self) -> Scorer:
        """Returns the scorer; ``nq.Error`` once it is closed."""
        if self.inner is None:
            raise Error("the reader is closed: make another one with nq.load()")
        return self.inner

    def close(self) -> None:
        """Frees the scorer."""
        with self.lock:
            self.inner = self.network = cast(Any, None)


def make_answer(
    question: str, page: Page, ranked: RankedPrediction, top: int, windows: WindowConfig
) -> Answer:
    """Returns a prediction in words, with at most ``top`` alternatives.

    By a decision rule without probabilities there are none, and the answer has a score.
    """
    prediction = ranked.prediction
    n_best = ranked.alternatives(top + 1) or ()
    given = next((other for other in n_best if prediction.long == other.long), None)
    others = [other for other in n_best if other is not given][:top]
    others.sort(key=lambda other: -other.short_probability)
    left_out = page.selection or Selection(unread_blocks=unread_blocks(page.example, windows))
    return replace(
        _in_words(question, page, prediction, given),
        alternatives=tuple(_in_words(question, page, other, other) for other in others),
        unread_blocks=left_out.unread_blocks,
        skipped=left_out.skipped,
        asks_yes_no=given is not None and given.asks_yes_no,
        score=None if ranked.ranking else prediction.short_score,
    )


def _in_words(
    question: str, page: Page, answer: Prediction | Alternative, ranked: Alternative | None
) -> Answer:
    """Returns an answer of a page with its probabilities, if it is ranked."""
    origin = page.origin(answer.long, answer.shorts)
    long = short = None
    if ranked and answer.long:
        long = ranked.long_probability
    if ranked and (answer.shorts or answer.yes_no is not YesNo.NONE):
        short = ranked.short_probability
    return Answer(question, *origin, answer.yes_no, long, short)


def _is_folder(source: object) -> bool:
    return isinstance(source, Path) and source.is_dir()


def _page(source: Document | None) -> Page:
    """Returns the page of a text, of HTML or of a file."""
    if isinstance(source, str):
        if isfile(source):  # noqa: PTH113 - also of text that is too long for a name
            log.warning("the page is read as text, and %r is a file: give a pathlib.Path", source)
        elif URL.match(source):
            log.warning("the page is read as text: a URL is not fetched; give its text or HTML")
        elif is_file_name(source):
            missing = visible(source.strip())
            raise FileNotFoundError(f"there is no file {missing}: give one, or the text of a page")
        return page_of(source, "the page")
    if isinstance(source, Path):
        return read_page(source)
    expected = "a page from nq.read_page(FILE), a pathlib.Path, or a str with text or HTML"
    check_argument(isinstance(source, Page), "page", source, expected)
    return cast(Page, source)


def pipeline(
    task: str,
    model: str | Path | None = None,
    *,
    tokenizer: str | Path | None = None,
    revision: str | None = None,
    device: object = None,
) -> Reader:
    """Loads a model whose reader is called as a pipeline of transformers 4 was.

    Args:
        task: ``"question-answering"``.
        model: see ``load``.
        tokenizer: the same as ``model``, if it is given.
        revision: a branch, a tag or a commit of a model ``org/name`` of the hub.
        device: ``"cpu"`` or -1, or a GPU: its number, ``"cuda"`` or ``"cuda:1"``; by default the
            first GPU that TensorFlow can use, else the CPU.

    >>> pipeline("summarization")
    Traceback (most recent call last):
    ValueError: task is 'summarization': expected 'question-answering'
    """
    check_argument(task == TASK, "task", task, repr(TASK))
    is_own = tokenizer is None or str(tokenizer) == str(model)
    check_argument(is_own, "tokenizer", tokenizer, "that of the model, or none")
    if revision is not None:
        model = f"{model}@{revision}"
        is_known = model.count("@") == 1 and hub.is_model(model)
        check_argument(is_known, "revision", revision, "one of a model org/name of the hub")
    on_gpu = None if device is None else use_device(device) >= 0
    return load(model, profile=reader_profile(on_gpu))


def load(
    model: str | Path | None = None,
    *,
    profile: Profile | str | None = None,
    windows: WindowConfig | None = None,
    decision: DecisionConfig | None = None,
    batch_size: int = BATCH_SIZE,
    ranker: str | Path | None = None,
    read_blocks: int | None = None,
) -> Reader:
    """Loads a model for questions in memory.

    Args:
        model: model folder, or name of a model, as ``org/name`` or ``org/name@revision`` of the
            Hugging Face hub; by default the two bundled models, ``ranker+small``.
        profile: optimizations, such as ``"mixed+grappler"``; by default the one of ``openvino``,
            ``onnx`` and ``grappler`` that is installed first, on a GPU ``grappler``.
        windows: how pages become windows; by default the settings of the folder.
        decision: how scores become answers; by default the settings of the folder.
        batch_size: windows in a batch at most; of short ones as many as have the same pieces.
        ranker: folder or name of a model that ranks the blocks of which ``model`` reads the best.
        read_blocks: blocks that are read of those; by default as many as the decision names.

    Raises:
        FileNotFoundError: a folder has no model, or there is no model of this name.
        ValueError: the profile is unknown, an argument has the wrong type, or the model is damaged.
        Error: a package or the model is not installed, or the profile does not fit the decision
            rule.
    """
    profile = reader_profile() if profile is None else Profile.of(profile)
    check_argument(is_count(batch_size), "batch_size", batch_size, "a whole number from 1 on")
    opened = Model.open(
        model,
        windows=windows,
        decision=decision,
        ranker=ranker,
        read_blocks=read_blocks,
    )
    return Reader(checked_scorer(opened, profile, batch_size))


def checked_scorer(model: Model, profile: Profile, batch_size: int) -> ScorerSpec:
    """Returns the spec of a scorer for questions in memory, whose profile fits the model.

    Where the profile has ``int8``, it is calibrated on windows of the bundled sample.
    """
    if model.advice:
        log.info("%s", model.advice)
    spec = ScorerSpec(model, profile, batch_size, adaptive=True)
    return spec.calibrated(partial(read_examples, bundled_sample()))
