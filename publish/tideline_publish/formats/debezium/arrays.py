"""PostgreSQL's arrays: their elements are converted together, whatever row they are in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.types import DECIMAL_PRECISION_MAX
from tideline_publish.formats.debezium.fields import (
    FieldType,
    Schema,
    as_json,
    dates,
    decimal_schema,
    local_times,
    named,
    numbers,
    strings,
    zoned_times,
)
from tideline_publish.formats.debezium.numbers import decimals_of_texts

_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_UTC = "+00"
Texts = Callable[[pa.StringArray], pa.StringArray]


def array_field(name: str, first: int | None, second: int | None) -> FieldType:
    """Return the field of arrays of the type ``name``, with its modifiers."""
    schema, convert = _element(name, first, second)

    def texts(column: pa.Array) -> pa.StringArray:
        return _arrays(column, convert)

    return FieldType(
        {"type": "array", "items": {**schema, "optional": True}},
        texts,
        zero="[]",
        unavailable=(lambda text: f"[{as_json(text)}]") if convert is _strings else _no_array,
    )


def elements(text: str) -> list[str | None] | None:
    """Return the elements of an array of one dimension that begins at 1; None for another one."""
    if not (text.startswith("{") and text.endswith("}")):
        return None
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        match = _ELEMENT.match(text, at)
        if match is None or (match.end() < end and text[match.end()] != ","):
            return None
        quoted, bare = match.groups()
        if quoted is not None:
            found.append(_ESCAPED.sub(r"\1", quoted))
        else:
            found.append(None if bare == "NULL" else bare)
        at = match.end() + 1
    return found


def _no_array(_text: str) -> str | None:
    return None


def _arrays(column: pa.StringArray, convert: Texts) -> pa.StringArray:
    """Return arrays of JSON. One with an element that has no form has none itself."""
    rows = [None if one is None else elements(one) for one in column.to_pylist()]
    flat = pa.array([one for row in rows for one in row or ()], pa.string())
    try:
        texts = convert(flat)
    except pa.ArrowInvalid:
        texts = pa.array([_converted(one, convert) for one in flat.to_pylist()], pa.string())
    lost = pc.and_(texts.is_null(), flat.is_valid()).to_pylist()
    written = iter(zip(pc.fill_null(texts, "null").to_pylist(), lost, strict=True))
    return pa.array([_row(row, written) for row in rows], pa.string())


def _converted(text: str | None, convert: Texts) -> str | None:
    try:
        found: str | None = convert(pa.array([text], pa.string()))[0].as_py()
    except pa.ArrowInvalid:
        return None
    return found


def _row(row: list[str | None] | None, written: Iterator[tuple[str, bool]]) -> str | None:
    if row is None:
        return None
    pairs = [next(written) for _ in row]
    return None if any(lost for _, lost in pairs) else f"[{','.join(text for text, _ in pairs)}]"


def _element(name: str, first: int | None, second: int | None) -> tuple[Schema, Texts]:
    """Return the schema of an element, and what converts them."""
    digits = 6 if first is None else first
    if name in _NUMBERS:
        return {"type": _NUMBERS[name]}, _as_they_are
    if name == "numeric" and first is not None and first <= DECIMAL_PRECISION_MAX:
        schema = decimal_schema("org.apache.kafka.connect.data.Decimal", second or 0, first)
        return schema, lambda texts: decimals_of_texts(texts)[0]
    if name == "timestamp without time zone":
        local = local_times(digits)
        return local.schema, lambda texts: local.texts(texts.cast(pa.timestamp("us")))
    if name == "timestamp with time zone":
        moments = zoned_times(digits)
        return moments.schema, lambda texts: moments.texts(_moments(texts))
    return _BY_NAME.get(name, (strings().schema, _strings))


def _moments(texts: pa.StringArray) -> pa.Array:
    """Parse points in time, which are written at UTC."""
    fits = pc.fill_null(pc.ends_with(texts, _UTC), True)
    if not pc.all(fits, min_count=0).as_py():
        raise pa.ArrowInvalid("not a point in time")
    return pc.utf8_slice_codeunits(texts, 0, -len(_UTC)).cast(pa.timestamp("us"))


def _as_they_are(texts: pa.StringArray) -> pa.StringArray:
    return texts


def _booleans(texts: pa.StringArray) -> pa.StringArray:
    return numbers(pc.equal(texts, "t"))


def _floats(texts: pa.StringArray) -> pa.StringArray:
    named_numbers = pc.match_substring_regex(texts, "^(NaN|-?Infinity)$")
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    return pc.if_else(named_numbers, quoted, texts)


def _strings(texts: pa.StringArray) -> pa.StringArray:
    return strings().texts(texts)


def _days(texts: pa.StringArray) -> pa.StringArray:
    return dates().texts(texts.cast(pa.date32()))


_NUMBERS: Mapping[str, str] = {
    "smallint": "int16",
    "integer": "int32",
    "bigint": "int64",
    "oid": "int64",
}
_BY_NAME: Mapping[str, tuple[Schema, Texts]] = {
    "boolean": ({"type": "boolean"}, _booleans),
    "real": ({"type": "float"}, _floats),
    "double precision": ({"type": "double"}, _floats),
    "date": (dates().schema, _days),
    "uuid": (named("string", "io.debezium.data.Uuid"), _strings),
    "json": (named("string", "io.debezium.data.Json"), _strings),
    "jsonb": (named("string", "io.debezium.data.Json"), _strings),
}
