"""What is tried again, how often and how long: no Spark is started here."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fixtures.parts import History, Shaped, schema_of
from tideline.contract.errors import Unavailable
from tideline.contract.plan import TablePlan
from tideline.contract.receipt import Outcome, TableReceipt

pyspark_errors = pytest.importorskip("pyspark.errors")

MASTER = "local[2]"
RACE = "[DELTA_CONCURRENT_APPEND] ConcurrentAppendException"
AWAY = "Job aborted: java.net.ConnectException: Connection refused"
FULL = "java.io.IOException: No space left on device"
WRONG = "[CAST_INVALID_INPUT] The value cannot be cast"
TORN = "[FAILED_READ_FILE.NO_HINT] file is not a Parquet file"
TORN_BY_THE_NET = "[FAILED_READ_FILE.NO_HINT] java.net.SocketTimeoutException: Read timed out"


class Clock:
    """Time passes only where someone waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def failing(*texts: str) -> Callable[[], str]:
    left = list(texts)

    def attempt() -> str:
        if left:
            raise pyspark_errors.PySparkException(left.pop(0))
        return "done"

    return attempt


@pytest.mark.parametrize(
    ("texts", "attempts", "conflicts", "error"),
    [
        ((), 1, 0, None),
        ((RACE, RACE), 3, 2, None),
        ((RACE, RACE, RACE), 3, 3, "Unavailable"),
        ((AWAY, FULL, TORN_BY_THE_NET), 4, 0, None),
        ((AWAY, RACE, AWAY), 4, 1, None),
        ((WRONG,), 1, 0, "Unavailable"),
        ((TORN,), 1, 0, "CorruptData"),
        ((AWAY, WRONG), 2, 0, "Unavailable"),
    ],
)
def test_what_waiting_can_mend_is_tried_again(
    texts: tuple[str, ...], attempts: int, conflicts: int, error: str | None
) -> None:
    from tideline_spark.attempts import Patience, try_until

    clock = Clock()
    patience = Patience(races_max=2, retry_s=60.0, clock=lambda: clock.now, sleep=clock.sleep)
    tried = try_until(failing(*texts), patience, "merging public.t")
    assert (tried.attempts, tried.conflicts) == (attempts, conflicts)
    assert len(clock.waits) == attempts - 1
    assert (None if tried.error is None else type(tried.error).__name__) == error
    assert tried.result == ("done" if error is None else None)


def test_patience_ends() -> None:
    from tideline_spark.attempts import Patience, try_until

    clock = Clock()
    patience = Patience(races_max=2, retry_s=60.0, clock=lambda: clock.now, sleep=clock.sleep)
    tried = try_until(failing(*[AWAY] * 1000), patience, "merging public.t")
    assert type(tried.error).__name__ == "Unavailable"
    assert 3 < tried.attempts < 100
    assert 20 < clock.now <= 60
    none = Patience(races_max=2, retry_s=0.0, clock=lambda: clock.now, sleep=clock.sleep)
    assert try_until(failing(AWAY), none, "merging public.t").attempts == 1


def test_our_own_unavailable_is_tried_again_and_our_own_verdicts_are_not() -> None:
    from tideline.contract.errors import CorruptData, TidelineError
    from tideline_spark.attempts import Patience, try_until

    clock = Clock()
    patience = Patience(retry_s=60.0, clock=lambda: clock.now, sleep=clock.sleep)
    left: list[TidelineError] = [Unavailable("the store is away"), CorruptData("a part is torn")]

    def attempt() -> None:
        raise left.pop(0)

    tried = try_until(attempt, patience, "merging public.t")
    assert (tried.attempts, type(tried.error).__name__) == (2, "CorruptData")


def test_whatever_is_raised_is_an_error_of_ours_that_tells_no_value() -> None:
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    from tideline_spark.attempts import Patience, try_until

    def failing_with(error: Exception) -> Callable[[], str]:
        def attempt() -> str:
            raise error

        return attempt

    for error, kind, reported in (
        (KeyError("SECRET"), "InvariantBroken", "KeyError at test_attempts.py:"),
        (Py4JNetworkError("SECRET"), "Unavailable", "Java process does not answer"),
        (ConnectionRefusedError(111, "SECRET"), "Unavailable", "Java process does not answer"),
    ):
        tried = try_until(failing_with(error), Patience(retry_s=60.0), "merging public.t")
        assert tried.error is not None
        assert (tried.attempts, type(tried.error).__name__) == (1, kind)
        assert reported in tried.error.message and tried.error.hint
        assert "SECRET" not in str(tried.error)


def test_a_call_whose_connection_is_reset_tells_of_java_and_not_of_a_bug() -> None:
    """As when Java is killed with something in its socket that it has not read."""
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        GatewayParameters,
        JavaGateway,
    )

    from tideline_spark.failures import unexpected

    def reset() -> None:
        connection, _ = server.accept()
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        java = threading.Thread(target=reset)
        java.start()
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=server.getsockname()[1]))
        with pytest.raises(Exception, match="calling") as raised:
            gateway.entry_point.hello()
        java.join()
    error = unexpected(raised.value, "merging public.t")
    assert isinstance(error, Unavailable), error
    assert "Java process does not answer" in error.message


def test_a_table_that_cannot_begin_has_its_receipt_and_the_others_theirs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tideline_spark import merge

    history = History(tmp_path)
    for table in ("public.a", "public.b"):
        history.commit(Shaped(schema_of(table, {"id": "int64"}, ["id"])))

    class Run:
        """A run of which one table's session cannot be made."""

        def __init__(
            self, spark: Any, plan: Any, table: TablePlan, on_point: Any, planned_manifests: Any
        ) -> None:
            if table.table == "public.a":
                raise ConnectionRefusedError(111, "no Java there")
            self.table = table

        def run(self, patience: Any) -> TableReceipt:
            return TableReceipt(self.table.table, Outcome.APPLIED, 1, 1)

    monkeypatch.setattr(merge, "TableRun", Run)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=MASTER))
    failed, applied = merge.run_plan(spark, history.plan(), tables_at_once=2).tables
    assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, "Unavailable")
    assert applied.outcome is Outcome.APPLIED


@pytest.mark.parametrize(
    ("wanted", "cores", "expected"), [(None, 3, 3), (2, 8, 2), (1, 8, 1), (None, 64, 16)]
)
def test_so_many_tables_are_merged_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wanted: int | None,
    cores: int,
    expected: int,
) -> None:
    """As many as the settings say, else as there are cores: all at once, and never one more."""
    from tideline_spark import merge

    history = History(tmp_path)
    for at in range(20):
        history.commit(Shaped(schema_of(f"public.t{at}", {"id": "int64"}, ["id"])))
    together = threading.Barrier(expected)
    now, most = [0], [0]
    lock = threading.Lock()

    class Run:
        """A table's merge that the first ``expected`` ones begin before any of them ends."""

        def __init__(
            self, spark: Any, plan: Any, table: TablePlan, on_point: Any, planned_manifests: Any
        ) -> None:
            self.at = int(table.table.removeprefix("public.t"))
            self.table = table

        def run(self, patience: Any) -> TableReceipt:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            if self.at < expected:
                together.wait(60)
            with lock:
                now[0] -= 1
            return TableReceipt(self.table.table, Outcome.APPLIED, 1, 1)

    monkeypatch.setattr(merge, "TableRun", Run)
    context = SimpleNamespace(master=MASTER, defaultParallelism=cores)
    spark: Any = SimpleNamespace(sparkContext=context)
    plan = history.plan()
    first = sorted(plan.tables, key=lambda one: int(one.table.removeprefix("public.t")))
    merge.run_plan(spark, replace(plan, tables=tuple(first)), tables_at_once=wanted)
    assert most[0] == expected


def test_no_java_to_ask_for_its_cores_is_no_end_of_the_run(tmp_path: Path) -> None:
    from tideline_spark import merge

    class Gone:
        """A session, and its context, whose Java process is gone; PySpark knows the master."""

        master = MASTER

        @property
        def sparkContext(self) -> Gone:
            return self

        @property
        def defaultParallelism(self) -> int:
            raise ConnectionRefusedError(111, "no Java there")

        newSession = defaultParallelism

    history = History(tmp_path)
    history.commit(Shaped(schema_of("public.a", {"id": "int64"}, ["id"])))
    gone: Any = Gone()
    (receipt,) = merge.run_plan(gone, history.plan()).tables
    assert (receipt.outcome, receipt.error_kind) == (Outcome.FAILED, "Unavailable")
