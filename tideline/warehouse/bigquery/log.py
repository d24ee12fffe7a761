"""The log of our commits to a BigQuery table: a table of ours beside it, a row for each commit.

A commit writes its rows and its row of the log in one transaction. What is not ours, by other
programs, is found by the time at which the table was last changed (not of a streamed one, whose
rows BigQuery brings in later), and by its columns: BigQuery keeps no log that a reader may ask
without being billed. A change by others has a version of its own, that no row has: so a gap in the
numbers is one of theirs.

A statement that no transaction may hold (DDL) is written into the newest row first, as ``pending``,
with what the table is after it. Whoever finds it there runs it, under the id that it names: a job
of one id runs once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from tideline.contract.errors import CorruptData
from tideline.contract.external_commits import COMMITS_MAX, TableCommit
from tideline.contract.manifest import digest
from tideline.contract.plan import CommitMetadata
from tideline.contract.table_layout import TableLayout
from tideline.warehouse.bigquery.names import LIFE, TableName

if TYPE_CHECKING:
    from google.cloud.bigquery import Client, Table

COLUMNS: Mapping[str, str] = {
    "version": "INT64",
    "newest": "BOOL",
    "committed_at": "TIMESTAMP",
    "job": "STRING",
    "entry": "STRING",
    "pending": "STRING",
}
"""The columns of a log. ``job`` is the id of the job that made the commit; ``entry`` a
`CommitEntry`, ``pending`` a `Pending`, as JSON. Exactly one row is ``newest``."""
NO_VERSION = -1
"""The version of the row with which a log begins, before there is a table."""
_SCRIPT_MS_MAX = 6 * 3600 * 1_000
"""BigQuery ends a job after six hours."""
OTHERS = "a change by another program"


class CommitEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A commit, and what the table is after it.

    ``numbers`` are those that it sets, ``applied`` all; ``commit_metadata`` is our record of it
    ("": none); ``columns`` are types of Spark's JSON by name, in order. ``modified``: the table
    was last changed by us at this time at the latest, in milliseconds, where no job says so.
    """

    operation: str = ""
    changes_data: bool = False
    numbers: dict[str, int] = {}
    applied: dict[str, int] = {}
    commit_metadata: str = ""
    properties: dict[str, str] = {}
    columns: dict[str, Any] = {}
    rows_written: int = 0
    modified: int = 0

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


class Pending(msgspec.Struct, frozen=True, omit_defaults=True):
    """A statement that is to be run once, as the job ``job`` (or its next try, where that failed),
    and the version and commit that it makes."""

    job: str
    sql: str
    after: CommitEntry
    version: int

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True)
class Commit:
    """One row of the log."""

    version: int
    at_us: int
    job: str
    entry: CommitEntry
    pending: Pending | None
    raw: str

    def commit(self) -> TableCommit:
        """Return it as a commit. Raises CorruptData for a damaged one."""
        entry = self.entry
        return TableCommit(
            version=self.version,
            operation=entry.operation,
            restored_to=None,
            changes_data=entry.changes_data,
            numbers=entry.numbers,
            commit_metadata=CommitMetadata.parse(entry.commit_metadata or None),
            rows_written=entry.rows_written,
            at_us=self.at_us,
        )


class CommitLog:
    """A target as it was looked up: its log, newest commit first, and BigQuery's own ``table``
    (None: there is none). ``ended_ms``: when the newest commit's job ended, 0 where that is not
    known."""

    def __init__(self, commits: list[Commit], table: Table | None, ended_ms: int) -> None:
        self.commits, self.table = commits, table
        self._ended_ms = ended_ms

    @property
    def newest(self) -> Commit | None:
        """The newest commit; None where nothing was committed."""
        found = self.commits[0] if self.commits else None
        return None if found is None or found.version == NO_VERSION else found

    @property
    def entry(self) -> CommitEntry:
        """The newest commit's entry; an empty one without a table."""
        newest = self.newest if self.exists else None
        return CommitEntry() if newest is None else newest.entry

    @property
    def exists(self) -> bool:
        return self.newest is not None and self.table is not None

    @property
    def version(self) -> int:
        """The newest version: of our newest commit, or of a change by others since; -1 without a
        table."""
        newest = self.newest
        if newest is None or self.table is None:
            return NO_VERSION
        return newest.version + (1 if self.changed_since else 0)

    @cached_property
    def changed_since(self) -> bool:
        """True if others have changed the table since our newest commit."""
        newest, table = self.newest, self.table
        if newest is None or table is None or newest.pending is not None:
            return False
        if [field.name for field in self.fields] != list(newest.entry.columns):
            return True
        return not self.streamed and modified_ms(table) > self.known_ms

    @property
    def fields(self) -> list[Any]:
        """BigQuery's columns of the table, but for a streamed one's `life_column`."""
        listed = () if self.table is None else self.table.schema
        return [one for one in listed if not one.name.startswith(LIFE)]

    @property
    def life_column(self) -> str | None:
        """The column by whose name a streamed table is known from others that had its name; None
        where it is gone, and of other tables."""
        listed = () if self.table is None else self.table.schema
        return next((one.name for one in listed if one.name.startswith(LIFE)), None)

    @cached_property
    def streamed(self) -> bool:
        """True if rows come by streams: then BigQuery changes the table at times of its own."""
        return TableLayout.of_properties(self.entry.properties).streamed

    @property
    def known_ms(self) -> int:
        """The time, in milliseconds, until which changes of the table are ours, or were judged."""
        newest = self.newest
        return 0 if newest is None else max(self._ended_ms, newest.entry.modified)

    @property
    def looked_ms(self) -> int:
        """The `known_ms` behind a commit that changes no row: a change by others that was seen has
        a version of its own by then."""
        seen = 0 if self.table is None else modified_ms(self.table)
        return max(self.known_ms, seen) if self.changed_since else self.known_ms

    def table_commits(
        self, version: int | None = None, most: int = COMMITS_MAX
    ) -> Iterator[TableCommit]:
        """Yield commits from ``version`` back, or from the newest one, ``most`` of them.

        Raises CorruptData for a damaged one.
        """
        above = self.version + 1
        for one in self.commits:
            for number in range(above - 1, one.version, -1):
                if version is None or number <= version:
                    if not most:
                        return
                    most -= 1
                    yield _others(number, self.table)
            if one.version == NO_VERSION or not most:
                return
            if version is None or one.version <= version:
                most -= 1
                yield one.commit()
            above = one.version

    def at(self, version: int) -> Commit | None:
        """Return our commit that made ``version``."""
        return next((one for one in self.commits if one.version == version), None)

    def digest(self, version: int) -> str:
        """Return the digest of a version's commit; "" without it."""
        if not 0 <= version <= self.version:
            return ""
        found = self.at(version)
        if found is None:
            newest = version == self.version and self.table is not None
            return digest(f"{version} {modified_ms(self.table)}".encode()) if newest else ""
        return digest(found.raw.encode())


def read_log(client: Client, name: TableName) -> CommitLog:
    """Read the log of the table ``name``, and BigQuery's own record of it.

    Neither is billed. Raises CorruptData for a damaged log, and what Google's library raises.
    """
    # heavy: only pipelines with BigQuery tables need it
    from google.api_core.exceptions import NotFound

    table: Table | None
    try:
        table = client.get_table(str(name))
    except NotFound:
        table = None
    commits = read_commits(client, name)
    newest = commits[0] if commits else None
    ended = 0 if newest is None or not newest.job else ended_ms(client, newest)
    return CommitLog(commits, table, ended)


def read_commits(client: Client, name: TableName) -> list[Commit]:
    """Read the rows of the log of ``name``, newest first; none without a log. Raises as
    `read_log` does."""
    # heavy: as above
    from google.api_core.exceptions import NotFound

    try:
        rows = list(client.list_rows(client.get_table(str(name.log))))
    except NotFound:
        return []
    return sorted((_commit(dict(row.items())) for row in rows), key=lambda one: -one.version)


def modified_ms(table: Any) -> int:
    """Return when BigQuery's ``table`` was last changed, in milliseconds."""
    found: float = table.modified.timestamp()
    return round(found * 1_000)


def ended_ms(client: Client, commit: Commit) -> int:
    """Return when the job of ``commit`` ended, in milliseconds: at the latest, where BigQuery no
    longer knows it."""
    # heavy: as above
    from google.api_core.exceptions import NotFound

    try:
        ended = client.get_job(commit.job).ended
    except NotFound:  # It keeps jobs for six months.
        ended = None
    if ended is None:
        return commit.at_us // 1_000 + _SCRIPT_MS_MAX
    found: float = ended.timestamp()
    return round(found * 1_000)


def _commit(row: Mapping[str, Any]) -> Commit:
    try:
        pending = row["pending"]
        return Commit(
            version=int(row["version"]),
            at_us=round(row["committed_at"].timestamp() * 1_000_000),
            job=row["job"] or "",
            entry=msgspec.json.decode(row["entry"], type=CommitEntry),
            pending=None if not pending else msgspec.json.decode(pending, type=Pending),
            raw=row["entry"],
        )
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, ValueError):
        raise CorruptData(
            "the log of a BigQuery table is damaged",
            hint="another program changed it: remove the table and its log, and merge again",
        ) from None


def _others(version: int, table: Any) -> TableCommit:
    at = 0 if table is None else 1_000 * modified_ms(table)
    return TableCommit(version, OTHERS, None, True, {}, None, 0, at)
