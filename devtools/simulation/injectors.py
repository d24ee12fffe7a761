"""One injector for each kind of fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from devtools.simulation.columns import draw_addition
from devtools.simulation.faults import Fault
from devtools.simulation.log import OurMark
from devtools.simulation.storage import Misfortune
from devtools.simulation.tables import ITEMS, NAMES
from devtools.simulation.workload import all_keys, fresh_row
from tideline_capture.core.events import MarkKind

if TYPE_CHECKING:
    from devtools.simulation.board import Board

Injector = Callable[["Board", random.Random], None]


# -- the store ---------------------------------------------------------------------------------


def trouble_store(board: Board, fault: Fault, own: random.Random) -> None:
    """Have the store's requests meet ``fault`` for a while."""
    seconds = own.uniform(9.0, 14.0) if fault is Fault.STORE_DOWN else own.uniform(1.5, 5.0)
    board.windows[fault] = board.rig.world.now + seconds


def misfortune(
    fault: Fault, kind: str, key: str, own: random.Random, usual: Misfortune
) -> Misfortune | None:
    """What ``fault`` does to a request, None when it does not concern it."""
    writes, manifest = kind in ("put", "create"), kind == "create" and "/log/" in key
    late = usual.travel_s + own.uniform(0.2, 1.5)
    timeout = "error sending request, kind: Timeout"
    match fault:
        case Fault.STORE_500:
            return replace(usual, error="status code: 500", effect=own.random() < 0.4)
        case Fault.STORE_503 | Fault.STORE_DOWN:
            return replace(usual, error="status code: 503", effect=False)
        case Fault.STORE_429:
            return replace(usual, error="status code: 429", effect=False)
        case Fault.STORE_TIMEOUT_BEFORE:
            return replace(usual, error=timeout, effect=False, answer_s=late)
        case Fault.STORE_TIMEOUT_AFTER:
            return replace(usual, error=timeout, answer_s=late)
        case Fault.STORE_OWN_412 if manifest:
            return replace(usual, error=timeout)
        case Fault.STORE_OWN_409 if kind == "create":
            return replace(usual, taken=True)
        case Fault.STORE_SLOW:
            return replace(usual, travel_s=own.uniform(0.3, 2.5), answer_s=own.uniform(0.1, 1.0))
        case Fault.STORE_SLOW_BODY if kind == "get":
            return replace(usual, answer_s=own.uniform(0.5, 2.0))
        case Fault.STORE_TRUNCATED_GET if kind == "get":
            return replace(usual, error="error decoding response body, kind: Decode")
        case Fault.STORE_LATE_DUPLICATE if writes:
            again = own.uniform(1.0, 12.0)
            if own.random() < 0.5:
                return replace(usual, error=timeout, effect=False, again_s=again)
            return replace(usual, again_s=again)
    return None


def ignore_conditions(board: Board) -> None:
    """Both workers must refuse to begin with such a store; then somebody repairs it."""
    rig = board.rig
    if "unprobed" not in rig.flaws:
        board.expected_refusals += 1
    rig.bucket.ignores_condition = True

    def repair() -> None:
        rig.bucket.ignores_condition = False

    def forget() -> None:
        board.expected_refusals = 0

    rig.world.later(1.4, repair)
    rig.world.later(4.0, forget)


def list_stale(board: Board, own: random.Random) -> None:
    """Listings show what was there a while ago, and not all of that."""
    world, bucket = board.rig.world, board.rig.bucket
    for _ in range(8):
        keys = sorted(bucket.objects)
        logs = [key for key in keys if "/log/" in key]
        hidden = set(own.sample(logs[-6:], min(2, len(logs[-6:]))))
        bucket.listed = [key for key in keys if key not in hidden]
        world.sleep(1.5)
        if board.healed:
            break
    bucket.listed = None


# -- workers -----------------------------------------------------------------------------------


def stop_worker(board: Board, own: random.Random) -> None:
    """SIGSTOP for longer than a takeover takes, then SIGCONT: a zombie wakes."""
    process, world = board.rig.active(), board.rig.world
    if process is None:
        return
    board.hit(Fault.STOP)
    world.freeze(process)
    world.sleep(own.uniform(6.0, 11.0))
    world.thaw(process)


def stop_cleanly(board: Board, own: random.Random) -> None:
    """SIGTERM."""
    process = board.rig.active()
    stopping: Any = getattr(process, "stopping", None)
    if stopping is not None:
        board.hit(Fault.CLEAN_STOP)
        stopping.set()


def jump(seconds: float, fault: Fault) -> Injector:
    def inject(board: Board, own: random.Random) -> None:
        for process in board.rig.workers.values():
            if own.random() < 0.7:
                process.wall_offset_s += seconds
                board.rig.worker_was_ahead |= process.wall_offset_s > 0
                board.hit(fault)

    return inject


# -- redis -------------------------------------------------------------------------------------


def restart_redis(board: Board, own: random.Random) -> None:
    board.hit(Fault.REDIS_RESTART)
    board.rig.redis.restart(own.uniform(0.5, 4.0))


def flush_redis(board: Board, own: random.Random) -> None:
    board.hit(Fault.REDIS_FLUSH)
    board.rig.redis.flush()
    board.rig.bucket.counter.clear()


def fail_redis_over(board: Board, own: random.Random) -> None:
    replica = board.rig.redis.replica()
    board.rig.world.sleep(1.0)
    board.hit(Fault.REDIS_FAILOVER)
    board.rig.redis.fail_over(replica)


def delay_redis(board: Board, own: random.Random) -> None:
    board.hit(Fault.REDIS_DELAY)
    board.rig.redis.delay_s = own.uniform(0.2, 1.5)
    board.rig.world.sleep(own.uniform(2.0, 5.0))
    board.rig.redis.delay_s = 0.0


def send(make: Callable[[random.Random], dict[str, bytes]], fault: Fault) -> Injector:
    def inject(board: Board, own: random.Random) -> None:
        board.rig.askers.send_raw(make(own))
        board.hit(fault)

    return inject


def _malformed(own: random.Random) -> dict[str, bytes]:
    return own.choice(
        (
            {"request": b"{"},
            {"request": b'{"request_id": "odd", "tables": ["sim.items"], "sql": "1=1"}'},
            {"request": b"\xff\xfe"},
            {"other": b"1"},
            {"command": b'{"command_id": "odd", "action": "drop"}'},
        )
    )


def lose_after_pop(board: Board, own: random.Random) -> None:
    board.windows[Fault.REDIS_LOST_AFTER_POP] = board.rig.world.now + 12.0


def duplicate(board: Board, own: random.Random) -> None:
    board.rig.askers.repeat_all()
    board.hit(Fault.REDIS_DUPLICATE)


# -- the source --------------------------------------------------------------------------------


def restart_source(board: Board, own: random.Random) -> None:
    board.hit(Fault.SOURCE_RESTART)
    board.rig.database.restart(own.uniform(0.5, 3.0))


def reset_source(board: Board, own: random.Random) -> None:
    """The workload's sessions come through; only the worker's connections break."""
    board.hit(Fault.SOURCE_RESET)
    board.rig.database.resets += 1
    board.rig.world.give(board.rig.database.logged)


def stall_source(board: Board, own: random.Random) -> None:
    board.hit(Fault.SOURCE_STALL)
    board.rig.database.stalled_until = board.rig.world.now + own.uniform(2.0, 10.0)


def drop_publication(board: Board, own: random.Random) -> None:
    board.hit(Fault.PUBLICATION_DROPPED)
    board.rig.database.unpublish()


def lose_rows(board: Board, own: random.Random) -> None:
    """A session writes statements; the log says so, and not what they changed."""
    board.hit(Fault.FORMAT_CHANGED)
    database = board.rig.database
    table = own.choice((ITEMS, NAMES))
    held = database.tables[table]
    if held.locked or held.exclusive:
        return
    rows = dict(held.rows)
    for key in own.sample(sorted(rows, key=repr), min(3, len(rows))):
        rows[key] = {**rows[key], "v": f"{own.getrandbits(30):x}"}
    database.change_unlogged(table, rows)
    database.note_gap("a session wrote statements")


def replace_table(board: Board, own: random.Random) -> None:
    """Another table takes its name, with other rows: no row event tells."""
    world, database = board.rig.world, board.rig.database
    table = own.choice((ITEMS, NAMES))
    held = database.tables[table]
    for _ in range(400):
        if not held.locked and not held.exclusive:
            break
        world.sleep(0.02)
    else:
        return
    board.hit(Fault.TABLE_REPLACED)
    keys = [key for key in all_keys(table) if own.random() < 0.5]
    database.change_unlogged(table, {key: fresh_row(table, key, own) for key in keys})
    held.form = replace(
        held.form, oid=held.form.oid + 100, storage=held.form.storage + 1, membership=""
    )
    database.state(table, f"RENAME TABLE {table}", neutral=False)


def add_column(board: Board, own: random.Random) -> None:
    if board.rig.workload.alter(own, draw_addition):
        board.hit(Fault.ADD_COLUMN)


def change_key(board: Board, own: random.Random) -> None:
    """The key's constraint is made anew: its text in the catalog is another."""
    board.hit(Fault.KEY_DEFINITION)
    held = board.rig.database.tables[own.choice((ITEMS, NAMES))]
    held.form = replace(held.form, key_version=held.form.key_version + 1)


def truncate(board: Board, own: random.Random) -> None:
    if board.rig.workload.truncate(own):
        board.hit(Fault.TRUNCATE)


def huge(board: Board, own: random.Random) -> None:
    board.hit(Fault.HUGE_TRANSACTION)
    board.rig.workload.huge(own)


def long(board: Board, own: random.Random) -> None:
    board.hit(Fault.LONG_TRANSACTION)
    board.rig.workload.long(own, own.uniform(6.0, 14.0))


def pack(board: Board, own: random.Random) -> None:
    for _ in range(3):
        board.rig.workload.packed(own)


_DAY_US = 86_400_000_000


def tamper(board: Board, own: random.Random) -> None:
    """Marks that are nobody's, of a time to come, and exact copies of those in the log."""
    board.hit(Fault.MARKS_TAMPERED)
    database = board.rig.database
    for _ in range(12):
        kind, token = own.choice(tuple(MarkKind)), f"{own.getrandbits(64):016x}"
        mark = OurMark(kind, f"{token}.0.1", database.clock_us + _DAY_US)
        if own.random() < 0.5:
            found = [entry.mark for entry in database.log[-60:] if entry.mark is not None]
            mark = own.choice(found[-4:]) if found else mark
        database.write_mark(mark)
        board.rig.world.sleep(own.uniform(0.01, 0.3))


def unorder_commits(board: Board, own: random.Random) -> None:
    """Chunks and sessions are refused by name until somebody switches it on again."""
    database = board.rig.database
    board.hit(Fault.ORDER_COMMITS_OFF)
    board.expected_stop = Fault.ORDER_COMMITS_OFF
    database.order_commits = False
    board.rig.world.sleep(own.uniform(3.0, 6.0))
    database.order_commits = True
    board.rig.world.sleep(8.0)
    board.expected_stop = None


def move_source_clock(board: Board, own: random.Random) -> None:
    board.hit(Fault.SOURCE_CLOCK)
    board.rig.database.move_clock(own.choice((-3600.0, 3600.0, 30.0)))


# -- merges ------------------------------------------------------------------------------------


def merge(fault: Fault) -> Injector:
    def inject(board: Board, own: random.Random) -> None:
        board.rig.merger.trouble.append(fault)

    return inject


# -- the end of a pipeline ---------------------------------------------------------------------


def end_pipeline(board: Board, fault: Fault, own: random.Random) -> None:
    """What the worker needs is gone: it must stop by name, and its successors refuse."""
    rig, database = board.rig, board.rig.database
    before = len(rig.stops)
    board.expected_stop = fault
    database.lost = {
        Fault.SOURCE_FAILOVER: "failover",
        Fault.SOURCE_LOG_PURGED: "the log was purged",
        Fault.SLOT_DROPPED: "the slot was dropped",
        Fault.SLOT_INVALIDATED: "the slot was invalidated",
        Fault.SLOT_RECREATED: "the slot was made anew",
    }[fault]
    database.reset()
    for _ in range(60):
        rig.world.sleep(0.5)
        if any("SourceLost" in stop for stop in rig.stops[before:]):
            board.hit(fault)
            return
    board.complain("E", f"no worker stopped by name after {fault.name}")


INJECTORS: dict[Fault, Injector] = {
    Fault.STOP: stop_worker,
    Fault.CLEAN_STOP: stop_cleanly,
    Fault.REDIS_RESTART: restart_redis,
    Fault.REDIS_FLUSH: flush_redis,
    Fault.REDIS_FAILOVER: fail_redis_over,
    Fault.REDIS_DELAY: delay_redis,
    Fault.REDIS_MALFORMED: send(_malformed, Fault.REDIS_MALFORMED),
    Fault.REDIS_OVERSIZED: send(lambda _: {"request": b"x" * 10_000}, Fault.REDIS_OVERSIZED),
    Fault.REDIS_DUPLICATE: duplicate,
    Fault.REDIS_LOST_AFTER_POP: lose_after_pop,
    Fault.STORE_STALE_LIST: list_stale,
    Fault.SOURCE_RESTART: restart_source,
    Fault.SOURCE_RESET: reset_source,
    Fault.SOURCE_STALL: stall_source,
    Fault.PUBLICATION_DROPPED: drop_publication,
    Fault.FORMAT_CHANGED: lose_rows,
    Fault.COMPRESSION: pack,
    Fault.HUGE_TRANSACTION: huge,
    Fault.LONG_TRANSACTION: long,
    Fault.ADD_COLUMN: add_column,
    Fault.KEY_DEFINITION: change_key,
    Fault.TRUNCATE: truncate,
    Fault.TABLE_REPLACED: replace_table,
    Fault.MARKS_TAMPERED: tamper,
    Fault.ORDER_COMMITS_OFF: unorder_commits,
    Fault.CLOCK_AHEAD: jump(3600.0, Fault.CLOCK_AHEAD),
    Fault.CLOCK_BACK: jump(-3600.0, Fault.CLOCK_BACK),
    Fault.SOURCE_CLOCK: move_source_clock,
    Fault.DRIVER_KILLED_BEFORE: merge(Fault.DRIVER_KILLED_BEFORE),
    Fault.DRIVER_KILLED_AFTER: merge(Fault.DRIVER_KILLED_AFTER),
    Fault.TWO_DRIVERS: merge(Fault.TWO_DRIVERS),
    Fault.TASK_RETRIED: merge(Fault.TASK_RETRIED),
    Fault.ANSWER_LOST: merge(Fault.ANSWER_LOST),
    Fault.COMPACTION: merge(Fault.COMPACTION),
}
"""By kind; kills are armed by `Board.arm`, the store's windows opened by `trouble_store`, and
what ends a pipeline is brought about by `end_pipeline`."""
