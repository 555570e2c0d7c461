"""Fetches Flink from PyPI, and builds Beam's Flink job server from its libraries in Maven Central.

The Flink of ``apache-flink-libraries`` has no scripts, so that ``programs`` starts its classes.
Beam publishes a job server as one jar too, but not every copy of Maven Central holds it: Maven
builds the same jar from Beam's library ``beam-runners-flink``.
"""

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from experiments import command
from nq import storage
from nq.errors import Error
from nq.storage import exclusive_lock

HERE = Path(__file__).parent
FLINK, BEAM = "1.19.3", "2.62.0"
"""Versions of Flink and of Beam's job server; workers have the Beam that Python has."""
REQUIREMENTS = HERE / "requirements.txt"
POM = HERE / "pom.xml"
PROGRAMS = ("java", "mvn")
LIBRARIES = ("flink-dist-", "log4j-")
LOCK = ".lock"


class Installation(NamedTuple):
    """What a cluster runs: a folder of the jars of Flink, and the jar of Beam's job server."""

    libraries: Path
    job_server: Path


def cache_folder() -> Path:
    """Returns the folder of what was installed, one for each pair of versions."""
    return storage.cache_folder() / f"flink-{FLINK}-beam-{BEAM}"


def missing_programs() -> list[str]:
    """Returns the programs that a cluster needs and that are not on the ``PATH``."""
    return [name for name in PROGRAMS if not shutil.which(name)]


def install() -> Installation:
    """Returns an installation; what is missing of it is fetched first (about 400 MB).

    Raises:
        Error: Java or Maven is missing, or a download failed; names the last line of its output.
    """
    if missing := missing_programs():
        raise Error(
            f"{' and '.join(missing)} not found: install a Java run-time environment (11 or 17) "
            "and Maven, such as the packages openjdk-17-jre-headless and maven"
        )
    folder = cache_folder()
    made = Installation(folder / "lib", folder / "job-server.jar")
    with exclusive_lock(folder / LOCK):
        for path, make in ((made.libraries, _fetch_flink), (made.job_server, _build_job_server)):
            if not path.exists():
                with tempfile.TemporaryDirectory(dir=folder) as temporary:
                    make(Path(temporary)).rename(path)
    return made


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


def _build_job_server(folder: Path) -> Path:
    """Lets Maven pack the job server; returns its jar."""
    shutil.copy(POM, folder)
    series = FLINK.rpartition(".")[0]
    versions = [f"-Dbeam.version={BEAM}", f"-Dflink.series={series}"]
    command.run_program(["mvn", "--batch-mode", "--quiet", "-f", str(folder), *versions, "package"])
    return folder / "target" / "job-server.jar"
