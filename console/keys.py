"""Files of keys: CSV with one key per line, or JSON lines; ``-`` is standard input, as CSV.

A key is one text per key column, in key order, as the database prints it. In CSV an empty field is
the empty text. In JSON lines a line is a list of texts and numbers, or one alone. Errors name the
line, never what is in it: keys are row values.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

from tideline.contract.errors import Misconfigured

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
STDIN = Path("-")

Key = tuple[str, ...]


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys in the file; Misconfigured when there are none or a line is not a key."""
    try:
        text = (
            sys.stdin.buffer.read().decode("utf-8-sig")
            if path == STDIN
            else path.read_text(encoding="utf-8-sig")
        )
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Misconfigured(f"the keys file {path} cannot be read: {reason}") from None
    parse = parse_json_lines if path.suffix in JSON_SUFFIXES else parse_csv
    keys = parse(text)
    if not keys:
        raise Misconfigured(f"the keys file {path} holds no key")
    lengths = {len(key) for key in keys}
    if len(lengths) > 1:
        raise Misconfigured(f"the keys file {path} holds keys of {sorted(lengths)} columns")
    return keys


def parse_csv(text: str) -> tuple[Key, ...]:
    """Keys from CSV (RFC 4180); empty lines are passed over."""
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        return tuple(tuple(fields) for fields in reader if fields)
    except csv.Error as error:
        raise Misconfigured(f"keys, line {reader.line_num}: {error}") from None


def parse_json_lines(text: str) -> tuple[Key, ...]:
    """Keys from JSON lines; numbers keep the digits that the file has."""
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
