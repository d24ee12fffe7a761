"""The scene of a run: the world, the source, the store, Redis, and the workers on them."""

from __future__ import annotations

import random

from devtools.simulation.database import Database
from devtools.simulation.history import Attempt
from devtools.simulation.log import DatabaseKind
from devtools.simulation.redis import Server
from devtools.simulation.scenario import Scenario
from devtools.simulation.scheduler import Process, World
from devtools.simulation.storage import Bucket
from devtools.simulation.system import SimulatedSystem
from devtools.simulation.workload import Workload
from tideline.contract.manifest import decode_manifest
from tideline.settings import Settings, make_settings

PIPELINE = "sim"


class Scene:
    """The scene. ``flaws`` are the seeded bugs, ``stops`` the errors that ended workers."""

    def __init__(self, scenario: Scenario, flaws: frozenset[str]) -> None:
        seed = scenario.seed
        self.scenario = scenario
        self.flaws = flaws
        self.world = World(f"world {seed}")
        self._ids = random.Random(f"ids {seed}")
        self.bucket = Bucket()
        self.redis = Server(self.world)
        lags = random.Random(f"lags {seed}")
        self.database = Database(self.world, scenario.kind, lambda: self._lag(lags))
        self.workload = Workload(
            self.world, self.database, random.Random(f"work {seed}"), scenario.transactions
        )
        self.clients = Process("clients")
        self.attempts: list[Attempt] = []
        self.stops: list[str] = []
        self.workers: dict[int, Process] = {}
        self.worker_was_ahead = False

    def system(self, process: Process) -> SimulatedSystem:
        """Return the clocks, threads and ids of ``process``."""
        return SimulatedSystem(self.world, process, self._ids)

    @property
    def settings(self) -> Settings:
        return _settings(self.scenario.kind, self.scenario)

    @property
    def clocks_were_ahead(self) -> bool:
        """Say whether the source's clock was ahead at some time, and a worker's."""
        return self.database.clock_was_ahead and self.worker_was_ahead

    def active(self) -> Process | None:
        """Return the process that wrote the chain's newest manifest, if it lives."""
        writer = _writer_of(self.bucket)
        for process in self.workers.values():
            if writer is not None and writer.startswith(f"{process.name}-") and process.alive:
                return process
        return None

    def _lag(self, own: random.Random) -> float:
        """Draw how long a commit takes to become visible: mostly at once, at times very long."""
        draw = own.random()
        if not self.scenario.faulty:
            return 0.0
        if draw < 0.6:
            return own.uniform(0.0, 0.004)
        if draw < 0.95:
            return own.uniform(0.004, 0.3)
        return own.uniform(0.5, 6.0)


def _writer_of(bucket: Bucket) -> str | None:
    """Return the writer of the newest manifest."""
    newest = max((key for key in bucket.objects if "/log/" in key), default=None)
    return None if newest is None else decode_manifest(bucket.objects[newest]).writer


_made: dict[tuple[object, ...], Settings] = {}


def _settings(kind: DatabaseKind, scenario: Scenario) -> Settings:
    given = (kind, scenario.chunk_rows, scenario.parallel, scenario.ahead)
    if given not in _made:
        scheme = "postgresql" if kind is DatabaseKind.POSTGRES else "mysql"
        _made[given] = make_settings(
            {
                "pipeline": PIPELINE,
                "source": {"url": f"{scheme}://u:p@sim/sim", "tables": ["sim.*"]},
                "store": {"url": "memory://simulation"},
                "warehouse": {"url": "memory://warehouse"},
                "control": {"message_bytes_max": 4_000},
                "capture": {
                    "flush_interval_s": 2.4,
                    "segment_bytes_max": 12_000,
                    "upload_bytes_max": 60_000,
                    "heartbeat_s": 2.0,
                    "takeover_after_s": 5.0,
                    "chunk_rows": scenario.chunk_rows,
                    "chunk_redo_max": 2,
                    "chunk_target_ms": 0,
                    "parallel_dumps_max": scenario.parallel,
                    "chunks_ahead_max": scenario.ahead,
                    "catalog_interval_s": 2.0,
                    "snapshot_interval_s": 1.0,
                    "load_interval_s": 5.0,
                    "unseen_transactions_max": 30,
                    "mark_timeout_s": 6.0,
                    "request_claim_s": 4.0,
                    "stop_timeout_s": 8.0,
                },
            }
        )
    return _made[given]
