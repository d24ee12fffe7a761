"""The toy format's log: `log/<version>.json`, each of which says all of its version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tideline.contract.external_commits import COMMITS_MAX, TableCommit
from tideline.contract.plan import CommitMetadata

CONFLICT = "TOY_VERSION_TAKEN"


class VersionTaken(Exception):
    """Another writer was faster."""


@dataclass(frozen=True)
class Entry:
    """One version. ``columns`` are [name, type as JSON, the file's column or None]; ``folder`` has
    the rows; ``numbers`` are those of the commit, ``applied`` all so far."""

    version: int = -1
    operation: str = ""
    changes_data: bool = False
    commit_metadata: str | None = None
    rows_written: int = 0
    folder: str = ""
    numbers: dict[str, int] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    columns: list[list[Any]] = field(default_factory=list)
    comments: dict[str, str] = field(default_factory=dict)
    firm: list[str] = field(default_factory=list)


class ToyLog:
    """The log of the table at ``path``."""

    def __init__(self, path: str) -> None:
        parts = urlsplit(path)
        self.path = Path(unquote(parts.path) if parts.scheme == "file" else path)
        self._folder = self.path / "log"

    def newest(self) -> Entry:
        """The newest version; one numbered -1 where no table is."""
        found = sorted(self._folder.glob("*.json"))
        return Entry() if not found else self._read(found[-1])

    def entry(self, version: int) -> Entry:
        return self._read(self._file(version))

    def commit(self, base: Entry, operation: str, **changes: Any) -> Entry:
        """Put the version behind ``base`` there. Raises VersionTaken where one is."""
        changes = {
            "changes_data": False,
            "commit_metadata": None,
            "rows_written": 0,
            "numbers": {},
        } | changes
        made = replace(base, version=base.version + 1, operation=operation, **changes)
        made = replace(made, applied=base.applied | made.numbers)
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            with self._file(made.version).open("x") as file:
                json.dump(asdict(made), file)
        except FileExistsError:
            raise VersionTaken from None
        return made

    def commits(self, version: int, most: int = COMMITS_MAX) -> Iterator[TableCommit]:
        for number in range(version, max(-1, version - most), -1):
            if not self._file(number).exists():
                return
            one = self.entry(number)
            yield TableCommit(
                version=number,
                operation=one.operation,
                restored_to=None,
                changes_data=one.changes_data,
                numbers=one.numbers,
                commit_metadata=CommitMetadata.parse(one.commit_metadata),
                rows_written=one.rows_written,
                at_us=self._file(number).stat().st_mtime_ns // 1_000,
            )

    def raw(self, version: int) -> bytes | None:
        file = self._file(version)
        return file.read_bytes() if file.exists() else None

    def _file(self, version: int) -> Path:
        return self._folder / f"{version:08d}.json"

    def _read(self, file: Path) -> Entry:
        return Entry(**json.loads(file.read_text()))
