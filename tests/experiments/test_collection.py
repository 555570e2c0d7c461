"""The recall of the blocks that are read of many documents, on pages of a few words."""

import json
from pathlib import Path

import pytest

from experiments.collection import main


def test_the_document_of_a_question_lifts_its_blocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = ["the moon lake\n\nit is deep"] + [f"how deep is it, deep {n}" for n in range(40)]
    answers = [{"text": "deep", "answer_start": pages[0].index("deep")}]
    record = {"id": 2, "question": "how deep is the moon lake", "answers": answers}
    others = [{"id": 2 * n + 4, "question": "x", "context": page} for n, page in enumerate(pages)]
    data = tmp_path / "data.jsonl"
    lines = [{**record, "context": pages[0]}, *others[1:]]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["--data", str(data), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["questions"] == 1
    assert (result["bm25 at 8"], result["bm25 with document at 8"]) == (0.0, 1.0)
    assert main(["--data", str(data), "--half", "odd"]) == 1
    assert "no question has a gold block" in capsys.readouterr().err
