"""Makes the jar of our stores of Delta's logs: `ConditionalLogStore.java`, with which two drivers
share a table in S3, and `TailLogStore.java`, which lists long logs in files.

Spark has a small compiler of its own, so that Java's is not needed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tideline.cache import cache_folder, rename_into_place
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.java import java_home
from tideline.local_spark import spark_home
from tideline.warehouse.delta.jars import delta_jars

CLASS = "tideline.ConditionalLogStore"
TAIL_CLASS = "tideline.TailLogStore"
JAR = "tideline-log-stores.jar"
SOURCE = Path(__file__).with_name("ConditionalLogStore.java")
TAIL_SOURCE = Path(__file__).with_name("TailLogStore.java")
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
_TIMEOUT_S = 120


def jars_with_log_store() -> list[Path]:
    """Return Delta's jars for ``spark.jars`` and this one. Raises as `delta_jars` and
    `log_store_jar` do."""
    delta = delta_jars()
    return [*delta, log_store_jar(delta)]


def log_store_jar(delta: Sequence[Path]) -> Path:
    """Return the jar, made when the cache lacks it; ``delta`` are Delta's jars.

    Raises Misconfigured without Java or a Spark, Unavailable where it cannot be made.
    """
    name = f"log-store-{_state(delta)}"
    target = cache_folder() / name
    jar = target / JAR
    if not jar.is_file():
        _make(target, jar.name, delta)
    return jar


def _state(delta: Sequence[Path]) -> str:
    """Return the digest of what the classes are made of."""
    sources = [path.read_bytes() for path in (SOURCE, TAIL_SOURCE)]
    made_of = [*sources, *(path.name.encode() for path in delta)]
    return hashlib.sha256(b"\0".join(made_of)).hexdigest()[:16]


def _make(target: Path, name: str, delta: Sequence[Path]) -> None:
    work = Path(tempfile.mkdtemp(prefix="log-store.", dir=cache_folder()))
    try:
        classes = work / "classes"
        classes.mkdir()
        compile_to(classes, [SOURCE, TAIL_SOURCE], delta)
        kept = work / "kept"
        kept.mkdir()
        with zipfile.ZipFile(kept / name, "w") as jar:
            for path in sorted(classes.rglob("*.class")):
                jar.write(path, path.relative_to(classes).as_posix())
        rename_into_place(kept, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def compile_to(classes: Path, sources: Sequence[Path], delta: Sequence[Path]) -> None:
    """Compile ``sources`` into the folder ``classes``. Raises as `log_store_jar` does."""
    home = spark_home()
    jars = [] if home is None else sorted((home / "jars").glob("*.jar"))
    if not jars:
        raise Misconfigured("no Spark is installed here", hint="pip install 'tideline-cdc[spark]'")
    path = os.pathsep.join(str(jar) for jar in (*jars, *delta))
    java = str(java_home() / "bin" / "java")
    named = [str(source) for source in sources]
    try:
        done = subprocess.run(
            [java, "-cp", path, _COMPILER, "-d", str(classes), "-classpath", path, *named],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"the log store could not be made: {type(error).__name__}") from None
    if done.returncode != 0 or not list(classes.rglob("*.class")):
        raise Unavailable(
            f"the log store could not be made: {(done.stderr or done.stdout).strip()[-300:]}"
        )
