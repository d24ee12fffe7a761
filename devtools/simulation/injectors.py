"""One injector for each kind of fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from devtools.simulation.columns import draw_addition
from devtools.simulation.faults import Fault
from devtools.simulation.log import SimulatedWatermark
from devtools.simulation.stage import SimulatedStage
from devtools.simulation.tables import ITEMS, NAMES
from devtools.simulation.workload import all_keys, fresh_row
from tideline_capture.core.events import WatermarkKind

Injector = Callable[[SimulatedStage, random.Random], None]


# -- the store ---------------------------------------------------------------------------------


def trouble_store(rig: SimulatedStage, fault: Fault, own: random.Random) -> None:
    """Have the store's requests meet ``fault`` for a while."""
    seconds = own.uniform(9.0, 14.0) if fault is Fault.STORE_DOWN else own.uniform(1.5, 5.0)
    rig.active_faults.windows[fault] = rig.world.now + seconds


def ignore_conditions(rig: SimulatedStage) -> None:
    """Ignore conditions of PUTs for a while.

    Both workers must refuse to begin with such a store; then it is repaired.
    """
    if "unprobed" not in rig.flaws:
        rig.active_faults.expected_refusals += 1
    rig.bucket.ignores_condition = True

    def repair() -> None:
        rig.bucket.ignores_condition = False

    def forget() -> None:
        rig.active_faults.expected_refusals = 0

    rig.world.later(1.4, repair)
    rig.world.later(4.0, forget)


def list_stale(rig: SimulatedStage, own: random.Random) -> None:
    """List what was there a while ago, and not all of that."""
    world, bucket = rig.world, rig.bucket
    for _ in range(8):
        keys = sorted(bucket.objects)
        logs = [key for key in keys if "/log/" in key]
        hidden = set(own.sample(logs[-6:], min(2, len(logs[-6:]))))
        bucket.listed = [key for key in keys if key not in hidden]
        world.sleep(1.5)
        if rig.active_faults.healed:
            break
    bucket.listed = None


# -- workers -----------------------------------------------------------------------------------


def stop_worker(rig: SimulatedStage, own: random.Random) -> None:
    """Send SIGSTOP for longer than a takeover takes, then SIGCONT: a zombie wakes."""
    process, world = rig.active(), rig.world
    if process is None:
        return
    rig.active_faults.hit(Fault.STOP)
    world.freeze(process)
    world.sleep(own.uniform(6.0, 11.0))
    world.thaw(process)


def stop_cleanly(rig: SimulatedStage, own: random.Random) -> None:
    """Send SIGTERM."""
    process = rig.active()
    if process is not None and process.terminate is not None:
        rig.active_faults.hit(Fault.CLEAN_STOP)
        process.terminate()


def jump(seconds: float, fault: Fault) -> Injector:
    def inject(rig: SimulatedStage, own: random.Random) -> None:
        for process in rig.workers.values():
            if own.random() < 0.7:
                process.wall_offset_s += seconds
                rig.worker_was_ahead |= process.wall_offset_s > 0
                rig.active_faults.hit(fault)

    return inject


# -- redis -------------------------------------------------------------------------------------


def restart_redis(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.hit(Fault.REDIS_RESTART)
    rig.redis.restart(own.uniform(0.5, 4.0))


def flush_redis(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.hit(Fault.REDIS_FLUSH)
    rig.redis.flush()
    rig.bucket.counter.clear()


def fail_redis_over(rig: SimulatedStage, own: random.Random) -> None:
    replica = rig.redis.replica()
    rig.world.sleep(1.0)
    rig.active_faults.hit(Fault.REDIS_FAILOVER)
    rig.redis.fail_over(replica)


def delay_redis(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.hit(Fault.REDIS_DELAY)
    rig.redis.delay_s = own.uniform(0.2, 1.5)
    rig.world.sleep(own.uniform(2.0, 5.0))
    rig.redis.delay_s = 0.0


def send(make: Callable[[random.Random], dict[str, bytes]], fault: Fault) -> Injector:
    def inject(rig: SimulatedStage, own: random.Random) -> None:
        rig.simulated_clients.send_raw(make(own))
        rig.active_faults.hit(fault)

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


def lose_after_pop(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.windows[Fault.REDIS_LOST_AFTER_POP] = rig.world.now + 12.0


def duplicate(rig: SimulatedStage, own: random.Random) -> None:
    rig.simulated_clients.repeat_all()
    rig.active_faults.hit(Fault.REDIS_DUPLICATE)


# -- the source --------------------------------------------------------------------------------


def restart_source(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.hit(Fault.SOURCE_RESTART)
    rig.database.restart(own.uniform(0.5, 3.0))


def reset_source(rig: SimulatedStage, own: random.Random) -> None:
    """Break the worker's connections only; the workload's sessions come through."""
    rig.active_faults.hit(Fault.SOURCE_RESET)
    rig.database.resets += 1
    rig.world.give(rig.database.logged)


def stall_source(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.hit(Fault.SOURCE_STALL)
    rig.database.stalled_until = rig.world.now + own.uniform(2.0, 10.0)


def drop_publication(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.hit(Fault.PUBLICATION_DROPPED)
    rig.database.unpublish()


def lose_rows(rig: SimulatedStage, own: random.Random) -> None:
    """Log that a session's statements are missing: the log does not have what they changed."""
    rig.active_faults.hit(Fault.FORMAT_CHANGED)
    database = rig.database
    table = own.choice((ITEMS, NAMES))
    held = database.tables[table]
    if held.locked or held.exclusive:
        return
    rows = dict(held.rows)
    for key in own.sample(sorted(rows, key=repr), min(3, len(rows))):
        rows[key] = {**rows[key], "v": f"{own.getrandbits(30):x}"}
    database.change_unlogged(table, rows)
    database.note_gap("a session wrote statements")


def replace_table(rig: SimulatedStage, own: random.Random) -> None:
    """Replace a table by another of its name, with other rows: no row event shows it."""
    world, database = rig.world, rig.database
    table = own.choice((ITEMS, NAMES))
    held = database.tables[table]
    for _ in range(400):
        if not held.locked and not held.exclusive:
            break
        world.sleep(0.02)
    else:
        return
    rig.active_faults.hit(Fault.TABLE_REPLACED)
    keys = [key for key in all_keys(table) if own.random() < 0.5]
    database.change_unlogged(table, {key: fresh_row(table, key, own) for key in keys})
    held.form = replace(
        held.form, oid=held.form.oid + 100, storage=held.form.storage + 1, membership=""
    )
    database.state(table, f"RENAME TABLE {table}", neutral=False)


def add_column(rig: SimulatedStage, own: random.Random) -> None:
    if rig.workload.alter(own, draw_addition):
        rig.active_faults.hit(Fault.ADD_COLUMN)


def change_key(rig: SimulatedStage, own: random.Random) -> None:
    """Re-create the key's constraint: its text in the catalog is another."""
    rig.active_faults.hit(Fault.KEY_DEFINITION)
    held = rig.database.tables[own.choice((ITEMS, NAMES))]
    held.form = replace(held.form, key_version=held.form.key_version + 1)


def truncate(rig: SimulatedStage, own: random.Random) -> None:
    if rig.workload.truncate(own):
        rig.active_faults.hit(Fault.TRUNCATE)


def huge(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.hit(Fault.HUGE_TRANSACTION)
    rig.workload.huge(own)


def long(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.hit(Fault.LONG_TRANSACTION)
    rig.workload.long(own, own.uniform(6.0, 14.0))


def pack(rig: SimulatedStage, own: random.Random) -> None:
    for _ in range(3):
        rig.workload.packed(own)


_DAY_US = 86_400_000_000


def tamper(rig: SimulatedStage, own: random.Random) -> None:
    """Forge watermarks of no session with a future clock, or copy recent ones exactly."""
    rig.active_faults.hit(Fault.WATERMARKS_TAMPERED)
    database = rig.database
    for _ in range(12):
        kind, token = own.choice(tuple(WatermarkKind)), f"{own.getrandbits(64):016x}"
        watermark = SimulatedWatermark(kind, f"{token}.0.1", database.clock_us + _DAY_US)
        if own.random() < 0.5:
            found = [entry.watermark for entry in database.log[-60:] if entry.watermark is not None]
            watermark = own.choice(found[-4:]) if found else watermark
        database.write_watermark(watermark)
        rig.world.sleep(own.uniform(0.01, 0.3))


def unorder_commits(rig: SimulatedStage, own: random.Random) -> None:
    """Switch `order_commits` off for a while: chunks and sessions are refused by name."""
    database = rig.database
    rig.active_faults.hit(Fault.ORDER_COMMITS_OFF)
    rig.active_faults.expected_stop = Fault.ORDER_COMMITS_OFF
    database.order_commits = False
    rig.world.sleep(own.uniform(3.0, 6.0))
    database.order_commits = True
    rig.world.sleep(8.0)
    rig.active_faults.expected_stop = None


def move_source_clock(rig: SimulatedStage, own: random.Random) -> None:
    rig.active_faults.hit(Fault.SOURCE_CLOCK)
    rig.database.move_clock(own.choice((-3600.0, 3600.0, 30.0)))


# -- merges ------------------------------------------------------------------------------------


def merge(fault: Fault) -> Injector:
    def inject(rig: SimulatedStage, own: random.Random) -> None:
        rig.merger.trouble.append(fault)

    return inject


# -- the end of a pipeline ---------------------------------------------------------------------


def end_pipeline(rig: SimulatedStage, fault: Fault, own: random.Random) -> None:
    """Remove what the worker needs: it must stop by name, and its successors refuse."""
    database = rig.database
    before = len(rig.stops)
    rig.active_faults.expected_stop = fault
    database.lost = {
        Fault.SOURCE_FAILOVER: "failover",
        Fault.SOURCE_LOG_PURGED: "the log was purged",
        Fault.SLOT_DROPPED: "the slot was dropped",
        Fault.SLOT_INVALIDATED: "the slot was invalidated",
        Fault.SLOT_RECREATED: "the slot was recreated",
    }[fault]
    database.reset()
    for _ in range(60):
        rig.world.sleep(0.5)
        if any("SourceLost" in stop for stop in rig.stops[before:]):
            rig.active_faults.hit(fault)
            return
    rig.active_faults.complain("E", f"no worker stopped by name after {fault.name}")


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
    Fault.WATERMARKS_TAMPERED: tamper,
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
"""The injectors by kind. Kills are armed by `Adversary.arm`, the store's windows opened by
`trouble_store`, and what ends a pipeline is caused by `end_pipeline`."""
