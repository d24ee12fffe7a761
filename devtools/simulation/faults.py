"""Every kind of fault, and every point at which a worker is killed.

A kind counts as hit when it had an effect: a request met it, a process died of it.
"""

from __future__ import annotations

from enum import Enum


class Fault(Enum):
    """The kinds of fault; each has one injector in `devtools.simulation.adversary`."""

    KILL = "worker killed at a named point"
    STOP = "worker stopped for longer than a takeover takes"
    CLEAN_STOP = "worker asked to stop"
    REDIS_RESTART = "redis restarts"
    REDIS_FLUSH = "redis is flushed"
    REDIS_FAILOVER = "redis fails over, the last second is lost"
    REDIS_DELAY = "redis answers late"
    REDIS_MALFORMED = "a message that is no request"
    REDIS_DUPLICATE = "a request comes twice"
    REDIS_OVERSIZED = "an oversized message"
    REDIS_LOST_AFTER_POP = "the queue is lost after a request was claimed"
    STORE_500 = "store answers 500"
    STORE_503 = "store answers 503"
    STORE_429 = "store answers 429"
    STORE_DOWN = "store is away for long"
    STORE_TIMEOUT_BEFORE = "store times out without effect"
    STORE_TIMEOUT_AFTER = "store times out after the effect"
    STORE_OWN_412 = "412 on our own success"
    STORE_OWN_409 = "409 on our own write"
    STORE_SLOW = "store is slow"
    STORE_SLOW_BODY = "an object's body comes slowly"
    STORE_TRUNCATED_GET = "an object's body is cut off"
    STORE_LATE_DUPLICATE = "a PUT arrives again, late"
    STORE_STALE_LIST = "a listing is stale"
    STORE_CONDITION_IGNORED = "store ignores the condition"
    SOURCE_RESTART = "source restarts"
    SOURCE_RESET = "connections to the source are reset"
    SOURCE_STALL = "the log's connection is half open"
    SOURCE_FAILOVER = "another server answers"
    SOURCE_LOG_PURGED = "the log is purged"
    SLOT_DROPPED = "the slot is dropped"
    SLOT_INVALIDATED = "the slot is invalidated"
    SLOT_RECREATED = "the slot is recreated"
    PUBLICATION_DROPPED = "the publication is dropped"
    FORMAT_CHANGED = "statements without rows in the log"
    COMPRESSION = "compression is switched on in a session"
    HUGE_TRANSACTION = "a huge transaction"
    LONG_TRANSACTION = "a long-running transaction"
    ADD_COLUMN = "a column is added"
    KEY_DEFINITION = "the key's definition changes"
    TRUNCATE = "a table is truncated"
    TABLE_REPLACED = "a table is dropped and another takes its name"
    WATERMARKS_TAMPERED = "foreign marks in the log"
    ORDER_COMMITS_OFF = "binlog_order_commits is switched off"
    CLOCK_AHEAD = "a worker's clock jumps an hour ahead"
    CLOCK_BACK = "a worker's clock jumps an hour back"
    SOURCE_CLOCK = "the source's clock jumps"
    DRIVER_KILLED_BEFORE = "a merge is killed before its commit"
    DRIVER_KILLED_AFTER = "a merge is killed after its commit"
    TWO_DRIVERS = "two merges at once"
    TASK_RETRIED = "a merge's task is run again"
    ANSWER_LOST = "a merge's commit loses its answer"
    COMPACTION = "a compaction during a merge"


NOT_APPLICABLE: dict[str, str] = {
    "Airflow marks a task failed while its job runs on": "no Airflow here; it is TWO_DRIVERS to the"
    " table, and tests/airflow has the operator's side",
    "wal_level is lowered": "the server invalidates the slot: SLOT_INVALIDATED",
    "a worker killed after it has a lease": "there is no lease: the chain decides (after-takeover)",
    "a worker killed between PUT and checkpoint": "the manifest is the checkpoint (after-manifest)",
}
"""Faults of the catalogue without a counterpart here, and why."""


class KillPoint(Enum):
    """Points at which a worker is killed; the names are the product's own, or those of
    `simulation`."""

    AFTER_TAKEOVER = "after-takeover"
    READING = "reading"
    INSIDE_TRANSACTION = "inside-transaction"
    BEFORE_ENCODE = "before-encode"
    BEFORE_PART_PUT = "before-part-put"
    PART_SENT = "part-sent"
    BETWEEN_PARTS_AND_MANIFEST = "between-parts-and-manifest"
    MANIFEST_SENT = "manifest-sent"
    AFTER_MANIFEST = "after-manifest"
    BEFORE_CONFIRM = "before-confirm"
    AFTER_CONFIRM = "after-confirm"
    BETWEEN_CHUNKS = "between-chunks"
    AFTER_LOW = "after-low"
    AFTER_FENCE = "after-fence"
    MID_SELECT = "mid-select"
    AFTER_SELECT = "after-select"
    BETWEEN_WATERMARKS = "between-watermarks"
    AFTER_HIGH = "after-high"
    BEFORE_CHUNK_PUT = "before-chunk-put"
    AFTER_CHUNK_PUT = "after-chunk-put"
    REQUEST_CLAIMED = "request-claimed"
    BEFORE_RELEASE = "before-release"
    AFTER_RELEASE = "after-release"


POSTGRES_ONLY = frozenset(
    {
        Fault.SLOT_DROPPED,
        Fault.SLOT_INVALIDATED,
        Fault.SLOT_RECREATED,
        Fault.PUBLICATION_DROPPED,
    }
)
MYSQL_ONLY = frozenset(
    {Fault.FORMAT_CHANGED, Fault.COMPRESSION, Fault.ORDER_COMMITS_OFF, Fault.SOURCE_LOG_PURGED}
)
TERMINAL = frozenset(
    {
        Fault.SOURCE_FAILOVER,
        Fault.SOURCE_LOG_PURGED,
        Fault.SLOT_DROPPED,
        Fault.SLOT_INVALIDATED,
        Fault.SLOT_RECREATED,
    }
)
"""Faults that end the pipeline by name. Such a fault comes last in a run, and the worker must
refuse to continue without having captured anything wrong."""
AT_START = frozenset({Fault.STORE_CONDITION_IGNORED})
STORE_WINDOWS = {
    Fault.STORE_500,
    Fault.STORE_503,
    Fault.STORE_429,
    Fault.STORE_DOWN,
    Fault.STORE_TIMEOUT_BEFORE,
    Fault.STORE_TIMEOUT_AFTER,
    Fault.STORE_OWN_412,
    Fault.STORE_OWN_409,
    Fault.STORE_SLOW,
    Fault.STORE_SLOW_BODY,
    Fault.STORE_TRUNCATED_GET,
    Fault.STORE_LATE_DUPLICATE,
}
"""Faults that the store's requests meet for a while."""
