"""Devices by name, and from a TOML file of the user's own."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from nq.errors import Error
from nq.planning.collectives import Link
from nq.planning.records import MAX_DEVICES, VALUE_BYTES, Device, Group
from nq.text import did_you_mean, truncate

HERE = "here"
COUNT = re.compile(r"(.+):(-?[0-9]{1,9})", re.DOTALL)
MAX_FILE_BYTES = 1 << 20
ENGINE_GB = 1.0
"""What TensorFlow with the libraries of a GPU, or a process of nq on a CPU, takes at least."""
RANGES: Mapping[str, tuple[float, float]] = {
    "memory_gb": (0.01, 1e5),
    "memory_gb_per_s": (0.01, 1e6),
    "link_gb_per_s": (1e-6, 1e5),
    "link_latency_us": (0.0, 1e7),
    "engine_gb": (0.0, 1e3),
    "price_per_hour": (0.0, 1e5),
    "count": (1, MAX_DEVICES),
}
"""Numbers of a device, each with the least and the largest value that is believed."""
DEFAULTS = {"engine_gb": ENGINE_GB, "price_per_hour": None, "count": 1}
TYPE_RANGES: Mapping[str, tuple[float, float]] = {"tflops": (1e-6, 1e6), "sustained": (1e-4, 1.0)}
"""Tables of a device with a number for each compute type."""
TEXTS = ("name", "source")


def known() -> dict[str, Group]:
    """Returns the devices that nq knows, by name."""
    text = resources.files("nq.planning").joinpath("devices.toml").read_text(encoding="utf-8")
    return {name: decode(name, values) for name, values in tomllib.loads(text).items()}


def find(text: str) -> list[Group]:
    """Returns the devices that a name or a file describes.

    Args:
        text: ``NAME``, ``FILE``, either with ``:COUNT``.

    Raises:
        Error: there is no such device or file.
        OSError: the file cannot be read.
        ValueError: the file or the count is wrong; the text says what was expected.
    """
    name, count = counted(text)
    devices = known()
    if name in devices:
        groups = [devices[name]]
    elif os.path.isfile(name):  # noqa: PTH113 - false for a name that no file can have
        groups = load(Path(name))
    else:
        like, names = did_you_mean(name, devices), ", ".join(devices)
        raise Error(
            f"no device {truncate(name, 80)!r}{like}: expected {names}, {HERE} or a TOML file, "
            "each with :COUNT for several"
        )
    return [replace(group, count=count or group.count) for group in groups]


def counted(text: str) -> tuple[str, int | None]:
    """Returns the name and the count of ``NAME:COUNT``; the count is ``None`` if there is none.

    Raises:
        ValueError: the count is out of range.

    >>> counted("v100:8"), counted("rack.toml")
    (('v100', 8), ('rack.toml', None))
    """
    match = COUNT.fullmatch(text)
    if match is None:
        return text, None
    name, count = match[1], int(match[2])
    if not 1 <= count <= MAX_DEVICES:
        raise ValueError(f"{name} has the count {count}: expected 1 to {MAX_DEVICES}")
    return name, count


def load(path: Path) -> list[Group]:
    """Returns the devices of a TOML file: one group for each table.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no TOML, or a device lacks a number or has an absurd one.
    """
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise ValueError(f"{path} has {size} bytes: expected TOML of at most {MAX_FILE_BYTES}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is not TOML that can be read: nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    if not values:
        raise ValueError(f"{path} has no devices: expected a table [NAME] for each")
    try:
        return [decode(name, device) for name, device in values.items()]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def decode(name: str, values: Any) -> Group:
    """Returns the devices that a table of a file describes.

    Args:
        name: of the table.
        values: its content.

    Raises:
        ValueError: a key is missing or unknown, or a value is out of range.
    """
    where = f"[{name:.80}]"
    if not isinstance(values, dict):
        raise ValueError(f"{name:.80} is {values!r:.80}: expected a table {where} for each device")
    keys = (*RANGES, *TYPE_RANGES, *TEXTS)
    _check_known(values, keys, where)
    numbers = {**DEFAULTS, **{k: v for k, v in values.items() if k in RANGES}}
    required = [key for key in (*RANGES, *TYPE_RANGES) if key not in DEFAULTS]
    missing = [key for key in required if key not in values]
    if missing:
        raise ValueError(f"{where} has no {missing[0]}: expected {', '.join(required)}")
    for key, value in numbers.items():
        if value is not None:
            _check_number(value, f"{where} {key}", *RANGES[key], whole=key == "count")
    for key in TEXTS:
        if not isinstance(values.get(key, ""), str):
            raise ValueError(f"{where} {key} is {values[key]!r:.80}: expected text")
    tables = {key: _table(values[key], f"{where} {key}", key) for key in TYPE_RANGES}
    tflops, sustained = tables["tflops"], tables["sustained"]
    if tflops.keys() != sustained.keys():
        raise ValueError(
            f"{where} has tflops for {', '.join(tflops)} and sustained for "
            f"{', '.join(sustained)}: expected the same types"
        )
    device = Device(
        name=values.get("name", name)[:40],
        flop_per_s={kind: 1e12 * tflops[kind] * sustained[kind] for kind in tflops},
        memory_bytes=1e9 * numbers["memory_gb"],
        memory_bytes_per_s=1e9 * numbers["memory_gb_per_s"],
        link=Link(1e9 * numbers["link_gb_per_s"], 1e-6 * numbers["link_latency_us"]),
        engine_bytes=1e9 * numbers["engine_gb"],
        price_per_hour=numbers["price_per_hour"],
    )
    return Group(device, numbers["count"], device)


def _table(values: Any, where: str, key: str) -> dict[str, float]:
    """Returns the numbers of a table by compute type."""
    if not isinstance(values, dict) or not values:
        kinds = ", ".join(VALUE_BYTES)
        raise ValueError(f"{where} is {values!r:.80}: expected numbers for {kinds}")
    _check_known(values, VALUE_BYTES, where)
    for kind, value in values.items():
        _check_number(value, f"{where} of {kind}", *TYPE_RANGES[key])
    return values


def _check_known(values: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    for key in values:
        if key not in keys:
            raise ValueError(
                f"{where} has the unknown key {truncate(key, 80)!r}{did_you_mean(key, keys)}: "
                f"known are {', '.join(keys)}"
            )


def _check_number(value: Any, what: str, least: float, most: float, whole: bool = False) -> None:
    kinds = int if whole else (int, float)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if not (is_number and least <= value <= most):
        noun = "a whole number" if whole else "a number"
        raise ValueError(f"{what} is {value!r:.80}: expected {noun} from {least:g} to {most:g}")
