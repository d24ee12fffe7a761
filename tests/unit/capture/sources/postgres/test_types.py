"""PostgreSQL's types: their logical types, and every form their text can take."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.fixtures.source_text import column_texts, source_text
from tideline.contract.errors import CorruptData
from tideline.contract.schema import Column
from tideline.contract.types import parse_type
from tideline_capture.sources.postgres.snapshot.copy import chunk_from_csv
from tideline_capture.sources.postgres.types import PgType, logical_type, to_arrow


def pg(oid: int, typmod: int = -1) -> PgType:
    return PgType(oid, typmod, "", oid, typmod)


def numeric(precision: int, scale: int) -> PgType:
    return pg(1700, (precision << 16 | scale & 0x7FF) + 4)


@pytest.mark.parametrize(
    ("source", "logical"),
    [
        (pg(16), "boolean"),
        (pg(17), "binary"),
        (pg(21), "int16"),
        (pg(23), "int32"),
        (pg(20), "int64"),
        (pg(26), "int64"),
        (pg(700), "float32"),
        (pg(701), "float64"),
        (pg(1082), "date"),
        (pg(1114, 3), "timestamp_ntz"),
        (pg(1184), "timestamp"),
        (pg(1700), "string"),
        (numeric(12, 2), "decimal(12,2)"),
        (numeric(38, 38), "decimal(38,38)"),
        (numeric(39, 0), "string"),
        (numeric(1000, 1000), "string"),
        (numeric(3, -2), "decimal(5,0)"),
        (numeric(2, 4), "decimal(4,4)"),
        (numeric(38, -1), "string"),
        (numeric(30, 39), "string"),
        (numeric(1, -1000), "string"),
        (pg(1083), "string"),
        (pg(2950), "string"),
        (pg(1007), "string"),
        (PgType(50_000, -1, "public.price", 1700, (10 << 16 | 2) + 4), "decimal(10,2)"),
        (PgType(50_001, -1, "public.mood", 50_001, -1), "string"),
    ],
)
def test_logical_type(source: PgType, logical: str) -> None:
    assert str(logical_type(source)) == logical


FITS = {
    "boolean": ["t", "f"],
    "int16": ["0", "-32768", "32767"],
    "int32": ["-2147483648", "2147483647"],
    "int64": ["-9223372036854775808", "9223372036854775807", "-1"],
    "float32": [
        "NaN",
        "Infinity",
        "-Infinity",
        "-0",
        "0",
        "1e-45",
        "3.4028235e+38",
        "0.1",
        "1e+06",
    ],
    "float64": ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e+308", "1e+15"],
    "decimal(5,2)": ["999.99", "-999.99", "0.00", "-0.01"],
    "decimal(38,0)": ["9" * 38, "-" + "9" * 38, "0"],
    "decimal(4,4)": ["0.0099", "-0.0099", "0.0000"],
    "string": [
        "",
        " ",
        "\\x",
        "null",
        "NULL",
        "\\N",
        "\\.",
        '"',
        'a"b',
        ",",
        "a\nb",
        "a\r\nb",
        "é🌊",
    ],
    "binary": ["\\x", "\\x00", "\\xdeadbeef", "\\x5c78", "\\x2c0a22"],
    "date": ["0001-01-01", "9999-12-31", "2000-02-29", "1970-01-01"],
    "timestamp": [
        "0001-01-01 00:00:00+00",
        "9999-12-31 23:59:59.999999+00",
        "2026-03-29 02:30:00.5+00",
    ],
    "timestamp_ntz": [
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
        "2026-03-29 02:30:00.000001",
    ],
}
OVERFLOWS = {
    "boolean": ["true", "x", ""],
    "int16": ["32768", "12a", ""],
    "int64": ["9223372036854775808"],
    "float64": ["nothing", ""],
    "decimal(5,2)": ["NaN", "Infinity", "-Infinity", "1000.00", "0.001"],
    "binary": ["", "\\x0", "\\x0g", "abcd", "\\\\x00", "\\x00\\x00", "\\xé"],
    "date": ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "5874897-12-31"],
    "timestamp": [
        "infinity",
        "-infinity",
        "4713-01-01 00:00:00+00 BC",
        "294276-12-31 23:59:59.999999+00",
        "2026-01-01 24:00:01+00",
        "2026-13-01 00:00:00+00",
    ],
    "timestamp_ntz": ["infinity", "4713-01-01 00:00:00 BC", "10000-01-01 00:00:00"],
}


@pytest.mark.parametrize("name", FITS)
def test_what_fits_comes_back_as_the_same_text(name: str) -> None:
    logical = parse_type(name)
    texts = [None, *FITS[name], None]
    converted = to_arrow(pa.array(texts, pa.string()), logical)
    assert converted.overflow is None
    assert [source_text(value, logical) for value in converted.values.to_pylist()] == texts
    raw = pa.array([text and text.encode() for text in texts], pa.binary())
    assert identical(to_arrow(raw, logical).values, converted.values)
    sliced = to_arrow(pa.array(["", *texts], pa.string()).slice(2), logical)
    assert identical(sliced.values, converted.values.slice(1))


@pytest.mark.parametrize("name", OVERFLOWS)
def test_what_does_not_fit_stands_in_the_overflow(name: str) -> None:
    logical = parse_type(name)
    texts: list[str | None] = [None]
    for fit, unfit in zip(FITS[name] * 7, OVERFLOWS[name], strict=False):
        texts += [fit, unfit, None]
    alone = [[FITS[name][0], text, FITS[name][-1]] for text in OVERFLOWS[name]]
    for batch in (pa.array(given, pa.string()) for given in (texts, OVERFLOWS[name], *alone)):
        converted = to_arrow(batch, logical)
        assert converted.overflow is not None
        for value, kept, text in zip(
            converted.values.to_pylist(), converted.overflow, batch.to_pylist(), strict=True
        ):
            assert kept.as_py() == (text if text in OVERFLOWS[name] else None)
            assert source_text(value, logical) == (None if text in OVERFLOWS[name] else text)


def test_bytes_that_are_not_utf8_are_kept_readably() -> None:
    converted = to_arrow(pa.array([b"ok", b"caf\xe9", None], pa.binary()), parse_type("string"))
    assert converted.values.to_pylist() == ["ok", None, None]
    assert converted.overflow is not None
    assert converted.overflow.to_pylist() == [None, "caf\\xe9", None]


@pytest.mark.parametrize("name", FITS)
def test_a_chunk_is_bit_by_bit_what_the_log_gives(name: str) -> None:
    """The CSV reader's own parse (no overflow) and the parse of texts (one overflow) agree."""
    texts = [None, *FITS[name], None]
    columns = (Column("v", name, ""), Column("d", "date", "date"))
    logged = to_arrow(pa.array(texts, pa.string()), parse_type(name)).values
    typed = chunk_from_csv(csv([(text, "2026-01-01") for text in texts]), columns)
    assert typed.column_names == ["v", "d"]
    assert identical(typed.column("v"), logged)
    last = ["2026-01-01"] * (len(texts) - 1) + ["infinity"]
    converted = chunk_from_csv(csv(list(zip(texts, last, strict=True))), columns)
    assert converted.column_names == ["v", "d", "_tl_overflow"]
    assert identical(converted.column("v"), logged)
    assert column_texts(converted, "d", parse_type("date")) == last


@pytest.mark.parametrize("name", OVERFLOWS)
def test_a_chunk_keeps_what_does_not_fit(name: str) -> None:
    texts = [*OVERFLOWS[name], None, FITS[name][0]]
    batch = chunk_from_csv(csv([(text,) for text in texts]), [Column("v", name, "")])
    assert column_texts(batch, "v", parse_type(name)) == texts


def test_one_column_of_nulls_and_empty_texts() -> None:
    batch = chunk_from_csv(b'\n""\n\n', [Column("v", "string", "text")])
    assert batch.column("v").to_pylist() == [None, "", None]


@pytest.mark.parametrize("name", FITS)
def test_no_rows(name: str) -> None:
    batch = chunk_from_csv(b"", [Column("v", name, "")])
    assert batch.num_rows == 0
    assert batch.column("v").equals(to_arrow(pa.array([], pa.binary()), parse_type(name)).values)


@pytest.mark.thorough
def test_a_row_larger_than_any_usual_block() -> None:
    text = "é" * 20_000_000
    batch = chunk_from_csv(
        csv([("1", text)] * 3), [Column("a", "int64", ""), Column("b", "string", "")]
    )
    assert batch.column("b").to_pylist() == [text] * 3


def test_something_else_than_csv_of_these_columns() -> None:
    with pytest.raises(CorruptData, match="not CSV of 1 columns"):
        chunk_from_csv(b"1,2\n", [Column("v", "int64", "bigint")])


def csv(rows: list[tuple[str | None, ...]]) -> bytes:
    """Rows as COPY prints them."""
    return "".join(",".join(_field(value) for value in row) + "\n" for row in rows).encode()


def _field(text: str | None) -> str:
    if text is None:
        return ""
    if text in ("", "\\.") or any(character in text for character in '",\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def identical(one: pa.Array, other: pa.Array) -> bool:
    """Same type, nulls and bits (``equals`` calls two NaN different, 0 and -0 the same)."""
    return bool(one.type == other.type) and [repr(v) for v in one.to_pylist()] == [
        repr(v) for v in other.to_pylist()
    ]
