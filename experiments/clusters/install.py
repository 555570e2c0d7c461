"""Fetches what a cluster runs: Flink from PyPI; Spark and Beam's job servers from Maven Central.

The Flink of ``apache-flink-libraries`` has no scripts, so that ``programs`` starts its classes.
Beam publishes each job server as one jar too, but not every copy of Maven Central holds it: Maven
takes Beam's libraries ``beam-runners-flink`` and ``beam-runners-spark``, with what they need. It
packs the job server for Flink into one jar, and puts all jars of the one for Spark in a folder.
"""

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments import command
from nq import storage
from nq.errors import Error
from nq.storage import exclusive_lock

HERE = Path(__file__).parent
FLINK, SPARK, BEAM = "1.19.3", "3.5.9", "2.62.0"
"""Versions of Flink, Spark and Beam's job servers; workers have the Beam that Python has."""
REQUIREMENTS = HERE / "requirements.txt"
PROGRAMS = ("java", "mvn")
LIBRARIES = ("flink-dist-", "log4j-")
LOCK = ".lock"


class Installation(NamedTuple):
    """What a Flink cluster runs: a folder of the jars of Flink, and the jar of the job server."""

    libraries: Path
    job_server: Path


def cache_folder(system: str) -> Path:
    """Returns the folder of what was installed, one for each pair of versions."""
    return storage.cache_folder() / f"{system}-beam-{BEAM}"


def missing_programs() -> list[str]:
    """Returns the programs that a cluster needs and that are not on the ``PATH``."""
    return [name for name in PROGRAMS if not shutil.which(name)]


def install_flink() -> Installation:
    """Returns an installation; what is missing of it is fetched first (about 400 MB).

    Raises:
        Error: Java or Maven is missing, or a download failed; names the last line of its output.
    """
    folder = cache_folder(f"flink-{FLINK}")
    series = f"-Dflink.series={FLINK.rpartition('.')[0]}"
    job_server = _once(
        folder / "job-server.jar", lambda path: _maven("flink", path, series) / "job-server.jar"
    )
    return Installation(_once(folder / "lib", _fetch_flink), job_server)


def install_spark() -> Path:
    """Returns the folder of the jars of Spark and its job server, as ``install_flink`` (300 MB)."""
    version = f"-Dspark.version={SPARK}"
    folder = cache_folder(f"spark-{SPARK}")
    return _once(folder / "lib", lambda path: _maven("spark", path, version) / "lib")


def _once(path: Path, make: Callable[[Path], Path]) -> Path:
    """Returns a file or folder, which ``make`` makes in an empty folder unless it is there."""
    if missing := missing_programs():
        raise Error(
            f"{' and '.join(missing)} not found: install a Java run-time environment (11 or 17) "
            "and Maven, such as the packages openjdk-17-jre-headless and maven"
        )
    with exclusive_lock(path.parent / LOCK):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
                make(Path(temporary)).rename(path)
    return path


def _fetch_flink(folder: Path) -> Path:
    """Downloads Flink, checked by its digest, and returns a folder of the jars that it needs."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    download = ["download", "--no-deps", "--require-hashes", "--requirement", str(REQUIREMENTS)]
    command.run_program([*pip, *download, "--dest", str(folder)])
    (archive,) = folder.glob("*.tar.gz")
    libraries = folder / "lib"
    libraries.mkdir()
    with tarfile.open(archive) as files:
        for member in files:
            name = Path(member.name).name
            if not name.startswith(LIBRARIES) or not name.endswith(".jar"):
                continue
            if content := files.extractfile(member):
                with content, open(libraries / name, "wb") as jar:
                    shutil.copyfileobj(content, jar)
    return libraries


def _maven(system: str, folder: Path, version: str) -> Path:
    """Lets Maven package the job server for Flink or Spark; returns the folder of the result."""
    shutil.copy(HERE / f"{system}.pom.xml", folder / "pom.xml")
    maven = ["mvn", "--batch-mode", "--quiet", "-f", str(folder), f"-Dbeam.version={BEAM}"]
    command.run_program([*maven, version, "package"])
    return folder / "target"
