"""Devices by name and from files; absurd values are an error in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.planning import devices

GOOD = {
    "memory_gb": "16",
    "memory_gb_per_s": "900.0",
    "link_gb_per_s": "150",
    "link_latency_us": "10",
    "tflops": "{float32 = 10, float16 = 100}",
    "sustained": "{float32 = 0.5, float16 = 0.25}",
}


def written(folder: Path, values: dict[str, str]) -> Path:
    path = folder / "devices.toml"
    lines = ["[gpu]", *(f"{key} = {value}" for key, value in values.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD | {"name": '"Card"', "count": "4", "price_per_hour": "0.5"})
    (group,) = devices.find(str(path))
    device = group.device
    assert (group.name, group.whole) == ("4 x Card", device)
    assert device.flop_per_s == {"float32": 5e12, "float16": 2.5e13}
    assert (device.memory_gb, device.engine_gb) == (16, devices.ENGINE_GB)
    assert devices.find(str(path), 2)[0].count == 2


def test_known_devices_have_sources_and_are_sound() -> None:
    known = devices.load(devices.KNOWN)
    assert list(known) == ["v100", "a100", "h100", "xeon"]
    for device in known.values():
        assert device.source and device.count == 1
        speeds = device.flop_per_s
        assert all(speeds[kind] >= speeds["float32"] * 0.9 for kind in speeds)
        assert max(device.sustained.to_dict().values()) < 1
    v100 = known["v100"]
    assert v100.flop_per_s["float32"] == pytest.approx(41.32 * 246.4e9, rel=0.02)
    assert v100.flop_per_s["float16"] == pytest.approx(148.57 * 246.4e9, rel=0.02)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("memory_gb", "0", "[gpu] memory_gb must be in [0.01, 1e5], got 0"),
        ("link_gb_per_s", "nan", "[gpu] link_gb_per_s is nan"),
        ("count", "65", "[gpu] count must be in [1, 64], got 65"),
        ("tflops", "10", "[gpu] found 10 for TypeTable: expected an object"),
        ("tflops", "{fp32 = 1}", "[gpu] unknown settings ['fp32'] for TypeTable"),
        ("memry_gb", "16", "[gpu] unknown settings ['memry_gb'] for Device"),
    ],
)
def test_absurd_values_are_refused(key: str, value: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, GOOD | {key: value})
    with pytest.raises(ValueError) as error:
        devices.load(path)
    assert str(error.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a table [NAME] for each device"),
        (b"\xff\xfe", "invalid start byte"),
        (b"memory_gb = 16", "[memory_gb] found 16 for Device: expected an object"),
        (b"[gpu]\ntflops = {}\nsustained = {}", "missing 4 required positional arguments"),
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
