"""Windows of one tokenizer as another one makes them, if both cut text into the same pieces.

BERT and MPNet have the same pieces in other rows, and MPNet has one separator more:

[CLS] [Q] who ##s [SEP] the lake [SEP]          ids of BERT's vocabulary, segments 0 and 1
<s>   [Q] who ##s </s> </s> the lake </s>       ids of MPNet's, all segments 0
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from nq.preprocess.tokenizers.base import MARKERS, Tokenizer
from nq.preprocess.tokenizers.load import tokenizer_digest
from nq.preprocess.tokenizers.wordpiece import WordPieceTokenizer
from nq.records import Columns, FloatArray, IntArray
from nq.training.windows import TrainingWindows

Selection = slice | IntArray
_NEVER_TEXT = re.compile(r"\[.+\]|<.+>")
"""Special and unused pieces: WordPiece cuts words at brackets before it looks them up."""


@dataclass(frozen=True, eq=False)
class Translation:
    """Translates windows from a source tokenizer to a target tokenizer.

    ``ids`` ``[source.vocab_size]`` has the target's id of each id that text may become.
    """

    source: Tokenizer
    target: Tokenizer
    ids: IntArray

    @classmethod
    def between(cls, source: Tokenizer, target: Tokenizer) -> Translation:
        """Returns the translation between two tokenizers.

        Raises:
            ValueError: they cut some text into different pieces; the message says how they differ.
        """
        if tokenizer_digest(source) == tokenizer_digest(target):
            return cls(source, target, np.arange(source.vocab_size))
        _check_equal_pieces(source, target)
        ids = np.full(source.vocab_size, target.unk_id)
        for i, piece in source.spellings().items():
            other = target.marker_id(piece) if piece in MARKERS else target.piece_id(piece)
            ids[i] = target.unk_id if other is None else other
        ids[source.unk_id] = target.unk_id
        return cls(source, target, ids)

    @property
    def more_separators(self) -> int:
        """Additional separators in a window of the target."""
        return self.target.separators - self.source.separators

    def rows(self, windows: TrainingWindows, selection: Selection, length: int) -> Columns:
        """Returns ``B`` selected windows of the source as inputs of the target's model.

        They are ``input_ids``, ``input_mask`` and ``segment_ids``, each int32 ``[B, length]``.
        """
        ids, target = windows.input_ids[selection], self.target
        separator = self._first_separator(windows, selection)
        page = separator + target.separators
        pos = np.arange(length)[None]
        n_pieces = windows.n_pieces[selection, None] + self.more_separators
        mask = pos < n_pieces
        source_pos = np.where(pos < page, pos, pos - self.more_separators)
        translated = self.ids[
            np.take_along_axis(ids, np.clip(source_pos, 0, ids.shape[1] - 1), axis=1)
        ]
        is_separator = ((pos >= separator) & (pos < page)) | (pos == n_pieces - 1)
        translated = np.where(is_separator, target.sep_id, translated)
        translated[:, 0] = target.cls_id
        columns = {
            "input_ids": np.where(mask, translated, target.pad_id),
            "input_mask": mask,
            "segment_ids": mask & (pos >= page) & target.segments,
        }
        return {name: column.astype(np.int32) for name, column in columns.items()}

    def back(
        self, windows: TrainingWindows, selection: Selection, values: FloatArray, missing: float
    ) -> FloatArray:
        """Returns values ``[B, length of the target]`` as ``[B, length of the source]``.

        Padding, and a separator that the target does not have, get the value ``missing``.
        """
        separator = self._first_separator(windows, selection)
        page = separator + self.source.separators
        pos = np.arange(windows.input_ids.shape[1])[None]
        target_pos = np.where(pos < page, pos, pos + self.more_separators)
        exists = (pos < separator + self.target.separators) | (pos >= page)
        exists &= pos < windows.n_pieces[selection, None]
        moved = np.take_along_axis(values, np.clip(target_pos, 0, values.shape[1] - 1), axis=1)
        return np.where(exists, moved, missing)

    def _first_separator(self, windows: TrainingWindows, selection: Selection) -> IntArray:
        """Returns ``[B, 1]`` the position of the separator behind the question."""
        if self.source.segments:
            return windows.n_query[selection, None] - self.source.separators
        is_separator = windows.input_ids[selection] == self.source.sep_id
        return np.asarray(is_separator.argmax(axis=1)[:, None])


def _check_equal_pieces(source: Tokenizer, target: Tokenizer) -> None:
    kind, other_kind = type(source).__name__, type(target).__name__
    if kind != other_kind:
        raise ValueError(f"one has a {kind}, the other a {other_kind}")
    if not isinstance(source, WordPieceTokenizer):
        raise ValueError(f"the files of their {kind} differ")
    settings, pieces = [], []
    for one in (source, target):
        strip, lowercase = one.options["strip_accents"], one.options["do_lower_case"]
        settings.append({**one.options, "strip_accents": lowercase if strip is None else strip})
        pieces.append({p for p in one.spellings().values() if not _NEVER_TEXT.fullmatch(p)})
    for name, value in settings[0].items():
        if settings[1][name] != value:
            raise ValueError(f"{name} is {value} for one, {settings[1][name]} for the other")
    if pieces[0] != pieces[1]:
        one_only = pieces[0] ^ pieces[1]
        example = min(one_only, key=lambda piece: (piece.startswith("##"), piece))
        raise ValueError(
            f"their vocabularies have {len(pieces[0])} and {len(pieces[1])} pieces, of which "
            f"{len(pieces[0] & pieces[1])} are in both and {example!r:.40} is in one only"
        )
