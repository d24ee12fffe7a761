"""An archive of the classes that a merge loads, which Java maps into memory when it starts.

It is made once per machine and installed Spark: a small merge runs, and Java records the classes
loaded by then. `tideline.local_spark.short_lived` passes it to each Java that starts afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tideline.cache import ORIGIN, cache_folder, sweep
from tideline.contract.errors import Unavailable
from tideline.java import java_home
from tideline.local_spark import ArchiveLocation, archive_location, class_archive, spark_home

_TIMEOUT_S = 900
_WHAT = "the archive of Spark's classes"


def archive_is_there() -> bool:
    """Return whether the archive exists, or cannot be made for this Java and Spark."""
    os.environ["JAVA_HOME"] = str(java_home())
    return archive_location() is None or class_archive() is not None


def make_archive() -> None:
    """Make the archive unless it exists.

    Several processes may do so concurrently; none sees it half done. Archives of the same Spark in
    another state, and of a Spark that is gone, are removed; a process that has mapped one keeps it.
    Raises Unavailable when it cannot be made; only the start time depends on it.
    """
    if archive_is_there():
        return
    location, home = archive_location(), spark_home()
    assert location is not None and home is not None
    try:
        sweep(location.folder.parent)
        work = Path(tempfile.mkdtemp(prefix="classes.", dir=cache_folder()))
        try:
            train(work)
            location.folder.mkdir(parents=True, exist_ok=True)
            (location.folder / ORIGIN).write_text(str(home.resolve()))
            _keep(work / "classes.jsa", location)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        for other in location.folder.glob("*.jsa"):
            if not other.name.startswith(f"{location.state}-"):
                other.unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(f"{_WHAT} could not be kept: {error.strerror}") from error


def _keep(made: Path, location: ArchiveLocation) -> None:
    """Rename a finished archive into place once all of it is durable on disk."""
    with made.open("rb") as file:
        os.fsync(file.fileno())
    made.replace(location.named(made.stat().st_size))


def train(work: Path) -> None:
    """Have a separate process make ``classes.jsa`` in ``work``: Java writes it when it ends."""
    command = [sys.executable, "-m", "tideline_spark.class_training", str(work)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{_WHAT} took too long") from error
    if done.returncode != 0 or not (work / "classes.jsa").is_file():
        reason = (done.stderr or done.stdout).strip()[-400:]
        raise Unavailable(f"{_WHAT} could not be made: {reason}")
