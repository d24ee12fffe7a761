"""Removes the files of a pipeline: its targets and its chain."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tideline.contract import layout
from tideline.contract.errors import Misconfigured
from tideline.contract.target_url import table_format_of
from tideline.settings import Settings
from tideline.store.objects import ObjectStore, open_store
from tideline.warehouse.registry import REMOVERS, other_tables
from tideline_capture.sources.administration import Removal
from tideline_console.deleted_objects import delete_below, is_of, object_removal, object_removals

_TABLES = ("*/*", f"{layout.REBUILDS_FOLDER}/*/*/*")
"""The folders of a warehouse's tables, and of rebuilt ones that are not swapped in."""
_REMOVED = "~removed"
"""The folder that a table is moved to before its files are removed; no schema has this name."""


def target_removals(settings: Settings, incarnation: str | None) -> Iterator[Removal]:
    """Yield the warehouse tables whose properties name the pipeline, and this ``incarnation`` of
    it where that is known.

    Raises Misconfigured for a warehouse that is neither in files nor in an object store.
    """
    for what, remove in other_tables(settings, incarnation):
        yield Removal("target", what, remove)
    if settings.warehouse.in_object_store:
        yield from object_removals(settings, incarnation)
        return
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
        if path.is_dir() and is_of(settings, path.as_uri(), incarnation):
            yield _target(path, removed)


def table_removal(settings: Settings, url: str) -> Removal:
    """Return the removal of the pipeline's table at ``url``, with its files.

    Raises Misconfigured for a warehouse that is neither in files nor in an object store.
    """
    remover = REMOVERS.get(table_format_of(url))
    if remover is not None:
        remove = partial(remover, url, settings.warehouse_storage)
        return Removal("target", f"the table at {url}", remove)
    root, path = _folder(settings.warehouse.url), _folder(url)
    below = url.startswith(f"{settings.warehouse.url.rstrip('/')}/")
    if below and settings.warehouse.in_object_store:
        return object_removal(settings, url)
    if not below or root is None or path is None:
        raise Misconfigured(
            f"the table at {url} is not removed by this command", hint="remove it where it is"
        )
    return _target(path, root / _REMOVED / settings.pipeline)


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
    delete_below(store, prefix)
    root = _folder(settings.store.url)
    if root is not None:
        shutil.rmtree(root / prefix, ignore_errors=True)  # Folders, empty by now.


def _folder(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
