"""The model that MLflow loads and serves: one row for each question, one answer for each row.

MLflow copies this file into every model that ``nq.mlflow_format.save_model`` saves and runs the
copy to load the model ("models from code"). No other module imports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from nq.answers import Answer, Page
    from nq.reader import Reader

COLUMNS = ("question", "page")


class AnswerModel(PythonModel):
    """A model that answers questions about pages.

    Its artifacts are a model folder, ``model``, and with a second model ``second_model``. Its
    configuration has the ``profile``, ``None`` for the default one.
    """

    def load_context(self, context: PythonModelContext) -> None:
        """Loads the model and, if there is one, the second model."""
        from nq.reader import load

        profile = (context.model_config or {}).get("profile")
        options = {} if profile is None else {"profile": profile}
        second = context.artifacts.get("second_model")
        self.reader: Reader = load(context.artifacts["model"], second_model=second, **options)

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame
    ) -> list[dict[str, Any]]:
        """Returns the answer to each row, with the fields of ``nq ask --json``.

        Its columns are ``question``, ``page`` (text or HTML) and optionally ``top``.
        """
        missing = [name for name in COLUMNS if name not in model_input.columns]
        if missing:
            columns = ", ".join(map(str, model_input.columns)) or "none"
            raise _invalid(f"no column {' and no column '.join(missing)}: found {columns}")
        rows = list(enumerate(model_input.to_dict("records"), 1))
        pairs = [_pair(number, row) for number, row in rows]
        options = [_options(row.get("top"), number) for number, row in rows]
        answers = list[Any]([None] * len(rows))
        for top in {
            tuple(one.items()) for one in options
        }:  # mostly one, so that rows share batches
            chosen = [i for i, one in enumerate(options) if tuple(one.items()) == top]
            for i, answer in zip(chosen, self._ask(chosen, pairs, dict(top)), strict=True):
                answers[i] = answer.to_dict()
        return answers

    def _ask(
        self, chosen: Sequence[int], pairs: Sequence[tuple[str, Page]], options: Mapping[str, int]
    ) -> list[Answer]:
        """Returns the answers to some pairs; an error names the row."""
        try:
            return self.reader.ask([pairs[i] for i in chosen], **options)
        except ValueError as error:
            if len(chosen) > 1:
                return [answer for i in chosen for answer in self._ask([i], pairs, options)]
            raise _invalid(f"row {chosen[0] + 1}: {error}") from error


def _pair(number: int, row: Mapping[Any, Any]) -> tuple[str, Page]:
    """Returns the question and the page of a row."""
    from nq.formats.documents import page_of

    for name in COLUMNS:
        if not isinstance(row[name], str):
            raise _invalid(f"row {number}: {name} is {row[name]!r:.80}: expected a text")
    try:
        return row["question"], page_of(row["page"], "the page")
    except ValueError as error:
        raise _invalid(f"row {number}: {error}") from error


def _options(value: Any, number: int) -> dict[str, int]:
    """Returns the number of runners-up as an option; a table has NaN where a row gives none."""
    if value is None or value != value:  # noqa: PLR0124 - only NaN differs from itself
        return {}
    if isinstance(value, bool | str) or value != int(value) or value < 0:
        raise _invalid(f"row {number}: top is {value!r:.80}: expected a whole number from 0 on")
    return {"top": int(value)}


def _invalid(reason: str) -> MlflowException:
    """Returns the error of a request that cannot be answered, with its reason in one line."""
    from nq.text import visible

    return MlflowException.invalid_parameter_value(visible(" ".join(reason.split())))


mlflow.models.set_model(AnswerModel())
