"""The model that MLflow loads and serves: one row for each question, one answer for each row.

MLflow copies this file into every model that ``nq.mlflow_format.save_model`` saves and runs the
copy to load the model ("models from code"). No other module imports it.
"""

from __future__ import annotations

import math
import numbers
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from nq.answers import Page
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
        """Returns the answer to each row, with the fields of ``nq ask --json`` and ``error``.

        Its columns are ``question``, ``page`` (text or HTML) and optionally ``top``. A row that
        cannot be answered has the reason in one line as its ``error``, and an answer that is empty;
        the others have ``None``.
        """
        missing = [name for name in COLUMNS if name not in model_input.columns]
        if missing:
            columns = ", ".join(map(str, model_input.columns)) or "none"
            reason = f"no column {' and no column '.join(missing)}: found {columns}"
            raise MlflowException.invalid_parameter_value(_one_line(reason))
        rows = model_input.to_dict("records")
        answers, groups = list[Any](map(_checked, rows)), defaultdict[int | None, list[int]](list)
        for i, one in enumerate(answers):
            if isinstance(one, tuple):
                groups[one[2]].append(i)
        for top, chosen in groups.items():  # mostly one, so that rows share batches
            options = {} if top is None else {"top": top}
            given = self._ask([answers[i][:2] for i in chosen], options)
            for i, answer in zip(chosen, given, strict=True):
                answers[i] = answer
        pairs = zip(rows, answers, strict=True)
        return [one if isinstance(one, dict) else _not_answered(row, one) for row, one in pairs]

    def _ask(
        self, pairs: list[tuple[str, Page]], options: Mapping[str, int]
    ) -> list[dict[str, Any] | ValueError]:
        """Returns the answers to some pairs, or what is wrong with one."""
        try:
            answers = self.reader.ask(pairs, **options)
            return [{**answer.to_dict(), "error": None} for answer in answers]
        except ValueError as error:
            if len(pairs) == 1:
                return [error]
            return [answer for pair in pairs for answer in self._ask([pair], options)]


def _checked(row: Mapping[Any, Any]) -> tuple[str, Page, int | None] | ValueError:
    """Returns question, page and number of runners-up of a row, or what is wrong with it.

    A table has NaN where a row gives no number.
    """
    from nq.errors import check_argument
    from nq.formats.documents import page_of

    top = row.get("top")
    top = None if isinstance(top, float) and math.isnan(top) else top
    is_number = isinstance(top, numbers.Real) and not isinstance(top, bool)
    is_top = top is None or (is_number and top >= 0 and top // 1 == top)
    try:
        for name in COLUMNS:
            check_argument(isinstance(row[name], str), name, row[name], "a text")
        check_argument(is_top, "top", top, "a whole number from 0 on")
        return row["question"], page_of(row["page"], "the page"), top if top is None else int(top)
    except ValueError as error:
        return error


def _not_answered(row: Mapping[Any, Any], error: ValueError) -> dict[str, Any]:
    """Returns an empty answer to a row, with the error in one line."""
    from nq.answers import Answer, Page
    from nq.records import Example

    question = row["question"] if isinstance(row["question"], str) else ""
    page = Page(Example(0, question, (), (), ()), ())
    return {**Answer(question, page).to_dict(), "error": _one_line(str(error))}


def _one_line(text: str) -> str:
    from nq.text import visible

    return visible(" ".join(text.split()))


mlflow.models.set_model(AnswerModel())
