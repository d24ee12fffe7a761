"""Dump requests and their answers: document (c).

A request is asked for with an id of the asker's choice. Asking again with the same id joins the
request that exists. It is *accepted* only once a manifest that names it is durable; from then on
it ends in ``done`` or ``failed`` whatever is killed, because the chain's open state holds it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import msgspec

from tideline.contract.document import DocumentReader, written_features, written_version
from tideline.contract.errors import Misconfigured

REQUEST_VERSION = 1
FEATURES: frozenset[str] = frozenset()
"""The optional features that this version understands, of requests and of answers."""
KEYS_MAX = 100_000
TABLES_MAX = 10_000
CHUNK_ROWS_MAX = 1_000_000
DELAY_MS_MAX = 3_600_000

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+/@=-]{0,199}")


class TimeRange(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}
):
    """Rows whose ``column`` is in ``[from, to)``; the bounds are text the database parses."""

    column: str
    start: str
    end: str


class DumpRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to dump. Exactly one of three scopes:

    whole tables (``keys`` and ``time`` absent): a finished dump is delete-complete; given keys
    (``keys``, of one table): each key a list with one text per key column, in key order; a key that
    the source no longer has becomes a delete; a time range (``time``): never deletes.

    ``tables`` are shell patterns over ``schema.table``; ``["*.*"]`` asks for every captured table.
    """

    request_id: str
    tables: tuple[str, ...]
    version: int = written_version(REQUEST_VERSION)
    requires: tuple[str, ...] = written_features()
    keys: tuple[tuple[str, ...], ...] | None = None
    time: TimeRange | None = None
    chunk_rows: int | None = None
    delay_ms: int | None = None
    requested_by: str = ""

    @property
    def whole(self) -> bool:
        """Whether the request asks for whole tables, so that its dumps are delete-complete."""
        return self.keys is None and self.time is None


class RequestState(StrEnum):
    """The life of a request; ``refused`` is for one that never was accepted."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"

    @property
    def final(self) -> bool:
        return self in (RequestState.DONE, RequestState.FAILED, RequestState.REFUSED)


class TableProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the dump of one table is: chunk ``chunks`` of about ``chunks_estimate``."""

    table: str
    state: RequestState
    chunks: int = 0
    chunks_estimate: int | None = None
    rows: int = 0
    rows_estimate: int | None = None
    waiting: str | None = None
    error: str | None = None


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the worker last said of a request.

    ``manifest_number`` is that of the manifest which made the state durable: a merge that has
    applied it has applied all of a ``done`` request's rows. ``error`` and ``hint`` say why a
    request failed or was refused.
    """

    request_id: str
    state: RequestState
    version: int = written_version(REQUEST_VERSION)
    requires: tuple[str, ...] = written_features()
    manifest_number: int | None = None
    tables: tuple[TableProgress, ...] = ()
    error: str | None = None
    hint: str | None = None


def parse_request(raw: bytes) -> DumpRequest:
    """Decode and check one request; raises Misconfigured, naming the field, for anything odd.

    The error never quotes a key: keys are row values.
    """
    try:
        request = _REQUESTS.decode(raw)
    except UnicodeDecodeError:
        raise Misconfigured("the request is not valid: it is not UTF-8") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Misconfigured(f"the request is not valid: {error}") from None
    check_request(request)
    return request


def check_request(request: DumpRequest) -> None:
    """Raise Misconfigured with every rule that ``request`` breaks."""
    wrong = [text for broken, text in _rules(request) if broken]
    if wrong:
        raise Misconfigured("the request is not valid: " + "; ".join(wrong))


def encode_request(request: DumpRequest) -> bytes:
    return msgspec.json.encode(request)


def parse_answer(raw: bytes) -> Answer:
    """Decode an answer; CorruptData for bytes that are not one, or that need a newer reader.

    Unknown fields are ignored, unknown states are an error.
    """
    return _ANSWERS.read(raw)


_REQUESTS = msgspec.json.Decoder(DumpRequest)
_ANSWERS = DocumentReader(Answer, version=REQUEST_VERSION, features=FEATURES, name="dump answer")


def encode_answer(answer: Answer) -> bytes:
    return msgspec.json.encode(answer)


def _rules(request: DumpRequest) -> list[tuple[bool, str]]:
    keys = request.keys
    rows: Any = request.chunk_rows
    unknown = sorted(set(request.requires) - FEATURES)
    return [
        (request.version != REQUEST_VERSION, f"version must be {REQUEST_VERSION}"),
        (bool(unknown), f"unknown features required: {', '.join(unknown)}"),
        (not _ID.fullmatch(request.request_id), "request_id must be 1 to 200 plain characters"),
        (_holds_nul(request), "no text may hold the character NUL"),
        (not request.tables, "tables must name at least one table"),
        (len(request.tables) > TABLES_MAX, f"tables holds more than {TABLES_MAX} patterns"),
        (keys is not None and request.time is not None, "keys and time exclude each other"),
        (keys is not None and len(request.tables) != 1, "keys needs exactly one table"),
        (keys is not None and not keys, "keys must not be empty"),
        (keys is not None and len(keys) > KEYS_MAX, f"keys holds more than {KEYS_MAX} keys"),
        (keys is not None and len({len(key) for key in keys}) > 1, "keys differ in length"),
        (
            rows is not None and not 1 <= rows <= CHUNK_ROWS_MAX,
            f"chunk_rows must be 1 to {CHUNK_ROWS_MAX}",
        ),
        (
            request.delay_ms is not None and not 0 <= request.delay_ms <= DELAY_MS_MAX,
            f"delay_ms must be 0 to {DELAY_MS_MAX}",
        ),
    ]


def _holds_nul(request: DumpRequest) -> bool:
    """No source takes NUL in a name or a text, and drivers refuse it in their own ways."""
    texts = [request.requested_by, *request.tables]
    if request.time is not None:
        texts += [request.time.column, request.time.start, request.time.end]
    return any("\0" in text for key in (texts, *(request.keys or ())) for text in key)
