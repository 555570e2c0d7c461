"""What of the logits of a batch leaves the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from keras import ops

LOGITS = ("start_logits", "end_logits", "type_logits")


class Reduction(Protocol):
    """Computes the columns that leave the device from the logits of a batch.

    Attributes:
        columns: their names.
    """

    columns: ClassVar[tuple[str, ...]]

    def __call__(self, logits: dict[str, Any], token_map: Any) -> tuple[Any, ...]:
        """Returns the columns, in order, for one batch of ``B`` windows.

        Args:
            logits: ``start_logits`` and ``end_logits`` ``[B, L]``, ``type_logits`` ``[B, 5]``.
            token_map: int ``[B, L]`` document token of each position, -1 for none.
        """


@dataclass(frozen=True)
class AllLogits:
    """Keeps all logits; those of starts and ends are padded with 0 to one length.

    Args:
        length: at least that of the longest batch.
    """

    columns: ClassVar[tuple[str, ...]] = LOGITS
    length: int

    def __call__(self, logits: dict[str, Any], token_map: Any) -> tuple[Any, ...]:
        """See ``Reduction``; the token map is not used."""
        missing = [[0, 0], [0, self.length - token_map.shape[1]]]
        start, end = (ops.pad(logits[name], missing) for name in LOGITS[:2])
        return start, end, logits["type_logits"]
