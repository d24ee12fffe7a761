"""Deaths of Spark's process, many of one run: each is a copy of what it would have left behind.

What a process that is killed leaves are its files as they are at that moment: what it had in mind
is gone, and nothing more of it happens. So the process is stopped (SIGSTOP, every thread of it),
the files (or objects) are copied, and it goes on. In S3 a request may be under way then: it comes
to pass or not, as after a death. A job that is taken up on such a copy cannot tell it from what
SIGKILL leaves, and the start of a JVM (8 s) is paid once instead of for each death.

The calls that write files without Spark (plans, receipts) are the caller's: it makes them under
`Camera.still`, so that no copy is made half before and half after one of them.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from tests.faults.places import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STOPPED = "Tt"
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Image:
    """One death: at which ``moment``, and what was left, in ``folder``."""

    moment: str
    folder: Path
    request: bool = False
    """Whether it was before or after a request to S3 or BigQuery."""


class Watched(Protocol):
    """A proxy before S3 or BigQuery."""

    def watched(self, watch: Callable[[str, Any], None]) -> AbstractContextManager[None]:
        """Call ``watch`` with ``"before"`` and ``"after"`` around each request."""


@dataclass(frozen=True, slots=True)
class Through:
    """The proxy that Spark reaches S3 or BigQuery through, and whether a request is one to die
    at."""

    faults: Watched
    named: Callable[[Any], bool]
    when: Collection[str] = ("before", "after")


class Camera:
    """Takes images of ``files`` into ``album``, a folder that is not in it. ``through`` adds
    a moment before and after each request that it names."""

    def __init__(
        self,
        spark: SparkSession,
        files: Place,
        album: Path,
        *,
        through: Through | None = None,
    ) -> None:
        self._spark = spark
        self._files = files
        self._through = through
        self._album = album
        self._pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        self.still = threading.RLock()
        self._taken: list[Image] = []
        self._count = 0

    def shoot(self, moment: str, *, request: bool = False) -> None:
        """An image of this moment; whoever calls waits for it."""
        with self.still:
            self._count += 1
            folder = self._album / f"{self._count:04d}"
            with self._stopped():
                self._files.copy(folder)
            self._taken.append(Image(moment, folder, request))

    @contextmanager
    def rolling(self, random_: Random, *, images_max: int, pause_s: float) -> Iterator[None]:
        """Images at random moments too, ``images_max`` of them at most, about ``pause_s`` apart."""
        over = threading.Event()

        def roll() -> None:
            for _ in range(images_max):
                if over.wait(random_.uniform(0, 2 * pause_s)):
                    return
                self.shoot("any moment")

        thread = threading.Thread(target=roll, daemon=True)
        thread.start()
        try:
            with self._watching():
                yield
        finally:
            over.set()
            thread.join()

    def _watching(self) -> AbstractContextManager[None]:
        if self._through is None:
            return nullcontext()
        through = self._through

        def meet(when: str, request: object) -> None:
            if when in through.when and through.named(request):
                self.shoot(f"{when} {request}", request=True)

        return self._through.faults.watched(meet)

    def album(self) -> list[Image]:
        """The images since the last call, which are the caller's to remove."""
        taken, self._taken = self._taken, []
        return taken

    def restore(self, image: Image) -> None:
        """Go back to that death; Spark forgets what came after it."""
        self._files.restore(image.folder)
        self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        os.kill(self._pid, signal.SIGSTOP)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while not all(state in _STOPPED for state in thread_states(self._pid)):
                if time.monotonic() > deadline:
                    raise AssertionError("the JVM does not stop")
                time.sleep(0.001)
            yield
        finally:
            os.kill(self._pid, signal.SIGCONT)


def thread_states(pid: int) -> Iterator[str]:
    """The state of every thread, as Linux tells it."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            text = (task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield text.rpartition(")")[2].split()[0]
