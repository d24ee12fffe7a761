"""Finds Java 17 or newer.

Searched in this order: ``JAVA_HOME``, ``java`` on PATH, the copy unpacked in the cache. An older
Java is skipped: Spark 4.2 needs 17.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tideline.cache import cache_location
from tideline.contract.errors import Misconfigured

JAVA_VERSION_MIN = 17
PACKAGE = "openjdk-17-jre-headless"
HINT = (
    f"install Java {JAVA_VERSION_MIN} (Debian: apt-get install {PACKAGE}) and set JAVA_HOME to it"
)


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """Return the home of a Java that Spark can use; Misconfigured when there is none."""
    found = find_java(environment)
    if found is None:
        raise Misconfigured(f"no Java {JAVA_VERSION_MIN} or newer was found", hint=HINT)
    return found


def find_java(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the first usable Java of those named above, or None."""
    for home in _candidates(os.environ if environment is None else environment):
        version = java_version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
    return None


def java_version(home: Path) -> int | None:
    """Return the feature version (17, 21; 8 for 1.8) of the Java in ``home``; None when it has
    none."""
    try:
        done = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except OSError:
        return None
    return parse_version(done.stderr) if done.returncode == 0 else None


def parse_version(text: str) -> int | None:
    """Parse the feature version in what ``java -version`` prints; None when there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    yield from sorted(unpacked_folder().glob("usr/lib/jvm/java-17-openjdk-*"))


def unpacked_folder() -> Path:
    """Return the folder in the cache in which a Java is unpacked without root."""
    return cache_location() / "java-17"
