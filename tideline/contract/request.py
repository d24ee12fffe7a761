"""Dump requests and their answers: document (c).

The client chooses the id of a request. Asking again with the same id joins the request that exists.
It is *accepted* only once a manifest that names it is durable; from then on it ends in ``done`` or
``failed`` even if processes are killed, because the chain's open state holds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

import msgspec

from tideline.contract.document import DocumentReader, written_features, written_version
from tideline.contract.errors import Misconfigured
from tideline.contract.options import RANGE, Option, Purpose, limit_rules
from tideline.contract.reasons import SnapshotReason, reason_of

REQUEST_VERSION = 1
FEATURES: frozenset[str] = frozenset()
"""The optional features that this version understands, of requests and of answers."""
KEYS_MAX = 100_000
TABLES_MAX = 10_000
PATTERN_CHARACTERS_MAX = 1_000
NOTE_CHARACTERS_MAX = 1_000
"""Maximum length of ``requested_by``, which every message of a cancelled request repeats."""
COMMAND_REQUESTS_MAX = 1_000
CHUNK_ROWS_MAX = 1_000_000
DELAY_MS_MAX = 3_600_000
PRIORITY_MAX = 10

Message = TypeVar("Message")

_UNBOUNDED = "key_range needs from, to or both, each with at least one text"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+/@=-]{0,199}")


def is_id(text: str) -> bool:
    """Return whether ``text`` can be the id of a request or a command."""
    return _ID.fullmatch(text) is not None


class TimeRange(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}
):
    """Rows whose ``column`` is in ``[from, to)``; the bounds are text the database parses."""

    column: Annotated[
        str, Option("Time column", "Only rows whose value here is in the range, of every table.")
    ]
    start: Annotated[
        str, Option("From time", "As the database writes it: 2026-01-31 00:00:00. Included.")
    ]
    end: Annotated[str, Option("To time", "As the database writes it. Not included.")]


class KeyRange(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}
):
    """Rows whose key is in ``[from, to)``, in the order that the database has for keys.

    A bound is a list of texts that the database parses, one per key column, or of the first key
    columns only: it is compared with those. One that is absent leaves its end open.
    """

    start: Annotated[
        tuple[str, ...] | None,
        Option("From key", "Only rows with this key or a later one, in the database's order."),
    ] = None
    end: Annotated[tuple[str, ...] | None, Option("To key", "Only rows before this key.")] = None


class DumpRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request to dump rows, or (``purpose`` ``verify``) to read them for a comparison. One of
    four scopes:

    whole tables (none of the others): a finished dump is delete-complete; given keys (``keys``, of
    one table): each key a list with one text per key column, in key order; a key that the source no
    longer has becomes a delete; a range of keys (``key_range``) or of time (``time``), of one
    table: never deletes by itself. With ``keys`` in addition to a range, these are read after it:
    so the keys that the warehouse has in the range are compared with the source, and those that it
    lacks become deletes.

    ``tables`` are shell patterns over ``schema.table``; ``["*.*"]`` asks for every captured table.
    Of several requests the one with the higher ``priority`` is served first; of the same priority,
    those for given keys, and then the oldest.

    Rows that are read to verify go to verification parts and change nothing; ``time`` is not for
    that. ``sample_percent`` is: of so many chunks of a hundred, chosen by the request's id, the
    rows are read, of the others only where they end.
    """

    request_id: str
    tables: tuple[str, ...]
    version: int = written_version(REQUEST_VERSION)
    requires: tuple[str, ...] = written_features()
    keys: Annotated[
        tuple[tuple[str, ...], ...] | None,
        Option(
            "Keys",
            "Only these keys of one table, which are read after a range that is given, too. Those"
            " that the source lacks are deleted.",
            purposes=("dump",),
            section="",
        ),
    ] = None
    time: Annotated[
        TimeRange | None,
        Option(
            "Range of time",
            "Only rows whose COLUMN is in [FROM, TO).",
            purposes=("dump",),
            section=RANGE,
        ),
    ] = None
    key_range: Annotated[
        KeyRange | None, Option("Range of keys", "Of one table.", section=RANGE)
    ] = None
    priority: Annotated[
        int,
        Option(
            "Priority",
            "The higher one is served first, at the next chunk.",
            least=-PRIORITY_MAX,
            most=PRIORITY_MAX,
        ),
    ] = 0
    chunk_rows: Annotated[
        int | None,
        Option(
            "Rows per chunk",
            "How many rows one query reads.",
            least=1,
            most=CHUNK_ROWS_MAX,
            empty="the worker's setting",
        ),
    ] = None
    delay_ms: Annotated[
        int | None,
        Option(
            "Pause between chunks (ms)",
            "Spares a busy source.",
            least=0,
            most=DELAY_MS_MAX,
            empty="the worker's setting",
        ),
    ] = None
    requested_by: str = ""
    purpose: Purpose = "dump"
    sample_percent: Annotated[
        int | None,
        Option(
            "Sample (%)",
            "Read so many chunks of a hundred only.",
            least=1,
            most=100,
            purposes=("verify",),
            section=RANGE,
            empty="all rows",
        ),
    ] = None

    @property
    def why(self) -> SnapshotReason | None:
        """The reason for which Tideline itself asks; None for a user's request."""
        return reason_of(self.request_id)

    @property
    def verifies(self) -> bool:
        """Return whether the rows that are read are only to be compared."""
        return self.purpose == "verify"

    @property
    def unbounded(self) -> bool:
        """Return whether it asks for all rows of its tables."""
        return self.keys is None and not self.ranged

    @property
    def whole(self) -> bool:
        """Return whether it is a dump of whole tables, which is delete-complete."""
        return self.unbounded and not self.verifies

    @property
    def ranged(self) -> bool:
        """Return whether it asks for the rows of a range."""
        return self.time is not None or self.key_range is not None


class Action(StrEnum):
    """The effect of a command on requests."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    TUNE = "tune"


Throttle = int | Literal["default"] | None


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A command for open requests: those named, or (``requests`` absent) all, including later ones
    until the opposite command.

    ``chunk_rows`` and ``delay_ms`` are for ``tune``: a number, or ``"default"`` for the value of
    the request or the worker's settings. It is answered like a request, under ``command_id``.
    """

    command_id: str
    action: Action
    version: int = written_version(REQUEST_VERSION)
    requires: tuple[str, ...] = written_features()
    requests: tuple[str, ...] | None = None
    chunk_rows: Throttle = None
    delay_ms: Throttle = None
    requested_by: str = ""


class RequestState(StrEnum):
    """The life of a request; ``refused`` is for one that was never accepted.

    ``paused`` by a command, ``throttled`` to spare the source (the answer says by what).
    """

    ACCEPTED = "accepted"
    RUNNING = "running"
    PAUSED = "paused"
    THROTTLED = "throttled"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"

    @property
    def final(self) -> bool:
        return self in (RequestState.DONE, RequestState.FAILED, RequestState.REFUSED)


class TableProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of the dump of one table: chunk ``chunks`` of about ``chunks_estimate``.

    ``rows_per_s`` is the rate of the last chunks, ``remaining_s`` how long the rest takes at it.
    """

    table: str
    state: RequestState
    chunks: int = 0
    chunks_estimate: int | None = None
    rows: int = 0
    rows_estimate: int | None = None
    waiting: str | None = None
    error: str | None = None
    rows_per_s: float | None = None
    remaining_s: float | None = None


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The worker's latest answer to a request.

    ``manifest_number`` is that of the manifest which made the state durable: a merge that has
    applied it has applied all of a ``done`` request's rows. ``error`` and ``hint`` say why a
    request failed or was refused. ``again``: it was refused for want of room, and the same request
    may be accepted once others have ended.
    """

    request_id: str
    state: RequestState
    version: int = written_version(REQUEST_VERSION)
    requires: tuple[str, ...] = written_features()
    manifest_number: int | None = None
    tables: tuple[TableProgress, ...] = ()
    error: str | None = None
    hint: str | None = None
    again: bool = False


def parse_request(raw: bytes) -> DumpRequest:
    """Decode and check one request; raises Misconfigured, naming the field, for anything invalid.

    The error never quotes a key: keys are row values.
    """
    request = _decoded(_REQUESTS, raw, "request")
    check_request(request)
    return request


def check_request(request: DumpRequest) -> None:
    """Raise Misconfigured with every rule that ``request`` breaks."""
    _check(_rules(request), "request")


def parse_command(raw: bytes) -> Command:
    """Decode and check one command; raises like `parse_request`."""
    command = _decoded(_COMMANDS, raw, "command")
    check_command(command)
    return command


def check_command(command: Command) -> None:
    """Raise Misconfigured with every rule that ``command`` breaks."""
    _check(_command_rules(command), "command")


def parse_throttle(name: str, given: int | str | None) -> Throttle:
    """Parse a throttle as it is typed; Misconfigured for what is neither a number nor ``default``,
    with the ``name`` of the option."""
    if given is None or given == "default":
        return None if given is None else "default"
    if not str(given).isdecimal():
        raise Misconfigured(f"{name} must be a number, or default")
    return int(given)


def encode_command(command: Command) -> bytes:
    return msgspec.json.encode(command)


def encode_request(request: DumpRequest) -> bytes:
    return msgspec.json.encode(request)


def parse_answer(raw: bytes) -> Answer:
    """Decode an answer; CorruptData for bytes that are not one, or that need a newer reader.

    Unknown fields are ignored, unknown states are an error.
    """
    return _ANSWERS.read(raw)


_REQUESTS = msgspec.json.Decoder(DumpRequest)
_COMMANDS = msgspec.json.Decoder(Command)
_ANSWERS = DocumentReader(Answer, version=REQUEST_VERSION, features=FEATURES, name="dump answer")


def encode_answer(answer: Answer) -> bytes:
    return msgspec.json.encode(answer)


def _decoded(decoder: msgspec.json.Decoder[Message], raw: bytes, what: str) -> Message:
    try:
        return decoder.decode(raw)
    except UnicodeDecodeError:
        raise Misconfigured(f"the {what} is not valid: it is not UTF-8") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Misconfigured(f"the {what} is not valid: {error}") from None


def _check(rules: Iterable[tuple[bool, str]], what: str) -> None:
    wrong = [text for broken, text in rules if broken]
    if wrong:
        raise Misconfigured(f"the {what} is not valid: " + "; ".join(wrong))


def _rules(request: DumpRequest) -> list[tuple[bool, str]]:
    keys = request.keys
    unknown = sorted(set(request.requires) - FEATURES)
    return [
        (request.version != REQUEST_VERSION, f"version must be {REQUEST_VERSION}"),
        (bool(unknown), f"unknown features required: {', '.join(unknown)}"),
        (not is_id(request.request_id), "request_id must be 1 to 200 plain characters"),
        (_holds_nul(request), "no text may hold the character NUL"),
        (not request.tables, "tables must name at least one table"),
        (len(request.tables) > TABLES_MAX, f"tables holds more than {TABLES_MAX} patterns"),
        (
            any(len(pattern) > PATTERN_CHARACTERS_MAX for pattern in request.tables),
            f"a pattern has more than {PATTERN_CHARACTERS_MAX} characters",
        ),
        *_note_rules(request.requested_by),
        (
            request.time is not None and request.key_range is not None,
            "key_range and time exclude each other",
        ),
        (request.key_range is not None and not _bounded(request.key_range), _UNBOUNDED),
        (
            request.key_range is not None and request.key_range.start == request.key_range.end,
            "key_range is empty: from and to are the same",
        ),
        (keys is not None and len(request.tables) != 1, "keys needs exactly one table"),
        (
            request.key_range is not None and len(request.tables) != 1,
            "key_range needs exactly one table",
        ),
        (keys is not None and not keys, "keys must not be empty"),
        (keys is not None and len(keys) > KEYS_MAX, f"keys holds more than {KEYS_MAX} keys"),
        (keys is not None and len({len(key) for key in keys}) > 1, "keys differ in length"),
        *_verify_rules(request),
        *limit_rules(request, DumpRequest),
    ]


def _verify_rules(request: DumpRequest) -> list[tuple[bool, str]]:
    share = request.sample_percent
    return [
        (request.verifies and request.time is not None, "a range of time cannot be verified"),
        (
            request.verifies and request.keys is not None and request.ranged,
            "to verify, give keys or a range of keys, not both",
        ),
        (share is not None and not request.verifies, "sample_percent is for purpose verify"),
        (share is not None and request.keys is not None, "given keys are not sampled"),
    ]


def _command_rules(command: Command) -> list[tuple[bool, str]]:
    unknown = sorted(set(command.requires) - FEATURES)
    tunes = command.chunk_rows is not None or command.delay_ms is not None
    named = (command.command_id, *(command.requests or ()))
    return [
        (command.version != REQUEST_VERSION, f"version must be {REQUEST_VERSION}"),
        (bool(unknown), f"unknown features required: {', '.join(unknown)}"),
        (not all(map(is_id, named)), "ids must be 1 to 200 plain characters"),
        ("\0" in command.requested_by, "no text may hold the character NUL"),
        *_note_rules(command.requested_by),
        (
            len(command.requests or ()) > COMMAND_REQUESTS_MAX,
            f"requests names more than {COMMAND_REQUESTS_MAX}",
        ),
        (command.requests == (), "requests must name at least one request, or be left out"),
        (command.action is Action.TUNE and not tunes, "tune needs chunk_rows or delay_ms"),
        (command.action is not Action.TUNE and tunes, "chunk_rows and delay_ms are for tune"),
        *limit_rules(command, DumpRequest),
    ]


def _note_rules(requested_by: str) -> list[tuple[bool, str]]:
    most = NOTE_CHARACTERS_MAX
    return [(len(requested_by) > most, f"requested_by has more than {most} characters")]


def _bounded(wanted: KeyRange) -> bool:
    ends = [end for end in (wanted.start, wanted.end) if end is not None]
    return bool(ends) and all(ends)


def _holds_nul(request: DumpRequest) -> bool:
    """Return whether a text holds NUL: no source takes it, and drivers refuse it in their own
    ways."""
    texts = [request.requested_by, *request.tables]
    if request.key_range is not None:
        texts += [*(request.key_range.start or ()), *(request.key_range.end or ())]
    if request.time is not None:
        texts += [request.time.column, request.time.start, request.time.end]
    return any("\0" in text for key in (texts, *(request.keys or ())) for text in key)
