"""Every kind of event that a binlog may hold, and how it is handled.

An event is handled in bulk (rows and the table maps before them), read one by one (`RARE`), passed
over for a reason that is written here (`IGNORED`), or it ends the run by name (`STOP`). A code that
is not in the table ends the run as well, even where the server marked the event as one that a
replica may ignore: an unknown event is never skipped.

Codes up to 42 are `Log_event_type` of MySQL's ``libs/mysql/binlog/event/binlog_event.h``, those
from 160 on MariaDB's ``sql/log_event.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, auto

from tideline.contract.errors import CorruptData, Misconfigured, SourceLost, TidelineError

IGNORABLE_FLAG = 0x80
"""LOG_EVENT_IGNORABLE_F in an event's header: a replica that does not know it may skip it."""
ARTIFICIAL_FLAG = 0x20
"""LOG_EVENT_ARTIFICIAL_F: made for this connection, in no file; its position means nothing."""
COMPRESSED_ROWS_V1 = 143
"""166, 167 and 168 less this are the codes of the same events in plain form."""
COMPRESSED_ROWS_V2 = 139
"""169, 170 and 171 less this are the codes of the same events in plain form."""


class EventCode(IntEnum):
    """The codes that the reader names."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    FORMAT_DESCRIPTION = 15
    XID = 16
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171
    PARTIAL_ROW_DATA = 172


class Treatment(Enum):
    """The reader's handling of a kind of event."""

    BULK = auto()
    RARE = auto()
    IGNORED = auto()
    STOP = auto()


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of event; ``why`` is the reason why it may be ignored, or why it must end the run."""

    name: str
    treatment: Treatment
    why: str = ""


def _bulk(name: str) -> EventKind:
    return EventKind(name, Treatment.BULK)


def _rare(name: str) -> EventKind:
    return EventKind(name, Treatment.RARE)


def _ignored(name: str, why: str) -> EventKind:
    return EventKind(name, Treatment.IGNORED, why)


def _stop(name: str, why: str) -> EventKind:
    return EventKind(name, Treatment.STOP, why)


_OLD = "written by servers before 5.0 only, its layout is not read"
_OLD_ROWS = "row events of 5.1 before its release, their layout is not read"
_LOAD = "LOAD DATA was logged in statement form, its rows are not in the log"
_CONTEXT = "context of the statement that follows, which is judged by its own text"

EVENT_KINDS = {
    1: _stop("START_V3", _OLD),
    2: _rare("QUERY"),
    3: _rare("STOP"),
    4: _rare("ROTATE"),
    5: _ignored("INTVAR", _CONTEXT),
    6: _stop("LOAD", _LOAD),
    7: _stop("SLAVE", _OLD),
    8: _stop("CREATE_FILE", _LOAD),
    9: _stop("APPEND_BLOCK", _LOAD),
    10: _stop("EXEC_LOAD", _LOAD),
    11: _ignored("DELETE_FILE", "ends a LOAD DATA that failed and changed nothing"),
    12: _stop("NEW_LOAD", _LOAD),
    13: _ignored("RAND", _CONTEXT),
    14: _ignored("USER_VAR", _CONTEXT),
    15: _rare("FORMAT_DESCRIPTION"),
    16: _rare("XID"),
    17: _stop("BEGIN_LOAD_QUERY", _LOAD),
    18: _stop("EXECUTE_LOAD_QUERY", _LOAD),
    19: _bulk("TABLE_MAP"),
    20: _stop("PRE_GA_WRITE_ROWS", _OLD_ROWS),
    21: _stop("PRE_GA_UPDATE_ROWS", _OLD_ROWS),
    22: _stop("PRE_GA_DELETE_ROWS", _OLD_ROWS),
    23: _bulk("WRITE_ROWS_V1"),
    24: _bulk("UPDATE_ROWS_V1"),
    25: _bulk("DELETE_ROWS_V1"),
    26: _stop("INCIDENT", "the server lost changes before they reached its log"),
    27: _rare("HEARTBEAT"),
    28: _ignored("IGNORABLE", "an empty frame, made to be ignored by replicas"),
    29: _ignored("ROWS_QUERY", "the text of the statement whose rows follow"),
    30: _bulk("WRITE_ROWS"),
    31: _bulk("UPDATE_ROWS"),
    32: _bulk("DELETE_ROWS"),
    33: _rare("GTID"),
    34: _rare("ANONYMOUS_GTID"),
    35: _rare("PREVIOUS_GTIDS"),
    36: _ignored("TRANSACTION_CONTEXT", "Group Replication's certification data"),
    37: _ignored("VIEW_CHANGE", "a change of Group Replication's members"),
    38: _rare("XA_PREPARE"),
    39: _stop("PARTIAL_UPDATE_ROWS", "holds parts of JSON documents, not the documents"),
    40: _rare("TRANSACTION_PAYLOAD"),
    41: _rare("HEARTBEAT_V2"),
    42: _rare("GTID_TAGGED"),
    160: _ignored("ANNOTATE_ROWS", "the text of the statement whose rows follow"),
    161: _ignored("BINLOG_CHECKPOINT", "for the server's own recovery"),
    162: _rare("MARIADB_GTID"),
    163: _rare("MARIADB_GTID_LIST"),
    164: _ignored("START_ENCRYPTION", "the server decrypts what it sends"),
    165: _rare("QUERY_COMPRESSED"),
    166: _bulk("WRITE_ROWS_COMPRESSED_V1"),
    167: _bulk("UPDATE_ROWS_COMPRESSED_V1"),
    168: _bulk("DELETE_ROWS_COMPRESSED_V1"),
    169: _bulk("WRITE_ROWS_COMPRESSED"),
    170: _bulk("UPDATE_ROWS_COMPRESSED"),
    171: _bulk("DELETE_ROWS_COMPRESSED"),
    172: _stop("PARTIAL_ROW_DATA", "holds a fragment of a row event, which is not read yet"),
}
_FIXES = {
    EventCode.PARTIAL_UPDATE_ROWS: "SET GLOBAL binlog_row_value_options = ''",
    EventCode.PARTIAL_ROW_DATA: "SET GLOBAL binlog_row_event_fragment_threshold = 1073741824",
}
_LOADS = frozenset(code for code, kind in EVENT_KINDS.items() if kind.why == _LOAD)
_GAPS = _LOADS | {
    EventCode.INCIDENT,
    EventCode.PARTIAL_UPDATE_ROWS,
    EventCode.PARTIAL_ROW_DATA,
}


def is_gap(code: int) -> bool:
    """Return whether such an event stands for changes that are not in the log, and reading can
    continue behind it. For other events it is not known what they, or what follows them, would
    mean."""
    return code in _GAPS


def refusal(code: int, flags: int = 0) -> TidelineError:
    """Return the error that ends the run at an event of this code; ``flags`` are its header's.

    SourceLost for an INCIDENT (the log has a gap), Misconfigured where a setting makes the server
    write such events, CorruptData for an unknown event.
    """
    kind = EVENT_KINDS.get(code)
    if kind is None:
        marked = ", which the server marks as ignorable" if flags & IGNORABLE_FLAG else ""
        return CorruptData(f"an unknown kind of event in the binlog: code {code}{marked}")
    message = f"the binlog has a kind of event that ends the run: {kind.name}, {kind.why}"
    if code == EventCode.INCIDENT:
        return SourceLost(message, "look in the server's error log for the cause")
    if code in _FIXES:
        return Misconfigured(message, _FIXES[EventCode(code)])
    if code in _LOADS:
        return Misconfigured(message, "SET GLOBAL binlog_format = 'ROW'")
    return CorruptData(message)
