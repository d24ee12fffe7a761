"""The worker's log: what it says of a store's requests that are retried for long."""

from __future__ import annotations

import pytest
from stamina.instrumentation import RetryDetails, get_on_retry_hooks, set_on_retry_hooks
from structlog.testing import capture_logs

from tests.fixtures.systems import REAL
from tests.unit.store.scripted_s3 import Fault, ScriptedS3
from tideline.contract.errors import Unavailable
from tideline.programs.logs import log_retries
from tideline.store.objects import open_store


def test_a_store_that_is_asked_again_is_told_in_our_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on standard output, where a command's JSON goes, nor with the library's arguments."""
    with ScriptedS3() as server, capture_logs() as logs:
        server.faults.extend([Fault()] * 1_000)
        store = open_store(server.settings(retry_s=0.3))
        with pytest.raises(Unavailable):
            store.get("k")
        assert len(server.requests) > 1
        assert (logs, capsys.readouterr().out) == ([], "")
        monkeypatch.setattr("tideline.programs.logs.LOGGED_AFTER_S", 0.1)
        log_retries(REAL.monotonic)
        try:
            with pytest.raises(Unavailable):
                store.get("k")
        finally:
            set_on_retry_hooks([])
    assert {line["event"] for line in logs} == {"the store does not answer; it is asked again"}
    assert all(line["waited_s"] >= 0.1 for line in logs)
    assert "get k: status 500" in logs[0]["reason"]


def test_time_outs_count_as_waiting() -> None:
    """Of a store that takes ten seconds to not answer the second failure is told, though the pauses
    between were short."""
    now = iter([100.0, 100.0, 110.0, 200.0, 200.0])
    log_retries(lambda: next(now))
    failed = Unavailable("get k: timed out")
    try:
        (hook,) = get_on_retry_hooks()
        with capture_logs() as logs:
            for number in (1, 2, 1):
                hook(RetryDetails("get", (), {}, number, 0.2, 0.1, failed))
    finally:
        set_on_retry_hooks([])
    assert [line["waited_s"] for line in logs] == [10.2]
