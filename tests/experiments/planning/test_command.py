"""The command: what the documentation shows of it, and its conclusion."""

import re
import shlex
from dataclasses import replace

import pytest

from experiments.planning import __main__ as command
from experiments.planning import devices, models, strategies
from experiments.planning.__main__ import main
from experiments.planning.costs import Workload
from experiments.planning.devices import Group
from nq.model.tensors import count_weights

SESSION = re.compile(
    r"^\$ python -m experiments\.planning (.*?[^\\])\n(.*?)^```", re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("number", [0, 1])
def test_the_documentation_shows_what_the_command_prints(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    page = devices.KNOWN.with_name("README.md").read_text("utf-8")
    sessions = SESSION.findall(page)
    assert len(sessions) == 2
    command, shown = sessions[number]
    assert main(shlex.split(command.replace("\\\n", ""))) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("batch", "memory_gb", "expected"),
    [
        (64, 16, "Data parallel on 8 x V100 is the fastest: split only a model that does not fit"),
        (1, 16, "is the fastest for batches of 1 window, although the model fits on one device"),
        (64, 2, "is the fastest of what fits: no device holds the whole model."),
        (64, 1, "The model fits nowhere: add devices or memory, or choose a smaller model"),
    ],
)
def test_the_conclusion_depends_on_what_fits(batch: int, memory_gb: int, expected: str) -> None:
    device = replace(devices.load(devices.KNOWN)["v100"], memory_gb=memory_gb)
    work = Workload(models.SHAPES["bert-large"], batch, 512)
    plans = strategies.plans(work, Group(device, 8, device))
    assert expected in command.conclusion(work, plans)
    text = command.table("bert-large", work, plans)
    assert text.endswith(f"\n{command.conclusion(work, plans)}\n{command.PREDICTED}")


@pytest.mark.parametrize(
    ("name", "millions"), [("bert-base", 109), ("bert-large", 335), ("rembert", 574)]
)
def test_shapes_have_the_weights_of_their_publications(name: str, millions: int) -> None:
    assert count_weights(models.SHAPES[name]) / 1e6 == pytest.approx(millions, rel=0.01)
