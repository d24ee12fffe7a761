"""A cluster that gives an application no executor is named, instead of waited for without end. With
a real one: `tests/faults/test_cluster.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tideline.cluster_spark import EXECUTORS_WAIT, cluster_settings
from tideline.contract.errors import Unavailable
from tideline.settings import Merge
from tideline_spark import executors, session
from tideline_spark.executors import require_executor
from tideline_spark.session import make_session

MASTER = "spark://h:7077"


class Listed(list[Any]):
    """As Py4J shows a sequence of Scala's."""

    def size(self) -> int:
        return len(self)

    def apply(self, number: int) -> Any:
        return self[number]


class Application:
    """A session whose first executor joins at the look ``joins``; what else is asked fails."""

    version = "4.1.3"

    def __init__(self, joins: int | None, conf: dict[str, str]) -> None:
        self.looks, self.stopped, self._joins = 0, False, joins
        status = SimpleNamespace(executorList=self._executors)
        java = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: status))
        self.conf = SimpleNamespace(get=conf.get)
        self.sparkContext = SimpleNamespace(
            _jsc=java, getConf=lambda: SimpleNamespace(get=conf.get)
        )

    def _executors(self, active: bool) -> Listed:
        assert active
        self.looks += 1
        joined = ["driver"]
        if self._joins is not None and self.looks >= self._joins:
            joined.append("0")
        return Listed(
            SimpleNamespace(id=lambda name=name: name, hostPort=lambda: "h:1") for name in joined
        )

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A time that passes by pauses alone: its seconds."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(executors, "time", clock)
    return now


def test_the_first_executor_is_waited_for(clock: list[float]) -> None:
    found: Any = Application(4, {EXECUTORS_WAIT: "240"})
    require_executor(found, MASTER)
    assert found.looks == 4 and clock[0] < 1


def test_none_is_named_after_the_time_of_the_settings(clock: list[float]) -> None:
    found: Any = Application(None, cluster_settings(Merge(executors_wait_s=30), MASTER))
    with pytest.raises(Unavailable, match=f"no executor of {MASTER} has joined in 30 s") as none:
        require_executor(found, MASTER)
    assert 30 <= clock[0] < 31
    assert "merge.cores_max" in str(none.value.hint)


@pytest.mark.parametrize(
    "conf",
    [
        cluster_settings(Merge(), "yarn"),
        {EXECUTORS_WAIT: "30", "spark.dynamicAllocation.enabled": "true"},
    ],
)
def test_a_queue_and_executors_on_demand_are_not_waited_for(conf: dict[str, str]) -> None:
    found: Any = Application(None, conf)
    require_executor(found, MASTER)
    assert found.looks == 0


@pytest.mark.parametrize(("master", "waits"), [(MASTER, True), ("local[1]", False)])
def test_a_session_without_executors_is_ended(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], master: str, waits: bool
) -> None:
    found: Any = Application(None, {EXECUTORS_WAIT: "30"})
    for name, given in {
        "require_master": lambda _: None,
        "_start_java": lambda _: None,
        "_started": lambda *_, **__: found,
        "java_names": lambda _: None,
        "remember": lambda *_: None,
        "_check": lambda *_: None,
    }.items():
        monkeypatch.setattr(session, name, given)
    if waits:
        with pytest.raises(Unavailable, match="no executor"):
            make_session(master=master)
    else:
        make_session(master=master)
    assert found.stopped is waits
