"""The machine that a study was measured on."""

import platform
from pathlib import Path

from experiments import Values
from nq import extras, processor

FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16")
PACKAGES = (
    *("nq-pipeline", "tensorflow", "tensorflow-cpu", "keras", "numpy"),
    "openvino",
    "onnxruntime",
    "torch",
    "transformers",
    "jax",
)
SYSTEM = Path("/sys/devices/system")


def describe() -> Values:
    """Returns processor, its flags for matrix products, topology and versions, as JSON values."""
    known = sorted(processor.flags())
    return {
        "processor": processor.name(),
        "flags": [flag for flag in known if flag.startswith("amx_") or flag in FLAGS],
        "topology": topology(),
        "python": platform.python_version(),
        "versions": extras.versions(PACKAGES),
    }


def topology() -> dict[str, int]:
    """Returns how many cores this process may use, and threads, sockets and NUMA nodes of them."""
    cpus = processor.cores()
    places = [_place(cpu) for cpu in cpus]
    return {
        "threads": len(cpus),
        "cores": len(set(places)),
        "sockets": len({socket for socket, _ in places}),
        "numa_nodes": len(list((SYSTEM / "node").glob("node[0-9]*"))) or 1,
    }


def _place(cpu: int) -> tuple[str, str]:
    """Returns socket and core of a hardware thread."""
    folder = SYSTEM / f"cpu/cpu{cpu}/topology"
    try:
        return (
            (folder / "physical_package_id").read_text(encoding="ascii").strip(),
            (folder / "core_id").read_text(encoding="ascii").strip(),
        )
    except OSError:  # the system does not say, as in some containers
        return "0", str(cpu)


def in_words(machine: Values) -> str:
    """Returns the description in one line."""
    places = machine["topology"]
    counts = f"{places['cores']} cores ({places['threads']} threads) of {machine['processor']}"
    return ", ".join([counts, *machine["flags"]])
