"""The probe refuses stores that cannot fence, and accepts one that only denies deletion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.store.scripted_s3 import Fault, ScriptedS3
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.store.probe import probe_store


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        yield server


def test_a_good_store_is_left_clean(server: ScriptedS3) -> None:
    probe_store(server.settings(), "shop")
    assert server.objects == {}
    assert sum(method == "PUT" for method, _ in server.requests) == 3


def test_a_store_that_ignores_create_only(server: ScriptedS3) -> None:
    server.ignores_conditions = True
    with pytest.raises(Misconfigured, match="lets two writers create the same object"):
        probe_store(server.settings(), "shop")


def test_a_store_that_denies_deletion_is_accepted(server: ScriptedS3) -> None:
    server.denies_deletion = True
    probe_store(server.settings(), "shop")
    assert len(server.objects) == 1


@pytest.mark.parametrize("fault", [Fault(409), Fault(500, effect=True), Fault(503)])
def test_lost_answers_do_not_condemn_a_store(server: ScriptedS3, fault: Fault) -> None:
    server.faults.append(fault)
    probe_store(server.settings(), "shop")


def test_a_store_that_may_not_be_written(server: ScriptedS3) -> None:
    server.faults.extend([Fault(403, "AccessDenied")] * 2)
    with pytest.raises(Misconfigured, match="AccessDenied"):
        probe_store(server.settings(), "shop")


def test_a_store_that_is_down(server: ScriptedS3) -> None:
    server.faults.extend([Fault(503)] * 200)
    with pytest.raises(Unavailable):
        probe_store(server.settings(retry_s=0.2), "shop")
