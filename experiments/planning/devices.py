"""Devices by name, and from a TOML file of the user's own."""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, replace
from functools import cached_property
from pathlib import Path

from nq.config import Settings, option
from nq.errors import Error, check_argument

VALUE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
"""Compute types, with the bytes of a value."""
HERE = "here"
KNOWN = Path(__file__).with_name("devices.toml")
MAX_DEVICES = 64
ENGINE_GB = 1.0
"""What TensorFlow with the libraries of a GPU, or a process of nq on a CPU, takes at least."""


@dataclass(frozen=True)
class TypeTable(Settings):
    """Numbers for the compute types; 0 for a type that the device does not compute in."""

    float32: float = option(0.0, within="[0, 1e6]")
    bfloat16: float = option(0.0, within="[0, 1e6]")
    float16: float = option(0.0, within="[0, 1e6]")
    int8: float = option(0.0, within="[0, 1e6]")


@dataclass(frozen=True)
class Device(Settings):
    """One device, as a table of a file describes it; ``README.md`` has the meaning of each value.

    ``count`` is how many there are, unless ``NAME:COUNT`` says otherwise.
    """

    tflops: TypeTable
    sustained: TypeTable
    memory_gb: float = option(MISSING, within="[0.01, 1e5]")
    memory_gb_per_s: float = option(MISSING, within="[0.01, 1e6]")
    link_gb_per_s: float = option(MISSING, within="[1e-6, 1e5]")
    link_latency_us: float = option(MISSING, within="[0, 1e7]")
    engine_gb: float = option(ENGINE_GB, within="[0, 1e3]")
    price_per_hour: float = option(0.0, within="[0, 1e5]")
    count: int = option(1, within=f"[1, {MAX_DEVICES}]")
    name: str = ""
    source: str = ""

    @cached_property
    def flop_per_s(self) -> Mapping[str, float]:
        """Operations per second that it sustains in an encoder, by compute type."""
        peaks = self.tflops.to_dict()
        shares = self.sustained.to_dict()
        speeds = {kind: 1e12 * peaks[kind] * shares[kind] for kind in VALUE_BYTES}
        return {kind: speed for kind, speed in speeds.items() if speed}


@dataclass(frozen=True)
class Group:
    """Equal devices that may share a model.

    ``whole`` is the device for a model that is not split; for parts of one machine it is the whole
    machine.
    """

    device: Device
    count: int
    whole: Device

    @property
    def name(self) -> str:
        """The group in words, such as "8 x V100"."""
        return f"{self.count} x {self.device.name}"


def counted(text: str) -> tuple[str, int | None]:
    """Returns the name and the count of ``NAME:COUNT``; the count is ``None`` if there is none.

    >>> counted("v100:8"), counted("rack.toml")
    (('v100', 8), ('rack.toml', None))
    """
    name, _, count = text.rpartition(":")
    if not (name and count.isdecimal()):
        return text, None
    is_possible = 1 <= int(count) <= MAX_DEVICES
    check_argument(is_possible, f"the count of {name}", int(count), f"1 to {MAX_DEVICES}")
    return name, int(count)


def find(name: str, count: int | None = None) -> list[Group]:
    """Returns the devices of ``KNOWN`` with a name, or those of a file, ``count`` of each."""
    known = load(KNOWN)
    if name in known:
        devices = [known[name]]
    elif Path(name).is_file():
        devices = [*load(Path(name)).values()]
    else:
        names = ", ".join([*known, HERE])
        raise Error(f"no device {name!r:.80}: expected {names} or a TOML file")
    return [Group(device, count or device.count, device) for device in devices]


def load(path: Path) -> dict[str, Device]:
    """Returns the devices of a TOML file, by the names of their tables."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        check_argument(bool(tables), "the file", tables, "a table [NAME] for each device")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    devices = {}
    for name, table in tables.items():
        try:
            device = Device.from_dict(table)
        except (TypeError, ValueError) as error:  # a TypeError says which values are missing
            raise ValueError(f"{path}: [{name}] {error}") from error
        devices[name] = replace(device, name=device.name or name)
    return devices
