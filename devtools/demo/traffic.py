"""Live traffic on the sample shop, as a separate process.

``python -m devtools.demo.traffic --report FILE`` works until SIGTERM or SIGINT, then finishes the
transactions that it is in and ends with 0. The database's address is in ``TIDELINE_DEMO_DSN``: it
holds a password, and command lines are public. What was done so far is written to the report file
every half second, atomically; the last report is written after the last transaction.

The rate is an average: a worker that fell behind on a busy machine continues without a pause until
it has caught up. The transactions are drawn from a seed.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from devtools.demo.business import DOINGS
from devtools.demo.worker import ShopWorker, Tally

DSN_VARIABLE = "TIDELINE_DEMO_DSN"
TRANSACTIONS_PER_S = 230.0
WORKERS = 3
SEED = 20_26
_REPORT_INTERVAL_S = 0.5


class Report(msgspec.Struct, frozen=True):
    """The traffic's work in ``seconds``: counts of transactions and of changed rows.

    ``transactions`` are those that committed; ``changes`` their inserts, updates and deletes of
    rows; ``undone`` changes were made and rolled back. ``finished``: nothing will be added.
    """

    seconds: float
    transactions: int
    rolled_back: int
    savepoints_undone: int
    undone: int
    inserts: int
    updates: int
    deletes: int
    changed_keys: int
    tables: dict[str, int]
    finished: bool

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes

    @property
    def rate(self) -> float:
        """The average of transactions per second, without rolled-back ones."""
        return self.transactions / self.seconds if self.seconds else 0.0


def read_report(path: Path) -> Report | None:
    """Return the latest report; None before the first."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except FileNotFoundError:
        return None


class ShopTraffic:
    """Workers at a common average rate, until stopped."""

    def __init__(self, dsn: str, *, rate: float, workers: int = WORKERS, seed: int = SEED) -> None:
        self._stop = threading.Event()
        self._rate = rate
        # All workers look at the shop before the first changes it.
        self._workers = [
            ShopWorker(dsn, number, workers=workers, seed=seed) for number in range(workers)
        ]
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="shop worker")
        self._running: list[Future[None]] = []
        self._began = 0.0
        self._ended: float | None = None

    def start(self) -> None:
        self._began = time.monotonic()
        self._running = [self._pool.submit(self._drive, worker) for worker in self._workers]
        for worker in self._running:
            worker.add_done_callback(lambda _: self._stop.set())

    def request_stop(self) -> None:
        """Let every worker finish the transaction it is in; safe in a signal handler."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the workers' ends and re-raise the first error that any of them met.

        One worker's error stops the others.
        """
        self._pool.shutdown()
        self._ended = time.monotonic()
        for worker in self._workers:
            worker.close()
        for ended in self._running:
            ended.result()

    @property
    def working(self) -> bool:
        return not all(worker.done() for worker in self._running)

    def report(self, *, finished: bool = False) -> Report:
        total = Tally()
        for worker in self._workers:
            total.add(worker.tally)
        return Report(
            seconds=round((self._ended or time.monotonic()) - self._began, 3),
            transactions=total.transactions,
            rolled_back=total.rolled_back,
            savepoints_undone=total.savepoints_undone,
            undone=total.undone,
            inserts=total.kinds["INSERT"],
            updates=total.kinds["UPDATE"],
            deletes=total.kinds["DELETE"],
            changed_keys=total.changed_keys,
            tables=dict(sorted(total.tables.items())),
            finished=finished,
        )

    def _drive(self, worker: ShopWorker) -> None:
        doings, weights = list(DOINGS), list(DOINGS.values())
        pause_s = len(self._workers) / self._rate
        due = self._began
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            (doing,) = worker.random.choices(doings, weights)
            doing(worker)
            due += pause_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the traffic until a signal; see the module's docstring."""
    parser = argparse.ArgumentParser(description="live traffic on the sample shop")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=TRANSACTIONS_PER_S, help="transactions/s")
    parser.add_argument("--workers", type=int, default=WORKERS, help="connections")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    traffic = ShopTraffic(
        os.environ[DSN_VARIABLE], rate=options.rate, workers=options.workers, seed=options.seed
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: traffic.request_stop())
    traffic.start()
    while traffic.working:
        _write(options.report, traffic.report())
        time.sleep(_REPORT_INTERVAL_S)
    traffic.join()
    _write(options.report, traffic.report(finished=True))
    return 0


def _write(path: Path, report: Report) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.encode(report))
    partial.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
