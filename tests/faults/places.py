"""Where chain and tables of a fault test lie: in a folder, or in S3. Keys are those below it, such
as ``warehouse/public/now/_delta_log/…``.

A copy of either is a folder, in which a table can be read as it was.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from tests.faults.iceberg_tables import forget_catalogs
from tideline.contract.maintenance import VACUUM_HOURS_MIN
from tideline.settings import Store, Warehouse
from tideline.store.objects import open_store

_OLD_S = 40 * 86_400
_AT_ONCE = 8
_MARK = ".folder"


class Place(Protocol):
    """What is asked of both."""

    def keys(self, prefix: str) -> list[str]:
        """What lies below the folder ``prefix``, sorted."""

    def get(self, key: str) -> bytes: ...

    def put(self, key: str, data: bytes) -> None: ...

    def remove(self, key: str) -> None: ...

    def copy(self, folder: Path) -> None:
        """Copy everything into ``folder``, which does not exist."""

    def restore(self, folder: Path) -> None:
        """Put everything back as `copy` found it, and nothing else."""

    @contextmanager
    def aged(self) -> Iterator[float]:
        """Have what lies below ``warehouse`` count as old; gives the hours to vacuum by."""

    def old(self, prefix: str) -> list[str]:
        """The keys that a vacuum by those hours had to look at."""


@dataclass(frozen=True, slots=True)
class Files:
    """Below ``root``."""

    root: Path

    def keys(self, prefix: str) -> list[str]:
        found = (self.root / prefix).rglob("*")
        return sorted(one.relative_to(self.root).as_posix() for one in found if one.is_file())

    def get(self, key: str) -> bytes:
        return (self.root / key).read_bytes()

    def put(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def remove(self, key: str) -> None:
        (self.root / key).unlink()

    def copy(self, folder: Path) -> None:
        shutil.copytree(self.root, folder)

    def restore(self, folder: Path) -> None:
        for one in self.root.iterdir():
            shutil.rmtree(one)
        shutil.copytree(folder, self.root, dirs_exist_ok=True)
        forget_catalogs()

    @contextmanager
    def aged(self) -> Iterator[float]:
        """All files of the tables are as old as if the deaths had been a month ago."""
        then = time.time() - _OLD_S
        for path in (self.root / "warehouse").rglob("*.parquet"):
            os.utime(path, (then, then))
        yield VACUUM_HOURS_MIN

    def old(self, prefix: str) -> list[str]:
        """Younger ones are left by deaths of the maintenance itself, and could be a running
        writer's."""
        day_ago = time.time() - 86_400
        return [k for k in self.keys(prefix) if (self.root / k).stat().st_mtime < day_ago]


class InS3:
    """Below the url of ``place``. Nothing there can be made older than it is."""

    def __init__(self, place: Warehouse) -> None:
        access: Any = place.access()
        self._objects = open_store(Store(url=place.url, **access))

    def keys(self, prefix: str) -> list[str]:
        return self._objects.list(prefix)

    def get(self, key: str) -> bytes:
        found = self._objects.get(key)
        if found is None:
            raise FileNotFoundError(key)
        return found

    def put(self, key: str, data: bytes) -> None:
        self._objects.put(key, data)

    def remove(self, key: str) -> None:
        self._objects.delete(key)

    def copy(self, folder: Path) -> None:
        """What is listed and cannot be read is the mark of a folder, which this client does not
        name as Spark's does: an object below it stands for it. (Or it is going just now.)"""

        def one(key: str) -> None:
            data = self._objects.get(key)
            path = folder / key if data is not None else folder / key / _MARK
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data or b"")

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(one, self.keys("")))

    def restore(self, folder: Path) -> None:
        """What is as it was is left alone."""
        was = Files(folder)
        kept = set(was.keys(""))

        def back(key: str) -> None:
            if self._objects.get(key) != (data := was.get(key)):
                self.put(key, data)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            marks = {key.removesuffix(f"/{_MARK}") for key in kept}
            list(pool.map(self.remove, set(self.keys("")) - kept - marks))
            list(pool.map(back, kept))

    @contextmanager
    def aged(self) -> Iterator[float]:
        """There is no other writer, so a vacuum may take what was written just now."""
        with patch("tideline_spark.formats.file_figures.VACUUM_HOURS_MIN", 0.0):
            yield 0.0

    def old(self, prefix: str) -> list[str]:
        return self.keys(prefix)
