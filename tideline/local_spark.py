"""Settings of a Spark that is one process on this machine: for jobs, and for Airflow to start them.

Settings that correct results need are not here: every job sets those itself, wherever it runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tideline.cache import cache_location

LOCAL: Mapping[str, str] = {
    # The driver is the only process: nothing else may connect to it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # The default lists more than 32 parts in a task for each: measured, 2.7 CPU seconds against 2.3
    # for a small merge of 60.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}

SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=400m"
)
"""Java options for a session of a few merges: measured, 35 CPU seconds against 59 for the first
five. A longer session is faster with the full compiler. With the first compiler alone Java keeps 48
MB for compiled code, which merges of nine tables fill; Spark then dies. Java collects all of its
memory each time that its classes outgrow the size that it assumes: Spark's are 200 MB."""

LONG_LIVED = (
    "-XX:+UseParallelGC -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=400m"
    " -XX:+ExitOnOutOfMemoryError"
)
"""Java options for a session of thousands of merges. One that runs out of memory ends, and is
replaced, instead of failing merges one by one."""

QUICK_LAUNCH = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for ``SPARK_LAUNCHER_OPTS``: spark-submit starts a Java just to build a command line."""

_QUIET = "-Xlog:cds*=off -Xlog:class+path=off"
"""The option that silences Java about an archive that it does not use: it continues without it."""


def short_lived() -> str:
    """Return `SHORT_LIVED`, and the archive of Spark's classes where one was made for this machine:
    Java maps it instead of reading, parsing and checking 16,000 classes of jars. Java ignores one
    that does not fit; a missing one must not be named, or Java leaves out its own as well."""
    path = class_archive()
    return SHORT_LIVED if path is None else f"{SHORT_LIVED} {archive_option(path)}"


def archive_option(path: Path, name: str = "SharedArchiveFile") -> str:
    """Format Java's option ``name`` with the archive at ``path``, as Spark takes options: shell
    words."""
    return f'{_QUIET} "-XX:{name}={path}"'


def class_archive() -> Path | None:
    """Return the archive for the Java and the Spark of jobs that are started here, if there is one.

    Its name ends with its size: Java crashes on a truncated one.
    """
    location = archive_location()
    if location is None:
        return None
    try:
        for path in location.folder.glob(f"{location.state}-*.jsa"):
            if path == location.named(path.stat().st_size) and os.access(path, os.R_OK):
                return path
    except OSError:  # removed in the meantime, or not readable
        return None
    return None


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """The location of an archive. The folder stands for the Spark, ``state`` for what is installed
    there now, and for the Java: a new installation gets a new archive. Other changes Java detects
    itself, by every jar's time."""

    folder: Path
    state: str

    def named(self, size: int) -> Path:
        return self.folder / f"{self.state}-{size}.jsa"


def archive_location() -> ArchiveLocation | None:
    """Return the archive's place; None where Java or Spark is not found, or options cannot hold the
    path."""
    jars, java = _spark_jars(), _java_library()
    if jars is None or java is None:
        return None
    try:
        # Whole seconds: layers of images keep no more.
        state = [f"{one} {one.stat().st_size} {int(one.stat().st_mtime)}" for one in (java, jars)]
        folder = cache_location() / "classes" / _digest(str(jars))
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return None
    return None if set('"\\') & set(str(folder)) else ArchiveLocation(folder, _digest(*state))


def spark_home() -> Path | None:
    """Return the home of the Spark that ``spark-submit`` runs here."""
    if given := os.environ.get("SPARK_HOME"):
        return Path(given)
    spec = find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _spark_jars() -> Path | None:
    home = spark_home()
    return None if home is None or not (home / "jars").is_dir() else (home / "jars").resolve()


def _java_library() -> Path | None:
    """Return the file of Java itself, which changes with each version."""
    home, program = os.environ.get("JAVA_HOME"), shutil.which("java")
    if not home and program is None:
        return None
    found = Path(home) if home else Path(str(program)).resolve().parent.parent
    library = found / "lib" / "server" / "libjvm.so"
    return library.resolve() if library.is_file() else None


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
