"""Tables in files on a cluster: an executor that does not see the driver's folder would write them
to a disk of its own, and the commit would name files that no other machine has.

So that is refused, unless the settings say that the folders are the same everywhere
(``merge.shared_files``); then each job tries it first, on every executor that it has.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tideline.cluster_spark import SHARED_FILES, folder_refused, is_cluster
from tideline.contract.errors import CorruptData, Misconfigured, Unavailable
from tideline_spark.executors import ended_tasks, executors

PREFIX = ".tideline-shared-"
"""The beginning of the name of a probe's folder."""
_ROUNDS_MAX = 5
_REPORTED_S = 30.0
_PAUSE_S = 0.05
_BAD = "an executor cannot read or write there what is there here"
_FILES = {
    # A task for each file.
    "spark.sql.files.openCostInBytes": str(1 << 40),
    # To list many files would be a job of its own, on executors.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": str(1 << 30),
    "spark.sql.adaptive.enabled": "false",
}
_PASSED: dict[tuple[str, Path], set[str]] = {}
"""The executors that have seen a folder, by application."""
_HINT = (
    "nothing was written; mount the same folder at this path on every machine of the cluster,"
    " writable for its Spark; or move store and warehouse to S3"
)


@contextmanager
def files_seen_by_all(
    spark: SparkSession, store_url: str | None, targets: Iterable[str]
) -> Iterator[None]:
    """Try before the work of the context that every executor sees the store and the folders of
    ``targets``, as far as they are files; and after it those that joined in the meantime.

    Raises, before the work, Misconfigured where one does not, or where the settings do not say that
    it should; Unavailable where an executor cannot be asked. Raises CorruptData after the work for
    one that joined and does not. Does nothing on a local master, and where all is in an object
    store.
    """
    folders = _folders(store_url, targets)
    master = str(spark.sparkContext.master)
    if not folders or not is_cluster(master):
        yield
        return
    if spark.conf.get(SHARED_FILES, "false") != "true":
        raise folder_refused(str(folders[0]), master)
    probes = [_SharedFolder(spark, folder, master) for folder in folders]
    tried = set.intersection(*[one.run() for one in probes])
    hosts = {host for name, host in executors(spark).items() if name in tried}
    yield
    if later := executors(spark).keys() - tried:
        _try_later(spark, probes, later, hosts)


def _folders(store_url: str | None, targets: Iterable[str]) -> list[Path]:
    """Return the folders of the store and those that hold targets; none inside another."""
    urls = [store_url] if store_url is not None else []
    paths = {_path(url) for url in urls if _is_file(url)}
    paths |= {_path(url).parent for url in targets if _is_file(url)}
    outer: list[Path] = []
    for path in sorted(paths):
        if not any(path.is_relative_to(other) for other in outer):
            outer.append(path)
    return outer


def _is_file(url: str) -> bool:
    return urlsplit(url).scheme in ("file", "")


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _try_later(
    spark: SparkSession, probes: list[_SharedFolder], later: set[str], hosts: set[str]
) -> None:
    """Try the executors that joined while the work ran: ``later``, by id; one that is gone again
    counts as its machine, of which ``hosts`` passed."""
    everyone, alive = executors(spark), executors(spark, active=True)
    gone = sorted({everyone[one] for one in later - alive.keys()} - hosts)
    try:
        for probe in probes if later & alive.keys() else ():
            probe.run()
    except (Misconfigured, Unavailable) as error:  # What they have written is not known, either.
        why = error.message
    else:
        if not gone:
            return
        why = f"executors on {', '.join(gone)} came and went"
    raise CorruptData(
        f"an executor joined while the job ran, and may have written files that only it has: {why}",
        hint="mend the mount, and compare the tables of this job with the source"
        " (`tideline verify`); `tideline rebuild` makes those again that lack rows",
    )


@dataclass(frozen=True)
class _SharedFolder:
    """Has executors read what this process wrote to ``folder``, and write it to another file there,
    which this process reads."""

    spark: SparkSession
    folder: Path
    master: str

    def run(self) -> set[str]:
        """Return the ids of the executors that passed: all that there are.

        A round has two tasks for each core, so that every idle executor gets one; one that got none
        is given more rounds, unless it has passed for an earlier job: with the tasks of a long one
        it may be busy throughout.
        """
        known = _PASSED.setdefault((self.spark.sparkContext.applicationId, self.folder), set())
        probe = self.folder / f"{PREFIX}{secrets.token_hex(8)}"
        passed, failed = set[str](), set[str]()
        try:
            for number in range(_ROUNDS_MAX):
                ran, stuck = self._round(probe / str(number))
                passed |= ran
                failed |= stuck
                untried = executors(self.spark, active=True).keys() - passed - (known - failed)
                if not untried:
                    known |= passed
                    return passed | known
        finally:
            shutil.rmtree(probe, ignore_errors=True)
        if untried & failed:
            raise self._unseen(_BAD)
        raise Unavailable(
            f"{len(untried)} executors on {self.master} took no task that tries whether they see"
            f" {self.folder}",
            hint="the cluster is busy; nothing was written, run it again",
        )

    def _round(self, folder: Path) -> tuple[set[str], set[str]]:
        """Return the executors that did a task, and those where one failed, which another did."""
        given, written = folder / "given", folder / "written"
        spark = self.spark.newSession()
        tasks = 2 * spark.sparkContext.defaultParallelism
        words = [secrets.token_hex(8) for _ in range(tasks)]
        try:
            given.mkdir(parents=True)
            for number, word in enumerate(words):
                (given / f"{number}.txt").write_text(word)
        except OSError as error:
            raise Misconfigured(
                f"{self.folder} cannot be written here: {error.strerror}", hint=_HINT
            ) from None
        for name, value in _FILES.items():
            spark.conf.set(name, value)
        reader = spark.read.option("__globPaths__", "false")
        group = f"{PREFIX}{secrets.token_hex(8)}"
        spark.sparkContext.setJobGroup(group, "whether executors see the files")
        try:
            # Listed here, and read there.
            reader.text(f"file:{given}").write.text(f"file:{written}")
        except (Py4JJavaError, PySparkException):
            raise self._unseen(_BAD) from None
        finally:
            spark.sparkContext._jsc.clearJobGroup()
        found = sorted(word for one in written.glob("part-*") for word in one.read_text().split())
        if found != sorted(words):
            lost = len(words) - len(found)
            raise self._unseen(f"of {tasks} files that executors wrote there, {lost} are not here")
        return _that_ran(spark, group, tasks)

    def _unseen(self, why: str) -> Misconfigured:
        return Misconfigured(
            f"Spark's executors on {self.master} do not see the same {self.folder} as this machine:"
            f" {why}",
            hint=_HINT,
        )


def _that_ran(spark: SparkSession, group: str, tasks: int) -> tuple[set[str], set[str]]:
    """Return the executors that ended the ``tasks`` of a job of ``group``, and those where one of
    them failed. Spark reports them a little after the job's end."""
    end = time.monotonic() + _REPORTED_S
    while True:
        found = ended_tasks(spark, group, 10 * tasks)
        ran = [executor for executor, status in found if status == "SUCCESS"]
        if len(ran) >= tasks or time.monotonic() > end:
            return set(ran), {executor for executor, status in found if status == "FAILED"}
        time.sleep(_PAUSE_S)
