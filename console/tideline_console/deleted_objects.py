"""Removes the tables of a pipeline from a warehouse in an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, unquote

from tideline.contract.errors import Unavailable
from tideline.contract.layout import REBUILDS_FOLDER
from tideline.settings import Settings
from tideline.store.objects import ObjectStore, open_store
from tideline.warehouse.registry import LOG_FOLDERS
from tideline.warehouse.state import read_target
from tideline_capture.sources.administration import Removal

_DELETES_AT_ONCE = 16


def object_removals(settings: Settings, incarnation: str | None) -> Iterator[Removal]:
    """Yield the tables whose properties name the pipeline, and ``incarnation`` where it is
    known."""
    store = open_store(settings.warehouse_store())
    roots = [one for one in folders(store) if one != REBUILDS_FOLDER]
    roots += [
        schema for build in folders(store, REBUILDS_FOLDER) for schema in folders(store, build)
    ]
    for folder in (table for schema in roots for table in folders(store, schema)):
        url = f"{settings.warehouse.url}/{quote(folder)}"
        if is_of(settings, url, incarnation):
            yield Removal("target", f"the table at {url}", _removal(store, folder))


def object_removal(settings: Settings, url: str) -> Removal:
    """Return the removal of the table whose folder has the ``url``."""
    folder = unquote(url.removeprefix(f"{settings.warehouse.url.rstrip('/')}/"))
    return Removal(
        "target", f"the table at {url}", _removal(open_store(settings.warehouse_store()), folder)
    )


def folders(store: ObjectStore, prefix: str = "") -> Iterator[str]:
    """Yield the folders right below the folder ``prefix``, in the order of keys, each with its
    whole path. A request for each: the next one begins behind the folder."""
    skipped, after = len(f"{prefix}/") if prefix else 0, ""
    while page := next(store.entries(prefix, after), None):
        key = page[0].key
        name, slash, _ = key[skipped:].partition("/")
        if slash:
            yield key[:skipped] + name
        after = f"{key[:skipped]}{name}0" if slash else key  # 0 follows the slash.


def is_of(settings: Settings, url: str, incarnation: str | None) -> bool:
    """Return whether the table's properties name the pipeline; an unreadable table is left."""
    try:
        owner = read_target(url, "", settings.warehouse_storage).owner
    except Unavailable:
        return False
    return owner[0] == settings.pipeline and incarnation in (None, owner[1])


def delete_below(store: ObjectStore, prefix: str, *, spare: tuple[str, ...] = ()) -> None:
    """Delete the objects below the folder ``prefix``, but keys that begin as one of ``spare``."""
    with ThreadPoolExecutor(_DELETES_AT_ONCE, thread_name_prefix="delete") as pool:
        for page in store.entries(prefix):
            keys = [entry.key for entry in page if not entry.key.startswith(spare)]
            for _ in pool.map(store.delete, keys):
                pass


def _removal(store: ObjectStore, folder: str) -> Callable[[], None]:
    def remove() -> None:
        """Remove the table's log last, and its newest entry first: until the end, what is left
        shows whose it is, and another try goes on."""
        logs = [f"{folder}/{name}/" for name in LOG_FOLDERS]
        delete_below(store, folder, spare=tuple(logs))
        for log in logs:
            for key in reversed(store.list(log)):
                store.delete(key)

    return remove
