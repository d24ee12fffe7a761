"""Removes the files of a pipeline: its targets and its chain."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tideline.contract import layout
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.settings import Settings
from tideline.store.objects import ObjectStore, open_store
from tideline.warehouse.state import read_target
from tideline_capture.sources.administration import Removal

_DELETES_AT_ONCE = 16
_TABLES = ("*/*", "~rebuild/*/*/*")
"""The folders of a warehouse's tables, and of rebuilt ones that are not swapped in."""
_REMOVED = "~removed"
"""The folder that a table is moved to before its files are removed; no schema has this name."""


def target_removals(settings: Settings, incarnation: str | None) -> Iterator[Removal]:
    """Yield the warehouse tables whose properties name the pipeline, and this ``incarnation`` of
    it where that is known.

    Raises Misconfigured for a warehouse that is not in files.
    """
    root = _folder(settings.warehouse.url)
    if root is None:
        raise Misconfigured(
            f"tables at {settings.warehouse.url} are not removed by this command",
            hint="remove the folders that `tideline assess` names, and leave out --targets",
        )
    removed = root / _REMOVED / settings.pipeline
    if removed.is_dir():
        what = f"what is left of tables in {removed}"
        yield Removal("target", what, lambda: _remove_files(what, lambda: _clear(removed)))
    for path in sorted(one for pattern in _TABLES for one in root.glob(pattern)):
        if path.is_dir() and _is_of(path, settings.pipeline, incarnation):
            yield _target(path, removed)


def _target(path: Path, removed: Path) -> Removal:
    what = f"the table at {path.as_uri()}"

    def remove() -> None:
        removed.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.rename(removed / uuid.uuid4().hex)
        _clear(removed)
        with suppress(OSError):
            path.parent.rmdir()  # The schema's folder, if this was its last table.

    return Removal("target", what, lambda: _remove_files(what, remove))


def _remove_files(what: str, remove: Callable[[], None]) -> None:
    try:
        remove()
    except OSError as error:
        raise Misconfigured(
            f"this user may not remove {what}: {error.strerror}",
            hint="let the owner of the warehouse's folder run this command, or remove it by hand",
        ) from None


def _clear(removed: Path) -> None:
    shutil.rmtree(removed)
    with suppress(OSError):
        removed.parent.rmdir()


def _is_of(path: Path, pipeline: str, incarnation: str | None) -> bool:
    """Return whether the table's properties name the pipeline; an unreadable table is left."""
    try:
        owner = read_target(path.as_uri(), "").owner
    except Unavailable:
        return False
    return owner[0] == pipeline and incarnation in (None, owner[1])


def chain_removal(settings: Settings) -> Iterator[Removal]:
    """Yield the removal of all that the store has of the pipeline."""
    prefix = layout.encode_name(settings.pipeline)
    store = open_store(settings.store)
    objects, size = 0, 0
    for page in store.entries(prefix):
        objects += len(page)
        size += sum(entry.bytes for entry in page)
    if objects:
        what = f"{objects:,} objects, {size / 1e6:,.1f} MB, below {settings.store.url}/{prefix}"
        yield Removal("chain", what, lambda: _delete_chain(settings, store, prefix))


def _delete_chain(settings: Settings, store: ObjectStore, prefix: str) -> None:
    """Delete the first manifest before all others: the rest is then no longer a chain."""
    store.delete(layout.manifest_key(settings.pipeline, 1))
    with ThreadPoolExecutor(_DELETES_AT_ONCE, thread_name_prefix="delete") as pool:
        for page in store.entries(prefix):
            for _ in pool.map(store.delete, [entry.key for entry in page]):
                pass
    root = _folder(settings.store.url)
    if root is not None:
        shutil.rmtree(root / prefix, ignore_errors=True)  # Folders, empty by now.


def _folder(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
