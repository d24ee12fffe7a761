"""Makes requests from command lines, and from files of keys.

Such a file is CSV with one key per line, or JSON lines; ``-`` is standard input, as CSV. A key is
one text per key column, in key order, as the database prints it. In CSV an empty field is the empty
text. In JSON lines a line is a list of texts and numbers, or one alone. Errors name the line, never
its content: keys are row values.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tideline.contract.errors import Misconfigured
from tideline.contract.options import Option, OptionKind, Purpose, options_of, parse_choice
from tideline.contract.patterns import check_patterns
from tideline.contract.request import DumpRequest, KeyRange, TimeRange, check_request
from tideline.keys import Key, parse_csv, parse_json_lines

EVERY_TABLE = "*.*"
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
STDIN = Path("-")


def make_request(
    tables: Sequence[str],
    *,
    purpose: Purpose = "dump",
    every: bool = False,
    request_id: str | None = None,
    **given: Any,
) -> DumpRequest:
    """Make the request of a command line; ``given`` are its options, by their names. Misconfigured
    when they do not fit."""
    if every == bool(tables):
        raise Misconfigured("name tables, or --all, one of the two")
    if purpose == "verify":
        check_patterns(tables)
    options = {option.name: option for option in options_of(DumpRequest, purpose)}
    request = DumpRequest(
        request_id=request_id or _new_id(purpose),
        tables=(EVERY_TABLE,) if every else tuple(tables),
        requested_by=requester(),
        purpose=purpose,
        **{name: _value(options[name], value) for name, value in given.items()},
    )
    check_request(request)
    return request


def _new_id(purpose: Purpose) -> str:
    """Make an id; a verification's is short, because other ids are made from it."""
    unique = uuid.uuid4().hex
    return f"verify-{unique[:16]}" if purpose == "verify" else f"cli-{unique}"


def requester() -> str:
    """Name who is at this terminal."""
    return f"{os.environ.get('USER') or os.getuid()}@{socket.gethostname()}"


def _value(option: Option, given: Any) -> Any:
    """Read an option's value as its command gives it."""
    if given is None:
        return option.default
    return VALUES[option.kind](option, given)


def _as_given(_: Option, given: Any) -> Any:
    return given


def _key_range(_: Option, given: Any) -> KeyRange | None:
    return None if given == (None, None) else KeyRange(*map(_bound, given))


def _bound(text: str | None) -> Key | None:
    """Read a key, or the first columns of one, from a line of CSV."""
    if text is None:
        return None
    keys = parse_csv(text)
    if len(keys) != 1:
        raise Misconfigured("a bound of keys is one line of CSV: a field per key column")
    return keys[0]


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


VALUES: Mapping[OptionKind, Callable[[Option, Any], Any]] = {
    OptionKind.NUMBER: _as_given,
    OptionKind.DECIMAL: _as_given,
    OptionKind.FLAG: _as_given,
    OptionKind.TEXT: _as_given,
    OptionKind.CHOICE: parse_choice,
    OptionKind.KEY: lambda _, given: _bound(given),
    OptionKind.KEYS: lambda _, given: read_keys(given),
    OptionKind.KEY_RANGE: _key_range,
    OptionKind.TIME_RANGE: lambda _, given: TimeRange(*given),
}
