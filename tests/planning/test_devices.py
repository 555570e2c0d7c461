"""Devices by name and from files; every absurd number is an error in one line."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

import pytest

from nq.planning import devices
from nq.planning.devices import Link

GOOD = {
    "memory_gb": "16",
    "memory_gb_per_s": "900.0",
    "link_gb_per_s": "150",
    "link_latency_us": "10",
    "tflops": "{float32 = 10, float16 = 100}",
    "sustained": "{float32 = 0.5, float16 = 0.25}",
}


def written(folder: Path, values: dict[str, str], table: str = "gpu") -> Path:
    path = folder / "devices.toml"
    lines = [f"[{table}]", *(f"{key} = {value}" for key, value in values.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    more = {"name": '"Card"', "source": '"a shop"', "count": "4", "price_per_hour": "0.5"}
    (group,) = devices.find(str(written(tmp_path, GOOD | more)))
    device = group.device
    assert (device.name, group.count, group.whole, group.threads) == ("Card", 4, device, None)
    assert device.flop_per_s == {"float32": 5e12, "float16": 2.5e13}
    assert device.memory_bytes == 16e9
    assert device.memory_bytes_per_s == 9e11
    assert device.link == Link(1e9 * 150, 1e-6 * 10)
    assert device.engine_bytes == 1e9 * devices.ENGINE_GB
    assert device.price_per_hour == 0.5
    assert group.name == "4 x Card"


def test_known_devices_have_sources_and_are_sound() -> None:
    known = devices.known()
    assert list(known) == ["v100", "a100", "h100", "xeon"]
    text = resources.files("nq.planning").joinpath("devices.toml").read_text("utf-8")
    for name, values in tomllib.loads(text).items():
        assert values["source"]
        assert known[name].count == 1
        speeds = known[name].device.flop_per_s
        assert all(speeds[kind] >= speeds["float32"] * 0.9 for kind in speeds)
    v100 = known["v100"].device
    assert v100.flop_per_s["float32"] == pytest.approx(41.32 * 246.4e9, rel=0.02)
    assert v100.flop_per_s["float16"] == pytest.approx(148.57 * 246.4e9, rel=0.02)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        *(
            ("memory_gb", value, "[gpu] memory_gb ")
            for value in ("0", "nan", "inf", "true", '"16"')
        ),
        *(("count", value, "[gpu] count ") for value in ("0", "65", "2.0")),
        ("tflops", "10", "[gpu] tflops is 10: expected numbers for float32, bfloat16"),
        ("tflops", "{float32 = nan, float16 = 1}", "[gpu] tflops of float32 is nan"),
        ("tflops", "{float32 = 1}", "tflops for float32 and sustained for float32, float16"),
        ("tflops", "{fp32 = 1}", "[gpu] tflops is {'fp32': 1}: expected numbers for float32"),
        ("memry_gb", "16", "unknown settings ['memry_gb'] for DeviceTable; known are"),
        ("name", "1", "[gpu] name is 1: expected a value of type str"),
    ],
)
def test_absurd_values_are_refused(key: str, value: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, GOOD | {key: value})
    with pytest.raises(ValueError) as error:
        devices.load(path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}: [gpu]")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no devices: expected a table"),
        (b"\xff\xfe", "is not TOML: "),
        (b"memory_gb = 16", "memory_gb is 16: expected a table [memory_gb] for each device"),
        (b"[gpu]\ncount = 2", "[gpu] has no memory_gb, memory_gb_per_s"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b"#" * ((1 << 20) + 1), "expected TOML of at most 1048576"),
    ],
)
def test_what_is_no_file_of_devices_is_refused(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "devices.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:
        devices.load(path)
    assert message in str(error.value)
