"""Preflight's checks of the log: its content, its order, and how long it is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tideline_capture.sources.finding import Finding, error, ok, warning
from tideline_capture.sources.mysql.checks.facts import MysqlServerFacts

RETENTION_MIN_S = 86_400
"""A weekend without a worker is longer, but it is the least that a night's outage leaves."""
RETENTION_ADVISED_S = 604_800

_RESTART = "in the server's configuration, and restart the server"
_CONNECTED = " -- sessions that are connected keep theirs: let the application reconnect"
_GTID_STEPS = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A required variable: ``value`` is what it must have, on the servers that have it.

    ``required``: every supported server has it. ``per_session``: sessions take it over when they
    connect. ``advised``: capture starts without.
    """

    value: str
    why: str
    required: bool = True
    per_session: bool = False
    advised: bool = False


_RULES: Mapping[str, _Rule] = {
    "binlog_format": _Rule("ROW", "the log holds statements, not rows", per_session=True),
    "binlog_row_image": _Rule("FULL", "rows in the log lack columns", per_session=True),
    "binlog_row_metadata": _Rule("FULL", "the log does not name the columns of its rows"),
    "binlog_row_value_options": _Rule(
        "", "the log holds parts of JSON values only", required=False, per_session=True
    ),
    "binlog_order_commits": _Rule(
        "ON", "commits can be in the log before they are visible", required=False
    ),
    "binlog_checksum": _Rule(
        "CRC32", "a byte of the log that flips is another value", required=False, advised=True
    ),
}


def check_log(server: MysqlServerFacts, *, read_only: bool) -> Iterator[Finding]:
    """Check that the log is on, in rows, whole, in the order of commits, and kept long enough."""
    if not server.on("log_bin"):
        yield error("log_bin", "the server writes no binary log", f"set log_bin {_RESTART}")
        return
    yield ok("log_bin", "the server writes a binary log")
    if server.variables.get("server_id") == "0":
        text = "server_id is 0: the server lets no one read its log"
        yield error("server_id", text, assign(server, "server_id", "1"))
    for name, rule in _RULES.items():
        yield from _judge(server, name, rule)
    if server.variables.get("binlog_storage_engine"):
        text = f"binlog_storage_engine is {server.variables['binlog_storage_engine']}: a log of"
        fix = f"take binlog_storage_engine out {_RESTART}"
        yield error("binlog_storage_engine", f"{text} a form that is not known", fix)
    yield from _check_gtids(server, read_only=read_only)
    yield from _check_retention(server)


def _judge(server: MysqlServerFacts, name: str, rule: _Rule) -> Iterator[Finding]:
    value = server.variables.get(name)
    if value is None:
        if rule.required:
            yield error(name, f"the server has no {name}", "upgrade the server")
    elif value.upper() == rule.value:
        yield ok(name, f"{name} is {value or 'empty'}")
    else:
        fix = assign(server, name, rule.value) + (_CONNECTED if rule.per_session else "")
        level = warning if rule.advised else error
        yield level(name, f"{name} is {value}: {rule.why}", fix)


def assign(server: MysqlServerFacts, name: str, value: str) -> str:
    """Return the statement that sets a global variable permanently, as far as possible."""
    text = value if value.isdecimal() or value in ("ON", "OFF") else f"'{value}'"
    if server.flavour == "mysql":
        return f"SET PERSIST {name} = {text};"
    return f"SET GLOBAL {name} = {text}; -- and {name} = {value} in the server's configuration"


def _check_gtids(server: MysqlServerFacts, *, read_only: bool) -> Iterator[Finding]:
    if server.flavour == "mariadb":
        if not server.on("gtid_strict_mode"):
            text = "gtid_strict_mode is OFF: positions by GTID are no order if two servers write"
            yield warning("gtid", text, assign(server, "gtid_strict_mode", "ON"))
        return
    mode = server.variables.get("gtid_mode", "OFF").upper()
    if mode == "ON":
        yield ok("gtid", "gtid_mode is ON: capture can go on from a replica")
        return
    steps = _GTID_STEPS[_GTID_STEPS.index(mode) + 1 :] if mode in _GTID_STEPS else ("ON",)
    fix = " ".join(
        [
            "SET PERSIST enforce_gtid_consistency = ON;",
            *(f"SET PERSIST gtid_mode = {step};" for step in steps),
        ]
    )
    if read_only:
        text = (
            f"gtid_mode is {mode}: without watermarks only GTIDs give a chunk's position in the log"
        )
        yield error("gtid", text, fix)
    else:
        text = f"gtid_mode is {mode}: capture can go on from this server only, not from a replica"
        yield warning("gtid", text, fix)


def _check_retention(server: MysqlServerFacts) -> Iterator[Finding]:
    size = int(server.variables.get("max_binlog_total_size", "0"))
    if size:
        text = f"the log is removed above {size} bytes in all, whoever still has to read it"
        yield warning("retention", text, assign(server, "max_binlog_total_size", "0"))
    retention_s = _retention_s(server)
    if retention_s == 0:
        yield ok("retention", "the log is kept until someone purges it")
    elif retention_s < RETENTION_MIN_S:
        yield warning(
            "retention",
            f"the log is kept for {retention_s / 3600:.1f} hours: what a worker that is down for"
            " longer has not read is lost",
            _retention_fix(server),
        )
    else:
        yield ok("retention", f"the log is kept for {retention_s / 3600:.0f} hours")


def _retention_s(server: MysqlServerFacts) -> int:
    """Return for how many seconds the log is kept; 0: for ever."""
    if server.variables.get("binlog_expire_logs_auto_purge", "ON").upper() == "OFF":
        return 0
    seconds = int(server.variables.get("binlog_expire_logs_seconds", "0"))
    return seconds or round(float(server.variables.get("expire_logs_days", "0")) * 86_400)


def _retention_fix(server: MysqlServerFacts) -> str:
    return assign(server, "binlog_expire_logs_seconds", str(RETENTION_ADVISED_S))


def check_replica(server: MysqlServerFacts) -> Iterator[Finding]:
    """Check a server that replicates: it must log what it applies, in the order of its source."""
    if not server.replica:
        return
    for name in ("log_replica_updates", "log_slave_updates"):
        if server.variables.get(name, "ON").upper() == "OFF":
            text = f"the server is a replica, and {name} is OFF: what it applies is not in its log"
            yield error("replica_log", text, f"set {name} = ON {_RESTART}")
            return
    word = "replica" if "replica_preserve_commit_order" in server.variables else "slave"
    order = f"{word}_preserve_commit_order"
    workers = int(server.variables.get(f"{word}_parallel_workers", "0"))
    if server.flavour == "mysql" and workers > 1 and not server.on(order):
        yield error(
            "replica_order",
            f"the server is a replica of {workers} workers, and {order} is OFF: it commits in"
            " another order than its source",
            f"STOP {word.upper()} SQL_THREAD; {assign(server, order, 'ON')}"
            f" START {word.upper()} SQL_THREAD;",
        )
    else:
        yield ok("replica", "the server is a replica, and logs what it applies in its order")
