"""What a release before wrote, unpacked: a chain, targets, open requests, and what came of them."""

from __future__ import annotations

import base64
import json
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from devtools.demo.compare import read_warehouse
from tideline.contract.layout import table_path
from tideline.contract.maintenance import MaintenanceOrder, decode_order
from tideline.contract.plan import Plan, decode_plan, encode_plan
from tideline.contract.request import RequestState
from tideline.contract.schema import parse_table
from tideline.contract.verification import VerifyPlan, decode_verify_plan, encode_verify_plan
from tideline.settings import Settings, make_settings
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import open_store

RELEASES = Path(__file__).parents[1] / "golden" / "releases"
KINDS = ("postgres", "mariadb", "mysql")
BEFORE = "0.1.0"
OPEN = {"check", "dump", "paused", "unwanted"}
"""The requests that are open at the chain's end."""
ENDS = dict.fromkeys(("check", "dump", "paused", "asked"), RequestState.DONE)
ENDS |= {"unwanted": RequestState.FAILED}
"""How they end, and the one that waits in the queue; a command there cancels the last."""
TABLES = ("now", "soft", "past", "log", "bag", "big")
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Golden:
    """A golden in a folder of its own; ``make_VERSION.py.txt`` says what each file holds."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def kind(self) -> str:
        return str(self.source["kind"])

    @property
    def sections(self) -> dict[str, Any]:
        """The settings that it was captured with, without addresses."""
        return dict(self._json("settings"))

    @property
    def source(self) -> Mapping[str, Any]:
        return dict(self._json("source"))

    @property
    def queue(self) -> Mapping[str, tuple[int, bytes]]:
        """The keys in Valkey: the milliseconds that each has left (-1: for ever), and its dump."""
        found = self._json("queue").items()
        return {key: (ttl, base64.b64decode(packed)) for key, (ttl, packed) in found}

    @property
    def expected(self) -> Mapping[str, Mapping[str, Any]]:
        return dict(self._json("expected"))

    def name(self, table: str) -> str:
        """The table's name in the chain."""
        return f"{'public' if self.kind == 'postgres' else 'shop'}.{table}"

    def documents(self) -> Iterator[tuple[str, bytes]]:
        """(key, bytes) of every JSON document in the store."""
        for path in sorted(self.store.rglob("*.json")):
            yield path.relative_to(self.store).as_posix(), path.read_bytes()

    def target(self, table: str) -> Rows:
        """A target's rows without what differs from run to run: sequences, times, plans' names."""
        url = (self.folder / "warehouse").as_uri()
        rows = read_warehouse(table_path(url, parse_table(self.name(table))), {}).to_pylist()
        return sorted((_shown(row) for row in rows), key=repr)

    def moved_plan(self, raw: bytes) -> Plan:
        """A stored plan, with the addresses that its store and warehouse have here."""
        return decode_plan(self._moved(encode_plan(decode_plan(raw))))

    def moved_verification(self, raw: bytes) -> VerifyPlan:
        """The same of the plan of a verification."""
        return decode_verify_plan(self._moved(encode_verify_plan(decode_verify_plan(raw))))

    def moved_order(self, raw: bytes) -> MaintenanceOrder:
        """The same of an order of maintenance."""
        return decode_order(self._moved(msgspec.json.encode(decode_order(raw))))

    def _moved(self, raw: bytes) -> bytes:
        [(_, plan)] = [one for one in self.documents() if one[0].endswith("/plans/waits.json")]
        url = decode_plan(plan).store_url
        old = url.removesuffix("/store")
        assert old != url and old.encode() in raw
        return raw.replace(old.encode(), self.folder.as_uri().encode())

    def _json(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text())


def unpack(version: str, kind: str, folder: Path) -> Golden:
    """The golden of a release and a kind of source, in ``folder``."""
    with tarfile.open(RELEASES / f"{version}.tar.xz") as archive:
        members = [one for one in archive if one.name.startswith(f"{kind}/")]
        for member in members:
            member.mtime = int(time.time())  # Delta goes by it: what is too old it reads no more.
        archive.extractall(folder, members, filter="data")
    return Golden(folder / kind)


def settings_of(golden: Golden, url: str, control: str = "redis://127.0.0.1:1/0") -> dict[str, Any]:
    """The golden's settings, at the addresses that things have here."""
    sections = golden.sections
    return {
        **sections,
        "source": {"url": url, **sections["source"]},
        "store": {"url": golden.store.as_uri()},
        "warehouse": {"url": (golden.folder / "warehouse").as_uri()},
        "control": {"url": control},
    }


def planner_settings(golden: Golden) -> Settings:
    return make_settings(settings_of(golden, f"{golden.kind}://reader@127.0.0.1:1/shop"))


def chain_of(settings: Settings) -> tuple[Chain, ManifestEntry]:
    chain = Chain(open_store(settings.store), settings.pipeline)
    entry = chain.tail()
    assert entry is not None
    return chain, entry


def inserts(rows: Mapping[str, Sequence[Sequence[Any]]]) -> Iterator[str]:
    """Statements that bring back the rows of each table."""
    for table, found in rows.items():
        values = ", ".join(f"({', '.join(map(_literal, row))})" for row in found)
        yield f"INSERT INTO {table} VALUES {values}"  # noqa: S608  our own names and values


def counted(rows: Sequence[Mapping[str, Any]]) -> Counter[bytes]:
    """Rows as a multiset."""
    return Counter(msgspec.json.encode(sorted(row.items())) for row in rows)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        assert not {"'", "\\"} & set(value)
        return f"'{value}'"
    return str(value)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if not name.startswith("_")}
    kept |= {name: row[name] for name in ("_tl_deleted", "_operation") if name in row}
    if "_tl_valid_to_seq" in row:
        kept["open"] = row["_tl_valid_to_seq"] is None
    return kept
