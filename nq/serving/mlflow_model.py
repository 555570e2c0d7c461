"""The model that MLflow loads and serves: one row for each question, one answer for each row.

MLflow copies this file into every model that ``nq.mlflow_format.save_model`` saves and runs the
copy to load the model ("models from code"). No other module imports it.
"""

import numbers
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PythonModel, PythonModelContext

from nq.answers import Answer, Page
from nq.errors import check_argument
from nq.formats.documents import page_of
from nq.reader import Reader, load
from nq.records import Example
from nq.text import one_line, visible

COLUMNS = ("question", "page")


class AnswerModel(PythonModel):
    """A model that answers questions about pages.

    Its artifact ``model`` is a model folder, or a pair folder with two models. Its configuration
    has the ``profile``, ``None`` for the default one.
    """

    def load_context(self, context: PythonModelContext) -> None:
        """Loads the model, or both."""
        profile = (context.model_config or {}).get("profile")
        options = {} if profile is None else {"profile": profile}
        self.reader: Reader = load(context.artifacts["model"], **options)

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame
    ) -> list[dict[str, Any]]:
        """Returns the answer to each row, with the fields of ``nq ask --json`` and ``error``.

        Its columns are ``question``, ``page`` (text or HTML) and optionally ``top``. A row that
        cannot be answered has the reason in one line as its ``error``, and an answer that is empty;
        the others have ``None``.
        """
        missing = [name for name in COLUMNS if name not in model_input.columns]
        if missing and len(model_input):  # without rows MLflow may give no columns either
            columns = ", ".join(map(str, model_input.columns)) or "none"
            reason = f"no column {' and no column '.join(missing)}: found {columns}"
            raise MlflowException.invalid_parameter_value(visible(one_line(reason)))
        # neighbours mostly have the same number of runners-up, and then share batches
        groups = groupby(model_input.to_dict("records"), lambda row: repr(row.get("top")))
        return [answer for _, rows in groups for answer in self._ask(list(rows))]

    def _ask(self, rows: list[dict[Any, Any]]) -> list[dict[str, Any]]:
        """Answers rows with the same ``top``; after an error asks each half of them again."""
        top = rows[0].get("top")
        try:
            answers = self.reader.ask([_pair(row) for row in rows], **_options(top))
        except ValueError as error:
            if len(rows) == 1:
                return [_not_answered(rows[0], error)]
            half = len(rows) // 2
            return self._ask(rows[:half]) + self._ask(rows[half:])
        return [{**answer.to_dict(), "error": None} for answer in answers]


def _pair(row: Mapping[Any, Any]) -> tuple[str, Page]:
    """Returns the question and the page of a row."""
    for name in COLUMNS:
        check_argument(isinstance(row[name], str), name, row[name], "a text")
    return row["question"], page_of(row["page"], "the page")


def _options(top: Any) -> dict[str, int]:
    """Returns the number of runners-up as an option; a table has NaN where a row gives none."""
    if top is None or top != top:  # noqa: PLR0124 - only NaN differs from itself
        return {}
    if not isinstance(top, numbers.Real) or isinstance(top, bool) or top < 0 or top // 1 != top:
        raise ValueError(f"top is {top!r:.80}: expected a whole number from 0 on")
    return {"top": int(float(top))}


def _not_answered(row: Mapping[Any, Any], error: ValueError) -> dict[str, Any]:
    """Returns an empty answer to a row, with the error in one line."""
    question = row["question"] if isinstance(row["question"], str) else ""
    page = Page(Example(0, question, (), (), ()), ())
    return {**Answer(question, page).to_dict(), "error": visible(one_line(str(error)))}


mlflow.models.set_model(AnswerModel())
