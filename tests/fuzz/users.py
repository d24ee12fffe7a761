"""Targets: what people write (settings, patterns, addresses, keys), names of objects, and parts.

A mistake of a person is Misconfigured, and never an end of the program by a traceback.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.fuzz.target import Target
from tideline.contract import layout
from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.manifest import Part, digest
from tideline.contract.patterns import check_patterns, matches
from tideline.contract.position import format_lsn, parse_lsn
from tideline.contract.schema import Column, TableId, TableSchema, parse_table
from tideline.contract.types import parse_type
from tideline.keys import parse_csv, parse_json_lines, parse_line
from tideline.settings import load_settings, make_settings
from tideline.settings.sources.mysql import mysql_address
from tideline.settings.sources.postgres import postgres_tls
from tideline_capture.rollup_file import RollUpFile

_ORDERS = TableId("public", "orders")
_LEAST = {
    "pipeline": "shop",
    "source": {"url": "postgresql://u@127.0.0.1/shop", "tables": ["public.*"]},
    "store": {"url": "file:///srv/store"},
    "warehouse": {"url": "file:///srv/warehouse"},
}
_URLS = (("source", "url"), ("control", "url"), ("store", "url"), ("warehouse", "url"))


def read_toml(data: bytes) -> None:
    """A settings file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tideline.toml"
        path.write_bytes(data)
        load_settings(path)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """With these variables of the environment for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def read_environment(data: bytes) -> None:
    """A key, ``=`` and a value, as TIDELINE_KEY has it."""
    key, _, value = data.decode("ascii", "replace").partition("=")
    name = "TIDELINE_" + "".join(one for one in key.upper() if one.isalnum() or one == "_")
    with environment({name: value.replace("\0", "")}):
        make_settings(_LEAST)


def read_url(data: bytes) -> None:
    """A byte for whose url it is, then the url; what was taken is used as the program uses it."""
    section, key = _URLS[data[0] % len(_URLS)] if data else _URLS[0]
    url = data[1:].decode("utf-8", "replace")
    old = _LEAST.get(section, {})
    assert isinstance(old, dict)
    settings = make_settings({**_LEAST, section: {**old, key: url}})
    source = settings.source
    assert source.user is not None and source.dsn()
    if source.kind == "postgres":
        postgres_tls(source.url.get_secret_value())
    else:
        mysql_address(source.url.get_secret_value(), source.secret())
    settings.control.address()
    settings.control.secrets()
    source.secrets()


def read_patterns(data: bytes) -> None:
    """Patterns in lines; those that are sound can be asked about any table."""
    patterns = tuple(data.decode("utf-8", "replace").split("\n"))
    check_patterns(patterns)
    matches(_ORDERS, patterns)


def read_keys(data: bytes) -> None:
    """Keys as a file and as a form have them."""
    text = data.decode("utf-8", "replace")
    for parse in (parse_csv, parse_json_lines, lambda line: parse_line(line, 1), _one_column):
        try:
            parse(text)
        except Misconfigured:
            continue


def _one_column(text: str) -> object:
    return parse_line(text, 1, 1)


def read_names(data: bytes) -> None:
    """Names of tables, types and objects; positions. What is read is written as it was."""
    text = data.decode("utf-8", "replace")
    for parse in (
        layout.parse_part_key,
        layout.parse_rollup_key,
        layout.parse_verification_part_key,
        parse_type,
    ):
        try:
            parse(text)
        except CorruptData:
            continue
    with suppress(CorruptData):
        assert parse_lsn(format_lsn(parse_lsn(text))) == parse_lsn(text)
    table = parse_table(text)
    assert parse_table(str(table)) == table


SCHEMA = TableSchema(
    "public.orders",
    (Column("id", "int64", "bigint", False), Column("customer", "string", "text")),
    ("id",),
)


def part_of(data: bytes) -> Part:
    """What a manifest says of the part that has these bytes."""
    return Part(
        key="shop/parts/1.parquet",
        table=SCHEMA.table,
        schema=SCHEMA.fingerprint,
        rows=3,
        bytes=len(data),
        digest=digest(data),
        first_seq=1,
        last_seq=3,
        operations={"c": 3},
    )


def read_part(data: bytes) -> None:
    """A part whose digest is right: what Parquet's reader then meets is anybody's guess."""
    part = part_of(data)
    made = RollUpFile(SCHEMA, [part])
    made.add(part, data)
    made.finish()


TARGETS = (
    Target("settings", read_toml, allows=(Misconfigured,)),
    Target("environment", read_environment, allows=(Misconfigured,), length_max=1024),
    Target("urls", read_url, allows=(Misconfigured,), length_max=512),
    Target("patterns", read_patterns, allows=(Misconfigured,), length_max=1024),
    Target("keys", read_keys, allows=()),
    Target("names", read_names, length_max=512),
    Target("part", read_part, length_max=16_384),
)
