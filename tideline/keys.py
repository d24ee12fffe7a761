"""Parses keys as users write them: CSV, JSON lines, or the lines of a form.

A key is one text per key column, in key order, as the database prints it. Errors name the line,
never its content: keys are row values.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence

from tideline.contract.errors import Misconfigured

Key = tuple[str, ...]


def parse_csv(text: str) -> tuple[Key, ...]:
    """Parse keys from CSV (RFC 4180); empty lines are skipped."""
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        return tuple(tuple(fields) for fields in reader if fields)
    except csv.Error as error:
        raise Misconfigured(f"keys, line {reader.line_num}: {error}") from None


def parse_json_lines(text: str) -> tuple[Key, ...]:
    """Parse keys from JSON lines; numbers keep the digits that the file has."""
    keys = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
        except (json.JSONDecodeError, RecursionError):
            raise Misconfigured(f"keys, line {number}: not JSON") from None
        fields = value if isinstance(value, list) else [value]
        if not fields or not all(isinstance(field, str) for field in fields):
            raise Misconfigured(
                f"keys, line {number}: not a key",
                hint='write ["text", 1], one text or number per key column, or one alone',
            )
        keys.append(tuple(fields))
    return tuple(keys)


def parse_line(line: str, number: int, columns: int | None = None) -> Key | None:
    """Parse the key in line ``number`` of a form; None for an empty one.

    A JSON list, or the values separated by commas (one that holds a comma in double quotes). A key
    of one column, where ``columns`` says so, is the whole line, including commas. Misconfigured
    where it is not a key, or not one of so many columns.
    """
    text = line.strip()
    if not text:
        return None
    if text.startswith("["):
        keys: Sequence[Key] = _from_json(text, number)
    elif columns == 1 and not (text.startswith('"') and text.endswith('"') and len(text) > 1):
        keys = [(text,)]
    else:
        keys = _from_csv(text, number)
    if len(keys) != 1:
        raise Misconfigured(f"line {number}: one key per line")
    if columns is not None and len(keys[0]) != columns:
        raise Misconfigured(
            f"line {number}: {len(keys[0])} values for a key of {columns} columns",
            hint='separate them by commas, or write a JSON list: ["17", "2"]',
        )
    return keys[0]


def _from_json(text: str, number: int) -> Sequence[Key]:
    try:
        return parse_json_lines(text)
    except Misconfigured as wrong:
        raise Misconfigured(
            wrong.message.replace("keys, line 1", f"line {number}"), hint=wrong.hint
        ) from None


def _from_csv(text: str, number: int) -> Sequence[Key]:
    try:
        [row] = csv.reader([text], strict=True, skipinitialspace=True)
    except (csv.Error, ValueError):
        raise Misconfigured(
            f"line {number}: a quote that does not end, or text behind one",
            hint='a value that holds a comma or a quote is written "so", a quote in it twice',
        ) from None
    return [tuple(field.strip() for field in row)]
