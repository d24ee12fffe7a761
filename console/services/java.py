"""Where Java 17 or newer is, and how it gets onto a machine that has none.

Looked for in this order: ``JAVA_HOME``, ``java`` on PATH, the copy unpacked in the cache. What is
too old (Spark 4.2 needs 17) is passed over.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from console.services.folders import cache_folder, rename_into_place
from console.services.truststore import authorities, keystore
from tideline.contract.errors import Misconfigured

JAVA_VERSION_MIN = 17
PACKAGE = "openjdk-17-jre-headless"
_HINT = (
    f"install Java {JAVA_VERSION_MIN} (Debian: apt-get install {PACKAGE}) and set JAVA_HOME to it"
)
_APT_TIMEOUT_S = 900


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """The home of a Java that Spark can use; Misconfigured when there is none."""
    found = find_java(environment)
    if found is None:
        raise Misconfigured(f"no Java {JAVA_VERSION_MIN} or newer was found", hint=_HINT)
    return found


def ensure_java() -> Path:
    """``java_home()``, after installing Java where it is missing and can be.

    Root installs Debian's package; others unpack it into the cache. Misconfigured when neither
    can be done, with what the operator should do.
    """
    found = find_java()
    if found is not None:
        return found
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Misconfigured(
            f"no Java {JAVA_VERSION_MIN} or newer, and no apt-get to fetch it with", hint=_HINT
        )
    if os.geteuid() == 0:
        _run(["apt-get", "update", "-q"])
        _run(["apt-get", "install", "-q", "-y", "--no-install-recommends", PACKAGE])
    else:
        _unpack()
    return java_home()


def find_java(environment: Mapping[str, str] | None = None) -> Path | None:
    """The first usable Java of those named above, or None."""
    for home in _candidates(os.environ if environment is None else environment):
        version = java_version(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
    return None


def java_version(home: Path) -> int | None:
    """The feature version (17, 21; 8 for 1.8) of the Java in ``home``; None when it has none."""
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
    """The feature version in what ``java -version`` prints; None when there is none."""
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
    """Where a Java without root is unpacked, in the cache."""
    return cache_folder() / "java-17"


def _unpack() -> None:
    """Debian's package, without installing it and without the packages it depends on.

    Its libraries beyond libc are for fonts, sound and the like, which Spark does not use; its
    configuration lies in /etc, so the links to it are turned to the unpacked copy.
    """
    target = unpacked_folder()
    partial = Path(tempfile.mkdtemp(prefix="java.", dir=cache_folder()))
    try:
        _run(["apt-get", "download", "-q", PACKAGE], cwd=partial)
        for package in partial.glob("*.deb"):
            _run(["dpkg", "-x", str(package), str(partial)])
            package.unlink()
        turn_links_inwards(partial)
        give_authorities(partial)
        rename_into_place(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def turn_links_inwards(root: Path) -> None:
    """Make Java's links to files in /etc point to the copies unpacked under ``root``."""
    for link in root.glob("usr/lib/jvm/*/**/*"):
        target = os.readlink(link) if link.is_symlink() else ""
        inside = root / target.lstrip("/")
        if target.startswith("/") and inside.exists():
            link.unlink()
            link.symlink_to(os.path.relpath(inside, link.parent))


def give_authorities(root: Path) -> None:
    """Put the machine's certificate authorities where the unpacked Java looks for them.

    Its own file is a link to one that Debian builds on installing, so it is missing or stale here.
    """
    certificates = authorities()
    if not certificates:
        return
    for security in root.glob("usr/lib/jvm/java-17-openjdk-*/lib/security"):
        target = security / "cacerts"
        target.unlink(missing_ok=True)
        target.write_bytes(keystore(certificates))


def _run(command: list[str], cwd: Path | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_APT_TIMEOUT_S,
        )
    except subprocess.SubprocessError as error:
        reason = getattr(error, "stderr", "") or str(error)
        raise Misconfigured(
            f"Java could not be fetched: {' '.join(command[:2])}: {reason.strip()[-300:]}",
            hint=_HINT,
        ) from error
