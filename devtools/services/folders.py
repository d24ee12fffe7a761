"""The folders of downloads and unpacked servers, and those that another user can reach.

A clone may lie under a home of mode 0700. Then ``nobody``, which runs PostgreSQL when root starts
it, reaches neither the binaries in ``.venv`` nor a data folder there; both move to a place it does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from devtools.services.process import Account
from tideline.cache import CACHE_VARIABLE, ORIGIN, cache_folder, rename_into_place, sweep
from tideline.contract.errors import Misconfigured


def can_enter(folder: Path, account: Account) -> bool:
    """Return whether ``account`` may pass through ``folder`` and all its parents.

    Asked of the kernel, as that user: permission bits alone miss ACLs and mount options.
    """
    return _as_account(["/usr/bin/test", "-x", str(folder)], account)


def can_run(program: Path, account: Account) -> bool:
    """Return whether ``account`` may run ``program`` in place (``--version`` succeeds)."""
    return _as_account([str(program), "--version"], account)


def reachable_folder(wanted: Path, account: Account | None) -> Path:
    """Return ``wanted``, or a folder made for it in a place that ``account`` can reach.

    The same wish gets the same folder again. Places tried: the cache, the system's temporary one.
    """
    if account is None:
        return wanted
    wanted.mkdir(parents=True, exist_ok=True)
    if can_enter(wanted, account):
        return wanted
    place = shared_folder(account)
    sweep(place)
    name = hashlib.sha256(str(wanted.absolute()).encode()).hexdigest()[:16]
    (place / name).mkdir(exist_ok=True)
    (place / name / ORIGIN).write_text(str(wanted.absolute()))
    return place / name


def shared_folder(account: Account) -> Path:
    """Return a folder of ours that ``account`` can enter, in the cache or temporary folder."""
    places = (cache_folder(), Path(tempfile.gettempdir()) / f"tideline-{os.geteuid()}")
    for place in places:
        if _own(place) and can_enter(place, account):
            return place
    raise Misconfigured(
        f"the user {account.name} can enter none of {', '.join(map(str, places))}",
        hint=f"set {CACHE_VARIABLE} to a folder whose parents all have mode o+x",
    )


def _own(place: Path) -> bool:
    """Make ``place``; return whether it is this user's real folder (not one planted in /tmp)."""
    place.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = place.lstat()
    return status.st_uid == os.geteuid() and not place.is_symlink()


def copy_once(trees: Iterable[Path], *, below: Path, target: Path) -> Path:
    """Copy ``trees``, which lie in ``below``, to ``target`` unless it is there already.

    Several processes may try at the same time; ``target`` is never seen half done.
    """
    if target.exists():
        return target
    partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        for tree in trees:
            shutil.copytree(tree, partial / tree.relative_to(below), symlinks=True)
        partial.chmod(0o755)
        rename_into_place(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _as_account(command: list[str], account: Account) -> bool:
    try:
        done = subprocess.run(
            command,
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            check=False,
            timeout=30,
        )
    except OSError:
        return False  # execve itself was refused: exactly what was asked
    return done.returncode == 0
