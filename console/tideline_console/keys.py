"""Reads files of keys: CSV with one key per line, or JSON lines; ``-`` is standard input, as CSV.

A key is one text per key column, in key order, as the database prints it. In CSV an empty field is
the empty text. In JSON lines a line is a list of texts and numbers, or one alone. Errors name the
line, never its content: keys are row values.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tideline.contract.errors import Misconfigured
from tideline.keys import Key, parse_csv, parse_json_lines

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
STDIN = Path("-")


def read_keys(path: Path) -> tuple[Key, ...]:
    """Read the keys in the file; Misconfigured when there are none or a line is not a key."""
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
