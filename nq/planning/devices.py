"""Devices by name, and from a TOML file of the user's own."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from nq.config import Converted, Settings, option
from nq.errors import Error, check_argument
from nq.text import did_you_mean, truncate

VALUE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
"""Compute types, with the bytes of a value."""
HERE = "here"
MAX_DEVICES = 64
MAX_FILE_BYTES = 1 << 20
ENGINE_GB = 1.0
"""What TensorFlow with the libraries of a GPU, or a process of nq on a CPU, takes at least."""


def _by_type(name: str, most: float, values: Any) -> Mapping[str, float]:
    """Returns the numbers of a device for each compute type, which must be plausible."""
    known = isinstance(values, dict) and values and values.keys() <= VALUE_BYTES.keys()
    check_argument(bool(known), name, values, f"numbers for {', '.join(VALUE_BYTES)}")
    for kind, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_plausible = is_number and 0 < value <= most
        check_argument(is_plausible, f"{name} of {kind}", value, f"a number up to {most:g}")
    return dict(values)


@dataclass(frozen=True)
class DeviceTable(Settings):
    """A table of a file of devices; ``docs/planning.md`` describes it."""

    memory_gb: float = option(MISSING, within="[0.01, 1e5]")
    memory_gb_per_s: float = option(MISSING, within="[0.01, 1e6]")
    link_gb_per_s: float = option(MISSING, within="[1e-6, 1e5]")
    link_latency_us: float = option(MISSING, within="[0, 1e7]")
    tflops: Converted[Any, Mapping[str, float]] = Converted(partial(_by_type, "tflops", 1e6))
    sustained: Converted[Any, Mapping[str, float]] = Converted(partial(_by_type, "sustained", 1.0))
    engine_gb: float = option(ENGINE_GB, within="[0, 1e3]")
    price_per_hour: float = option(0.0, within="[0, 1e5]")
    count: int = option(1, within=f"[1, {MAX_DEVICES}]")
    name: str = ""
    source: str = ""


@dataclass(frozen=True)
class Link:
    """A link from one device to the next: bandwidth of one direction, time to the first byte."""

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True)
class Device:
    """One device.

    Args:
        flop_per_s: operations per second that it sustains in an encoder, by compute type.
        memory_bytes_per_s: speed of reading its memory.
        link: link to the next device.
        engine_bytes: memory that TensorFlow, or another engine, takes itself.
        price_per_hour: in dollars; ``None`` if unknown.
    """

    name: str
    flop_per_s: Mapping[str, float]
    memory_bytes: float
    memory_bytes_per_s: float
    link: Link
    engine_bytes: float
    price_per_hour: float | None = None

    def divided(self, parts: int) -> Device:
        """Returns one of equal parts of the device, such as a core; each runs its own engine."""
        price = self.price_per_hour
        return replace(
            self,
            flop_per_s={name: value / parts for name, value in self.flop_per_s.items()},
            memory_bytes=self.memory_bytes / parts,
            memory_bytes_per_s=self.memory_bytes_per_s / parts,
            price_per_hour=price and price / parts,
        )


@dataclass(frozen=True)
class Group:
    """Equal devices that may share a model.

    ``whole`` is the device for a model that is not split; for parts of one machine it is the whole
    machine, and each part has ``threads`` threads.
    """

    device: Device
    count: int
    whole: Device
    threads: int | None = None

    @property
    def name(self) -> str:
        """The group in words, such as "8 x v100"."""
        return f"{self.count} x {self.device.name}"


def known() -> dict[str, Group]:
    """Returns the devices of ``devices.toml``, by name."""
    text = resources.files("nq.planning").joinpath("devices.toml").read_text(encoding="utf-8")
    return {name: decode(name, values) for name, values in tomllib.loads(text).items()}


def find(text: str) -> list[Group]:
    """Returns the devices of ``NAME`` or ``FILE``, either with ``:COUNT``."""
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

    >>> counted("v100:8"), counted("rack.toml")
    (('v100', 8), ('rack.toml', None))
    """
    match = re.fullmatch(r"(.+):(-?[0-9]{1,9})", text, re.DOTALL)
    if match is None:
        return text, None
    name, count = match[1], int(match[2])
    if not 1 <= count <= MAX_DEVICES:
        raise ValueError(f"{name} has the count {count}: expected 1 to {MAX_DEVICES}")
    return name, count


def load(path: Path) -> list[Group]:
    """Returns the devices of a TOML file: one group for each table."""
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
    """Returns the devices that the table ``[name]`` of a file describes."""
    where = f"[{name:.80}]"
    if not isinstance(values, dict):
        raise ValueError(f"{name:.80} is {values!r:.80}: expected a table {where} for each device")
    required = [f.name for f in fields(DeviceTable) if f.default is MISSING]
    if missing := [key for key in required if key not in values]:
        raise ValueError(f"{where} has no {', '.join(missing)}: give each of these numbers")
    try:
        table = DeviceTable.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error
    tflops, sustained = table.tflops, table.sustained
    if tflops.keys() != sustained.keys():
        raise ValueError(
            f"{where} has tflops for {', '.join(tflops)} and sustained for "
            f"{', '.join(sustained)}: expected the same types"
        )
    device = Device(
        name=(table.name or name)[:40],
        flop_per_s={kind: 1e12 * tflops[kind] * sustained[kind] for kind in tflops},
        memory_bytes=1e9 * table.memory_gb,
        memory_bytes_per_s=1e9 * table.memory_gb_per_s,
        link=Link(1e9 * table.link_gb_per_s, 1e-6 * table.link_latency_us),
        engine_bytes=1e9 * table.engine_gb,
        price_per_hour=table.price_per_hour or None,
    )
    return Group(device, table.count, device)
