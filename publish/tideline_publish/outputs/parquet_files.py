"""Events as Parquet files, in a folder for each table.

A file is named by the sequences of its first and last event,
``{first:020d}-{last:020d}.parquet``. It is written elsewhere and appears by a rename, when it is
complete. What is in the folders behind the logged position is removed when the output is opened:
each event is there once.

A worker writes in a folder of its own, which the next one removes first of all. One that comes back
after that has nothing to rename any more.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.publishing import ChainPosition
from tideline.contract.schema import parse_table
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OrderScope, OutputContext
from tideline_publish.outputs.envelope import in_envelopes
from tideline_publish.outputs.folders import disk_errors, sync_folder
from tideline_publish.outputs.names import encoded_name, name_of

_SUFFIX = ".parquet"
_WRITING = ".writing-"
_NAME_BYTES_MAX = 255
"""File systems' own limit."""
SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("tx", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
    ]
)
"""The columns of a file; rows are in the order of ``seq`` and ``part``."""


class ParquetOutput:
    """See `Output`."""

    def __init__(self, context: OutputContext) -> None:
        settings = context.settings.files
        assert settings.folder is not None
        self._context = context
        self._folder = settings.folder
        self._own: Path | None = None
        self._events: defaultdict[str, list[ChangeEvent]] = defaultdict(list)
        self._names: dict[str, str] = {}
        self.order = OrderScope.TABLE
        self.record_bytes_max: int | None = None
        self.keeps_position = False
        self.whole_only = False
        self.gathers_s = settings.file_age_s
        self.dead_letters = 0

    def open(self, logged: ChainPosition) -> ChainPosition:
        """See `Output`."""
        self.close()
        own = self._folder / f"{_WRITING}{self._context.system.new_id()}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for old in self._folder.glob(f"{_WRITING}*"):
                shutil.rmtree(old, ignore_errors=True)
            own.mkdir()
            for path in sorted(self._folder.glob(f"*/*{_SUFFIX}")):
                self._cut(path, own, logged.seq)
        except OSError as error:
            raise Misconfigured(
                f"the folder {self._folder} cannot be written: {error.strerror}",
                hint="make it writable for this user, or change files.folder",
            ) from None
        self._own = own
        return logged

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""
        for event in in_envelopes(events):
            self._events[self._name(event)].append(event)

    def settle(self, position: ChainPosition) -> None:
        """See `Output`."""
        assert self._own is not None
        found, self._events = self._events, defaultdict(list)
        with disk_errors(self._folder):
            for name, events in found.items():
                folder = self._folder / name
                if not folder.is_dir():
                    folder.mkdir(exist_ok=True)
                    sync_folder(self._folder)
                file = _file_name(events[0].seq, events[-1].seq)
                _put(_as_table(events), self._own / file, folder / file)

    def close(self) -> None:
        """See `Output`."""
        own, self._own = self._own, None
        self._events.clear()
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)

    def _name(self, event: ChangeEvent) -> str:
        """Return the folder of an event: of its table, or of where it goes instead."""
        if event.route:
            return encoded_name(event.route)
        table = event.table
        if table not in self._names:
            self._names[table] = name_of(
                "{schema}.{table}",
                self._context.pipeline,
                parse_table(table),
                setting="the table's name",
                chars_max=_NAME_BYTES_MAX,
            )
        return self._names[table]

    def _cut(self, path: Path, own: Path, seq: int) -> None:
        """Remove the events of a file with sequences above ``seq``."""
        first, last = _span(path)
        if last <= seq:
            return
        if first <= seq:
            left = _read(path).filter(pc.field("seq") <= seq)
            name = _file_name(first, left.column("seq")[-1].as_py())
            _put(left, own / name, path.parent / name)
        path.unlink()


def _file_name(first: int, last: int) -> str:
    return f"{first:020d}-{last:020d}{_SUFFIX}"


def _span(path: Path) -> tuple[int, int]:
    try:
        first, last = map(int, path.stem.split("-"))
    except ValueError:
        raise CorruptData(
            f"{path} is no file of a publisher", hint="move it out of the folder"
        ) from None
    return first, last


def _read(path: Path) -> pa.Table:
    try:
        return pq.read_table(path, schema=SCHEMA)
    except pa.ArrowException:
        raise CorruptData(
            f"{path} cannot be read as Parquet", hint="move it out of the folder"
        ) from None


def _as_table(events: Sequence[ChangeEvent]) -> pa.Table:
    def texts(found: Iterator[bytes | None]) -> pa.Array:
        return pa.array(list(found), pa.binary()).cast(pa.string())

    return pa.Table.from_arrays(
        [
            pa.array([event.seq for event in events], pa.int64()),
            pa.array([event.part for event in events], pa.int32()),
            pa.array([event.op for event in events], pa.string()),
            pa.array([event.tx for event in events], pa.int64()),
            pa.array([event.ts_us for event in events], pa.timestamp("us", "UTC")),
            texts(event.key for event in events),
            texts(event.value for event in events),
        ],
        schema=SCHEMA,
    )


def _put(table: pa.Table, written: Path, place: Path) -> None:
    """Write a file and have it appear at its place, so that it outlives a loss of power."""
    with written.open("xb") as file:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    written.rename(place)
    sync_folder(place.parent)
