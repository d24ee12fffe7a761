"""The types of sources as Debezium has them: what the differential test saw of the real one, as
Debezium 3.6.1 (PostgreSQL) and 3.5.0 (MariaDB) wrote it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.each import each
from tideline.contract.schema import Column
from tideline_capture.arrow_types import arrow_type
from tideline_publish.formats.debezium.fields import FieldType
from tideline_publish.formats.debezium.types import field_of

MOMENT = datetime(2026, 11, 28, 17, 0, 0, 123456)
ZONED = MOMENT.replace(tzinfo=UTC)
POINT_WKB = "AQEAAAAAAAAAAAD4PwAAAAAAAADA"
TIME, DATA = "io.debezium.time.", "io.debezium.data."
DECIMAL = "org.apache.kafka.connect.data.Decimal"
POSTGRES: tuple[tuple[str, str, Any, Any, str | None], ...] = (
    ("smallint", "int16", -7, -7, "int16"),
    ("integer", "int32", -(2**31), -(2**31), "int32"),
    ("bigint", "int64", 2**63 - 1, 2**63 - 1, "int64"),
    ("oid", "int64", 4294967295, 4294967295, "int64"),
    ("numeric(12,2)", "decimal(12,2)", Decimal("12.30"), "BM4=", DECIMAL),
    ("numeric(12,2)", "decimal(12,2)", Decimal("-9999999999.99"), "/xcrWvAB", DECIMAL),
    ("public.amount", "decimal(10,2)", Decimal("99.99"), "Jw8=", DECIMAL),
    ("numeric(50,10)", "string", "-0.0000000001", "/w==", DECIMAL),
    (
        "numeric(50,10)",
        "string",
        "123456789012345678901234567890.0123456789",
        "A6DJIHXA2/O4rLxflowE1RU=",
        DECIMAL,
    ),
    ("numeric", "string", "1.50", {"scale": 1, "value": "Dw=="}, DATA + "VariableScaleDecimal"),
    ("numeric", "string", "100", {"scale": 0, "value": "ZA=="}, DATA + "VariableScaleDecimal"),
    ("real", "float32", 1.5, 1.5, "float"),
    ("double precision", "float64", 2.0, 2.0, "double"),
    ("double precision", "float64", 5e-324, 5e-324, "double"),
    ("double precision", "float64", float("-inf"), "-Infinity", "double"),
    ("boolean", "boolean", True, True, "boolean"),
    ("bytea", "binary", b"\0\xff\x10", "AP8Q", "bytes"),
    ("text", "string", 'a"\\\n', 'a"\\\n', "string"),
    ("character(5)", "string", "ab   ", "ab   ", "string"),
    ("date", "date", date(2026, 11, 28), 20785, TIME + "Date"),
    ("date", "date", date(1, 1, 1), -719162, TIME + "Date"),
    ("time without time zone", "string", "04:05:06.789012", 14706789012, TIME + "MicroTime"),
    ("time without time zone", "string", "24:00:00", 86400000000, TIME + "MicroTime"),
    ("time(3) without time zone", "string", "04:05:06.789", 14706789, TIME + "Time"),
    ("time with time zone", "string", "04:05:06.789+02", "02:05:06.789Z", TIME + "ZonedTime"),
    (
        "time with time zone",
        "string",
        "23:59:59.999999-11",
        "10:59:59.999999Z",
        TIME + "ZonedTime",
    ),
    (
        "timestamp without time zone",
        "timestamp_ntz",
        MOMENT,
        1795885200123456,
        TIME + "MicroTimestamp",
    ),
    (
        "timestamp(3) without time zone",
        "timestamp_ntz",
        datetime(1969, 12, 31, 23, 59, 59, 999000),
        -1,
        TIME + "Timestamp",
    ),
    (
        "timestamp with time zone",
        "timestamp",
        ZONED,
        "2026-11-28T17:00:00.123456Z",
        TIME + "ZonedTimestamp",
    ),
    (
        "timestamp(3) with time zone",
        "timestamp",
        datetime(1, 1, 1, tzinfo=UTC),
        "0001-01-01T00:00:00.000Z",
        TIME + "ZonedTimestamp",
    ),
    ("interval", "string", "1 year 2 mons 3 days 04:05:06.789", 37091106789000, None),
    ("interval", "string", "-1 mons +1 day -00:00:00.000001", -2543400000001, None),
    ("money", "string", "$1,234.56", "AeJA", DECIMAL),
    ("money", "string", "-$92,233,720,368,547,758.08", "gAAAAAAAAAA=", DECIMAL),
    ("uuid", "string", "123e4567-e89b-12d3-a456-426655440000", None, DATA + "Uuid"),
    ("json", "string", '{"b": 1,  "a": [null]}', None, DATA + "Json"),
    ("jsonb", "string", "1000", "1000", DATA + "Json"),
    ("public.mood", "string", "ok", "ok", "string"),
    ("integer[]", "string", "{1,NULL,-3}", [1, None, -3], "array"),
    ("integer[]", "string", "{}", [], "array"),
    ("text[]", "string", '{a,"b,c",NULL,"","\\"\\\\"}', ["a", "b,c", None, "", '"\\'], "array"),
    ("date[]", "string", "{2026-11-28,NULL}", [20785, None], "array"),
    ("boolean[]", "string", "{t,f}", [True, False], "array"),
    ("numeric(5,2)[]", "string", "{1.50,-0.01}", ["AJY=", "/w=="], "array"),
    ("double precision[]", "string", "{NaN,1.5,2,NULL}", ["NaN", 1.5, 2.0, None], "array"),
    (
        "timestamp with time zone[]",
        "string",
        '{"2026-11-28 17:00:00.5+00"}',
        ["2026-11-28T17:00:00.500000Z"],
        "array",
    ),
    ("bit(1)", "string", "1", True, "boolean"),
    ("bit(12)", "string", "101000000011", "Awo=", DATA + "Bits"),
    ("bit varying(20)", "string", "10100", "FA==", DATA + "Bits"),
    ("bit varying(20)", "string", "", "", DATA + "Bits"),
    (
        "point",
        "string",
        "(1.5,-2)",
        {"x": 1.5, "y": -2.0, "wkb": POINT_WKB, "srid": None},
        DATA + "geometry.Point",
    ),
    ("public.hstore", "string", '"a"=>"1", "b"=>NULL', '{"a":"1","b":null}', DATA + "Json"),
    ("public.hstore", "string", "", "{}", DATA + "Json"),
    ("tsvector", "string", "'a':1 'b':2", "'a':1 'b':2", DATA + "Tsvector"),
    ("inet", "string", "192.0.2.1/24", "192.0.2.1/24", "string"),
    ("circle", "string", "<(0,0),2>", "<(0,0),2>", "string"),
)
"""Type, logical type, value in a part, value in an event (None: the same), type in Connect."""
MARIADB: tuple[tuple[str, str, Any, Any, str | None], ...] = (
    ("tinyint", "int8", -128, -128, "int16"),
    ("tinyint unsigned", "int16", 255, 255, "int16"),
    ("int unsigned", "int64", 4294967295, 4294967295, "int64"),
    ("bigint unsigned", "decimal(20,0)", Decimal(9 * 10**18), 9 * 10**18, "int64"),
    ("bigint unsigned", "decimal(20,0)", Decimal(2**64 - 1), -1, "int64"),
    ("decimal(12,2)", "decimal(12,2)", Decimal("12.30"), "BM4=", DECIMAL),
    ("decimal(50,10)", "string", "-0.0000000001", "/w==", DECIMAL),
    ("float", "float32", 1.5, 1.5, "float"),
    ("date", "date", date(1000, 1, 1), -354285, TIME + "Date"),
    ("datetime", "timestamp_ntz", datetime(1000, 1, 1), -30610224000000, TIME + "Timestamp"),
    ("datetime(6)", "timestamp_ntz", MOMENT, 1795885200123456, TIME + "MicroTimestamp"),
    (
        "timestamp",
        "timestamp",
        ZONED.replace(microsecond=0),
        "2026-11-28T17:00:00Z",
        TIME + "ZonedTimestamp",
    ),
    (
        "timestamp(6)",
        "timestamp",
        ZONED,
        "2026-11-28T17:00:00.123456Z",
        TIME + "ZonedTimestamp",
    ),
    ("time", "string", "-838:59:59", -3020399000000, TIME + "MicroTime"),
    ("time(3)", "string", "838:59:58.999", 3020398999000, TIME + "MicroTime"),
    ("time(6)", "string", "-04:05:06.789012", -14706789012, TIME + "MicroTime"),
    ("year", "int32", 2026, 2026, TIME + "Year"),
    ("bit(1)", "string", "1", True, "boolean"),
    ("bit(12)", "string", "101000000011", "Awo=", DATA + "Bits"),
    ("bit(12)", "string", "000000000000", "AAA=", DATA + "Bits"),
    ("enum('sad','a,b','it''s')", "string", "it's", "it's", DATA + "Enum"),
    ("set('a','b','c')", "string", "a,c", "a,c", DATA + "EnumSet"),
    ("varchar(20)", "string", "é€", "é€", "string"),
    ("longtext", "string", "long", "long", "string"),
    ("binary(4)", "binary", b"\0\xff\0\0", "AP8AAA==", "bytes"),
    ("json", "string", "[]", "[]", DATA + "Json"),
    ("uuid", "string", "123e4567-e89b-12d3-a456-426655440000", None, DATA + "Uuid"),
    (
        "geometry",
        "binary",
        b"\xe6\x10\0\0\1\1",
        {"wkb": "AQE=", "srid": 4326},
        DATA + "geometry.Geometry",
    ),
    (
        "geometry",
        "binary",
        b"\0\0\0\0\1\1",
        {"wkb": "AQE=", "srid": None},
        DATA + "geometry.Geometry",
    ),
)


def values(kind: str, source_type: str, logical: str, *parts: Any) -> tuple[FieldType, list[Any]]:
    """The field of a type, and values of a part as they are in events."""
    column = Column("c", logical, source_type)
    field = field_of(kind, column)
    texts = field.texts(pa.array(parts, arrow_type(column.logical))).to_pylist()
    return field, [None if one is None else json.loads(one) for one in texts]


@each("case", [("postgres", *one) for one in POSTGRES] + [("mariadb", *one) for one in MARIADB])
def test_a_value_is_what_debezium_has(case: tuple[str, str, str, Any, Any, str | None]) -> None:
    kind, source_type, logical, part, event, connect = case
    field, found = values(kind, source_type, logical, None, part, None)
    assert found == [None, part if event is None else event, None]
    assert type(found[1]) is type(part if event is None else event)
    if connect is not None:
        assert field.schema.get("name", field.schema["type"]) == connect


def test_the_schema_of_labels_lists_them_with_commas_escaped() -> None:
    field, _ = values("mariadb", "enum('sad','ok','a,b','it''s')", "string")
    assert field.schema["parameters"] == {"allowed": "sad,ok,a\\,b,it's"}


def test_a_decimals_schema_has_its_scale_and_precision() -> None:
    field, _ = values("postgres", "numeric(12,2)", "decimal(12,2)")
    assert field.schema["parameters"] == {"scale": "2", "connect.decimal.precision": "12"}


@each(
    "case",
    [
        ("numeric", "NaN"),
        ("numeric(50,10)", "Infinity"),
        ("interval", "178000000 years"),
        ("interval", "infinity"),
        ("point", "(NaN,1)"),
        ("integer[]", "{{1,2},{3,4}}"),
        ("integer[]", "[0:1]={1,2}"),
        ("date[]", "{2026-11-28,infinity}"),
        ("timestamp with time zone[]", "{infinity}"),
    ],
)
def test_what_has_no_form_is_null_beside_one_that_has(case: tuple[str, str]) -> None:
    """Its column is named in the event (`test_envelope`)."""
    source_type, text = case
    fine = {"point": "(1,1)", "interval": "1 day"}.get(source_type, "1")
    if source_type.endswith("[]"):
        fine = "{}"
    _, found = values("postgres", source_type, "string", fine, text)
    assert found[0] is not None
    assert found[1] is None


@each(
    "case",
    [
        ("date", "date", "0044-03-15 BC", -735160),
        ("date", "date", "infinity", None),
        ("timestamp without time zone", "timestamp_ntz", "infinity", 9223372036825200000),
        ("timestamp without time zone", "timestamp_ntz", "-infinity", -9223372036832400000),
        (
            "timestamp without time zone",
            "timestamp_ntz",
            "0044-03-15 12:00:00 BC",
            -63517780800000000,
        ),
        ("timestamp with time zone", "timestamp", "-infinity", "-infinity"),
        (
            "timestamp with time zone",
            "timestamp",
            "12000-01-01 00:00:00+00",
            "+12000-01-01T00:00:00.000000Z",
        ),
        ("numeric(12,2)", "decimal(12,2)", "NaN", None),
        ("text", "string", "\\xff", "\\xff"),
    ],
)
def test_a_value_that_no_part_can_hold(case: tuple[str, str, str, Any]) -> None:
    source_type, logical, text, event = case
    written = field_of("postgres", Column("c", logical, source_type)).overflow(text)
    assert (None if written is None else json.loads(written)) == event


@each(
    "case",
    [
        ("date", "0000-00-00"),
        ("datetime", "2004-00-10 10:00:00"),
        ("timestamp", "0000-00-00 00:00:00"),
    ],
)
def test_an_impossible_date_of_mysql_has_no_form(case: tuple[str, str]) -> None:
    name, text = case
    logical = {"date": "date", "datetime": "timestamp_ntz"}.get(name, "timestamp")
    assert field_of("mysql", Column("c", logical, name)).overflow(text) is None


@each(
    "case",
    [
        ("text", "string", "gone"),
        ("bytea", "binary", "Z29uZQ=="),
        ("jsonb", "string", "gone"),
        ("text[]", "string", ["gone"]),
        ("timestamp with time zone", "timestamp", "gone"),
        ("integer", "int32", None),
        ("integer[]", "string", None),
        ("numeric", "string", None),
    ],
)
def test_the_placeholder_of_a_type(case: tuple[str, str, Any]) -> None:
    source_type, logical, event = case
    written = field_of("postgres", Column("c", logical, source_type)).unavailable("gone")
    assert (None if written is None else json.loads(written)) == event
