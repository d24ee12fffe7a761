"""Installs Java 17 on a machine without one."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from devtools.services.debian import SIGNED, install
from devtools.services.truststore import authorities, keystore
from tideline.cache import cache_folder, fetch, rename_into_place
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.java import HINT, JAVA_VERSION_MIN, PACKAGE, find_java, java_home, unpacked_folder


def ensure_java() -> Path:
    """Return ``java_home()``, after installing Java where it is missing and can be.

    Root installs Debian's package; others unpack it into the cache. Misconfigured when neither
    can be done, with what the operator should do.
    """
    found = find_java()
    if found is not None:
        return found
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Misconfigured(
            f"no Java {JAVA_VERSION_MIN} or newer, and no apt-get to fetch it with", hint=HINT
        )
    try:
        if os.geteuid() == 0:
            install(PACKAGE)
        else:
            _unpack()
    except Unavailable as error:
        raise Misconfigured(error.message, hint=HINT) from error
    return java_home()


def _unpack() -> None:
    """Unpack Debian's package, without installing it and without its dependencies.

    Its libraries beyond libc are for fonts, sound and the like, which Spark does not use; its
    configuration lies in /etc, so the links to it are turned to the unpacked copy.
    """
    target = unpacked_folder()
    partial = Path(tempfile.mkdtemp(prefix="java.", dir=cache_folder()))
    try:
        fetch("Java", ["apt-get", *SIGNED, "download", "-q", PACKAGE], partial)
        for package in partial.glob("*.deb"):
            fetch("Java", ["dpkg", "-x", str(package), str(partial)], partial)
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
