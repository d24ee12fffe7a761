"""Which clauses of ALTER TABLE leave every row that exists as it was.

A list of what is known to be harmless, never of what is harmful: a clause that is not on it may
have changed rows. A new column is harmless when rows that exist hold NULL in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from capture.sources.mysql.sql_tokens import Shape, Token

# A clause is matched as one text, in which a space ends every token: a word in capitals, ` for a
# quoted name, ' for a string, and marks as they are.
_NAME = r"(?:` |(?!PRIMARY )[^\s`'(),=.]+ )"
_VALUE = r"(?:' |` |[^\s`'(),=]+ )"
_PARENTHESES = r"(?:\( [^()]*\) )"
TYPES = (
    "BIT|BOOL|BOOLEAN|TINYINT|SMALLINT|MEDIUMINT|INT|INTEGER|BIGINT|DECIMAL|DEC|NUMERIC|FIXED"
    "|FLOAT|DOUBLE|REAL|DATE|DATETIME|TIME|YEAR|CHAR|VARCHAR|NCHAR|NVARCHAR|BINARY|VARBINARY"
    "|TINYBLOB|BLOB|MEDIUMBLOB|LONGBLOB|TINYTEXT|TEXT|MEDIUMTEXT|LONGTEXT|ENUM|SET|JSON|UUID"
    "|INET4|INET6|VECTOR|GEOMETRY|POINT|LINESTRING|POLYGON|MULTIPOINT|MULTILINESTRING"
    "|MULTIPOLYGON|GEOMETRYCOLLECTION"
)
"""Types of columns, of which one word is enough."""
# A TIMESTAMP that does not say NULL may be NOT NULL without saying that either.
_TYPE = rf"(?:(?:{TYPES}) {_PARENTHESES}?|TIMESTAMP {_PARENTHESES}?NULL )"
_CHARSET = rf"(?:CHARACTER SET|CHARSET|COLLATE) (?:= )?{_VALUE}"
_ATTRIBUTE = (
    "(?:(?:UNSIGNED|SIGNED|ZEROFILL|PRECISION|VARYING|BINARY|ASCII|UNICODE|VISIBLE|INVISIBLE"
    "|COMPRESSED|NULL|DEFAULT NULL|COMMENT '|UNIQUE|UNIQUE KEY) "
    rf"|(?:COLUMN_FORMAT|STORAGE) \w+ |{_CHARSET})"
)
_COLUMN = rf"{_NAME}{_TYPE}{_ATTRIBUTE}*(?:FIRST |AFTER {_NAME})?"
_OPTIONS = (
    "AUTO_INCREMENT|AVG_ROW_LENGTH|CHECKSUM|COMMENT|COMPRESSION|DELAY_KEY_WRITE|ENCRYPTED"
    "|ENCRYPTION|ENCRYPTION_KEY_ID|KEY_BLOCK_SIZE|MAX_ROWS|MIN_ROWS|PACK_KEYS|PAGE_CHECKSUM"
    "|PAGE_COMPRESSED|PAGE_COMPRESSION_LEVEL|ROW_FORMAT|STATS_AUTO_RECALC|STATS_PERSISTENT"
    "|STATS_SAMPLE_PAGES|TABLE_CHECKSUM|TRANSACTIONAL|ALGORITHM|LOCK"
)
# Engines that keep rows; BLACKHOLE does not.
_OPTION = (
    rf"(?:(?:{_OPTIONS}) (?:= )?{_VALUE}|(?:DEFAULT )?{_CHARSET}"
    "|ENGINE (?:= )?(?:INNODB|MYISAM|ARIA|ROCKSDB) )"
)
_HARMLESS = re.compile(
    "|".join(
        (
            rf"ADD (?:COLUMN )?(?:IF NOT EXISTS )?{_COLUMN}",
            rf"ADD (?:COLUMN )?\( {_COLUMN}(?:, {_COLUMN})*\) ",
            r"ADD (?:INDEX|KEY|FULLTEXT|SPATIAL|VECTOR|UNIQUE|FOREIGN KEY|CHECK) .*",
            rf"ADD CONSTRAINT {_NAME}??(?:UNIQUE|FOREIGN KEY|CHECK) .*",
            r"ADD PARTITION .*",
            rf"DROP (?:INDEX|KEY|CONSTRAINT|FOREIGN KEY|CHECK) (?:IF EXISTS )?{_NAME}",
            rf"RENAME (?:INDEX|KEY) {_NAME}TO {_NAME}",
            rf"ALTER (?:COLUMN )?{_NAME}(?:SET DEFAULT .*|DROP DEFAULT |SET (?:IN)?VISIBLE )",
            rf"ALTER (?:INDEX|KEY) {_NAME}(?:VISIBLE |INVISIBLE |(?:NOT )?IGNORED )",
            rf"ALTER (?:CHECK|CONSTRAINT) {_NAME}(?:NOT )?ENFORCED ",
            r"(?:ENABLE|DISABLE) KEYS ",
            r"(?:WITH|WITHOUT) VALIDATION ",
            r"FORCE ",
            rf"{_OPTION}+",
        )
    ),
    re.DOTALL,
)


def clauses(alteration: Iterable[Token]) -> list[list[Token]]:
    """What follows the table's name, cut at the commas between clauses."""
    found: list[list[Token]] = [[]]
    depth = 0
    for token in alteration:
        if token.upper == "," and not depth:
            found.append([])
            continue
        depth += (token.upper == "(") - (token.upper == ")")
        found[-1].append(token)
    return [clause for clause in found if clause]


def is_harmless(clause: Sequence[Token]) -> bool:
    """Whether this clause is known to leave rows that exist as they were."""
    return _HARMLESS.fullmatch("".join(f"{_written(token)} " for token in clause)) is not None


def _written(token: Token) -> str:
    if token.shape is Shape.STRING:
        return "'"
    if token.shape is Shape.NAME:
        return "PRIMARY" if token.text.upper() == "PRIMARY" else "`"
    return token.upper
