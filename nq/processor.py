"""The processor of this machine: its name, instructions and cores, as Linux describes them."""

import os
import platform
import re
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
INT8_PRODUCTS = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})
"""Instructions of x86 processors that add products of 8-bit numbers in 32 bits."""


@cache
def _description() -> str:
    try:
        return CPUINFO.read_text(encoding="utf-8")
    except OSError:
        return ""


def name() -> str:
    """Returns the name of the processor's model, or that of its architecture."""
    model = re.search(r"^model name\s*:\s*(\S.*)$", _description(), re.MULTILINE)
    return model[1].strip() if model else platform.processor() or platform.machine()


def flags() -> frozenset[str]:
    """Returns the names of the processor's features, such as ``avx2``; empty if unknown."""
    listed = re.search(r"^flags\s*:(.*)$", _description(), re.MULTILINE)
    return frozenset(listed[1].split()) if listed else frozenset()


def cores() -> tuple[int, ...]:
    """Returns the numbers of the cores that this process may use, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def has_fast_bfloat16() -> bool:
    """Returns whether products in bfloat16 are faster than those in float32.

    They are with AMX and on AMD; Intel's ``avx512_bf16`` alone gains nothing.
    """
    amd = re.search(r"^vendor_id\s*:\s*AuthenticAMD", _description(), re.MULTILINE)
    return "amx_bf16" in flags() or bool(amd and "avx512_bf16" in flags())


def saturates_int8_products() -> bool:
    """Returns whether sums of two products of 8-bit numbers may exceed the 16 bits that they have.

    That is so on x86 processors, which alone have ``flags``, without ``INT8_PRODUCTS``.
    """
    known = flags()
    return bool(known) and not known & INT8_PRODUCTS
