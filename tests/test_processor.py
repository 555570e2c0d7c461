"""What is read of the description of a processor, and what follows from it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from nq import processor
from tests.folders import write

ZEN_3 = """processor\t: 0
model name\t: AMD EPYC
flags\t\t: fpu sse avx2 fma

processor\t: 1
model name\t: another
flags\t\t: fpu
"""


@pytest.fixture(autouse=True)
def described_anew() -> Iterator[None]:
    processor._description.cache_clear()
    yield
    processor._description.cache_clear()


@pytest.mark.parametrize(
    ("text", "machine", "name", "flags", "saturates"),
    [
        (ZEN_3, "x86_64", "AMD EPYC", {"fpu", "sse", "avx2", "fma"}, True),
        (ZEN_3.replace("fma", "avx_vnni"), "x86_64", "AMD EPYC", {"avx_vnni", "avx2"}, False),
        ("processor: 0\nFeatures: fp asimd\n", "aarch64", "", set(), False),
        ("", "x86_64", "", set(), False),
        (None, "x86_64", "", set(), False),
    ],
)
def test_a_processor_is_described(
    text: str | None,
    machine: str,
    name: str,
    flags: set[str],
    saturates: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(processor, "CPUINFO", path)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert processor.name() == name if name else processor.name()
    assert flags <= processor.flags() if flags else not processor.flags()
    assert processor.saturates_int8_products() == saturates


def test_gpus_are_those_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "NVIDIA H100 80GB HBM3, 550.54.15, 81559 MiB"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert processor.gpus() == []
    script = write(tmp_path / "nvidia-smi", f"#!/bin/sh\necho '{listed}'\n")
    script.chmod(0o755)
    assert processor.gpus() == [listed]
    write(script, "#!/bin/sh\necho 'no devices were found'; exit 6\n")
    assert processor.gpus() == []
