"""What happens in a MariaDB under the differential test, as SQL; tables are in the test's own
database."""

from __future__ import annotations

from collections.abc import Mapping

TYPES: Mapping[str, str] = {
    "tiny": "TINYINT",
    "tiny_u": "TINYINT UNSIGNED",
    "yes": "TINYINT(1)",
    "bool": "BOOLEAN",
    "small": "SMALLINT",
    "small_u": "SMALLINT UNSIGNED",
    "middle": "MEDIUMINT",
    "middle_u": "MEDIUMINT UNSIGNED",
    "number": "INT",
    "number_u": "INT UNSIGNED",
    "big": "BIGINT",
    "big_u": "BIGINT UNSIGNED",
    "price": "DECIMAL(12,2)",
    "whole": "DECIMAL(10,0)",
    "wide": "DECIMAL(50,10)",
    "single": "FLOAT",
    "double_": "DOUBLE",
    "day": "DATE",
    "local": "DATETIME",
    "local_ms": "DATETIME(3)",
    "local_us": "DATETIME(6)",
    "moment": "TIMESTAMP NULL",
    "moment_ms": "TIMESTAMP(3) NULL",
    "moment_us": "TIMESTAMP(6) NULL",
    "clock": "TIME",
    "clock_ms": "TIME(3)",
    "clock_us": "TIME(6)",
    "year_": "YEAR",
    "bit_one": "BIT(1)",
    "bits": "BIT(12)",
    "bits_long": "BIT(64)",
    "mood": "ENUM('sad','ok','a,b','it''s')",
    "moods": "SET('a','b','c')",
    "code": "CHAR(5)",
    "name": "VARCHAR(20)",
    "latin": "VARCHAR(20) CHARACTER SET latin1",
    "words": "TEXT",
    "long_words": "LONGTEXT",
    "raw_fixed": "BINARY(4)",
    "raw": "VARBINARY(20)",
    "blob_": "BLOB",
    "doc": "JSON",
    "uid": "UUID",
    "spot": "POINT",
    "shape": "GEOMETRY",
}
_PLAIN = {
    "tiny": "-7",
    "tiny_u": "200",
    "yes": "1",
    "bool": "TRUE",
    "small": "-300",
    "small_u": "60000",
    "middle": "-70000",
    "middle_u": "16000000",
    "number": "42",
    "number_u": "4000000000",
    "big": "-5000000000",
    "big_u": "9000000000000000000",
    "price": "12.30",
    "whole": "77",
    "wide": "123456789012345678901234567890.0123456789",
    "single": "1.5",
    "double_": "0.1",
    "day": "'2026-11-28'",
    "local": "'2026-11-28 17:00:00'",
    "local_ms": "'2026-11-28 17:00:00.123'",
    "local_us": "'2026-11-28 17:00:00.123456'",
    "moment": "'2026-11-28 17:00:00'",
    "moment_ms": "'2026-11-28 17:00:00.5'",
    "moment_us": "'2026-11-28 17:00:00.123456'",
    "clock": "'04:05:06'",
    "clock_ms": "'04:05:06.789'",
    "clock_us": "'-04:05:06.789012'",
    "year_": "2026",
    "bit_one": "b'1'",
    "bits": "b'101000000011'",
    "bits_long": "b'1'",
    "mood": "'it''s'",
    "moods": "'a,c'",
    "code": "'ab'",
    "name": "'zażółć \"g\" \\\\ 🌊'",
    "latin": "'é€'",
    "words": "'some'",
    "long_words": "'long'",
    "raw_fixed": "x'00ff'",
    "raw": "x'00ff10'",
    "blob_": "x'ff'",
    "doc": '\'{"b": 1,  "a": [null]}\'',
    "uid": "'123e4567-e89b-12d3-a456-426655440000'",
    "spot": "ST_GeomFromText('POINT(1 2)')",
    "shape": "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)",
}
_ENDS = {
    "tiny": "-128",
    "tiny_u": "255",
    "yes": "0",
    "bool": "2",
    "small": "32767",
    "small_u": "0",
    "middle": "8388607",
    "middle_u": "0",
    "number": "-2147483648",
    "number_u": "4294967295",
    "big": "9223372036854775807",
    "big_u": "18446744073709551615",
    "price": "-9999999999.99",
    "whole": "-1",
    "wide": "-0.0000000001",
    "single": "-3.4e38",
    "double_": "1.7976931348623157e308",
    "day": "'1000-01-01'",
    "local": "'1000-01-01 00:00:00'",
    "local_ms": "'1969-12-31 23:59:59.999'",
    "local_us": "'9999-12-31 23:59:59.999999'",
    "moment": "'1970-01-01 00:00:01'",
    "moment_ms": "'2038-01-19 03:14:07.999'",
    "moment_us": "'2038-01-19 03:14:07.999999'",
    "clock": "'-838:59:59'",
    "clock_ms": "'838:59:58.999'",
    "clock_us": "'00:00:00'",
    "year_": "1901",
    "bit_one": "b'0'",
    "bits": "b'0'",
    "bits_long": "0xffffffffffffffff",
    "mood": "'a,b'",
    "moods": "''",
    "code": "''",
    "name": "''",
    "latin": "''",
    "words": "''",
    "long_words": "''",
    "raw_fixed": "''",
    "raw": "''",
    "blob_": "''",
    "doc": "'[]'",
    "uid": "'00000000-0000-0000-0000-000000000000'",
    "spot": "ST_GeomFromText('POINT(-1.5 0)')",
    "shape": "ST_GeomFromText('POINT(0 0)')",
}
_ODD = {
    "day": "'0000-00-00'",
    "local": "'0000-00-00 00:00:00'",
    "local_us": "'2004-00-10 10:00:00'",
    "moment": "'0000-00-00 00:00:00'",
}
ROWS = (_PLAIN, _ENDS, {}, _ODD)

SETUP = (
    "CREATE TABLE every_type (id INT PRIMARY KEY, {}) CHARACTER SET utf8mb4".format(
        ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    ),
    "CREATE TABLE plain (id INT, part VARCHAR(10), note TEXT NOT NULL, amount INT,"
    " at DATETIME NOT NULL, flag BOOLEAN NOT NULL, price DECIMAL(8,2) NOT NULL,"
    " PRIMARY KEY (id, part)) CHARACTER SET utf8mb4",
    "CREATE TABLE imaged (id BIGINT PRIMARY KEY, note TEXT, price DECIMAL(8,2), day DATE)"
    " CHARACTER SET utf8mb4",
    "CREATE TABLE emptied (id INT PRIMARY KEY, note TEXT) CHARACTER SET utf8mb4",
    "CREATE TABLE marks (id INT PRIMARY KEY)",
)
"""Before anyone looks."""


def _insert(at: int, row: Mapping[str, str]) -> str:
    names = ", ".join(["id", *row])
    values = ", ".join([str(at), *row.values()])
    return f"INSERT INTO every_type ({names}) VALUES ({values})"


_PLAIN_ROW = "'2026-11-28 10:00:00', true, 1.25"
_LAX = "SET SESSION sql_mode = ''"
DUMPED = (
    _LAX,
    *(_insert(at, row) for at, row in enumerate(ROWS)),
    f"INSERT INTO plain VALUES (1, 'a', 'old', 1, {_PLAIN_ROW})",
    "INSERT INTO imaged VALUES (1, 'old', 1.5, '2026-01-01')",
    "INSERT INTO emptied VALUES (1, 'a')",
    "INSERT INTO marks VALUES (1)",
)
"""Before capture: these rows are dumped."""

LOGGED = (
    _LAX,
    *(_insert(100 + at, row) for at, row in enumerate(ROWS)),
    "UPDATE every_type SET number = 43 WHERE id = 100",
    "DELETE FROM every_type WHERE id = 101",
    f"INSERT INTO plain VALUES (2, 'b', 'new', NULL, {_PLAIN_ROW})",
    "UPDATE plain SET note = 'newer', amount = 5 WHERE id = 2",
    "UPDATE plain SET id = 3, note = 'moved' WHERE id = 2",
    "UPDATE plain SET part = 'c' WHERE id = 3",
    "DELETE FROM plain WHERE id = 3",
    "INSERT INTO plain SELECT seq, 'x', 'many', seq, NOW(), false, seq FROM seq_10_to_12",
    "DELETE FROM plain WHERE id >= 11",
    "INSERT INTO imaged VALUES (2, 'new', NULL, '2026-02-02')",
    "UPDATE imaged SET note = 'newer' WHERE id = 2",
    "UPDATE imaged SET id = 5, price = 2 WHERE id = 2",
    "DELETE FROM imaged WHERE id = 5",
    "INSERT INTO emptied VALUES (2, 'b')",
    "TRUNCATE emptied",
    "INSERT INTO emptied VALUES (3, 'c')",
    "INSERT INTO marks VALUES (2)",
)
"""While both capture, each in a transaction of its own; the last one shows that all was read."""
