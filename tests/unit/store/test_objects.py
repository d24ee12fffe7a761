"""The object store under answers that go wrong: what is repeated, what stops, what is told."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.exceptions import GenericError

from tests.unit.store.scripted_s3 import ACCESS_KEY_ID, SECRET, Fault, ScriptedS3
from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.settings import Store
from tideline.store.answers import Unanswered, interpret
from tideline.store.objects import ObjectStore, open_store

BEFORE = Fault(500)
AFTER = Fault(500, effect=True)
CONFLICT = Fault(409, "ConditionalRequestConflict")


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        yield server


@pytest.fixture
def store(server: ScriptedS3) -> ObjectStore:
    return open_store(server.settings())


def puts(server: ScriptedS3) -> int:
    return sum(method == "PUT" for method, _ in server.requests)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
def test_put_repeats_what_may_pass(server: ScriptedS3, store: ObjectStore, status: int) -> None:
    server.faults.extend([Fault(status), Fault(status, effect=True)])
    store.put("a/b", b"data")
    assert server.objects == {"a/b": b"data"}
    assert puts(server) == 3


@pytest.mark.parametrize("fault", [BEFORE, Fault(503, "SlowDown"), Fault(broken=True), CONFLICT])
def test_create_after_an_answer_without_effect(
    server: ScriptedS3, store: ObjectStore, fault: Fault
) -> None:
    server.faults.append(fault)
    assert store.create("a", b"mine") is True
    assert server.objects == {"a": b"mine"}


@pytest.mark.parametrize("fault", [AFTER, Fault(broken=True, effect=True)])
def test_create_whose_success_was_lost_is_not_called_new(
    server: ScriptedS3, store: ObjectStore, fault: Fault
) -> None:
    server.faults.append(fault)
    assert store.create("a", b"mine") is False
    assert store.get("a") == b"mine"


def test_create_with_a_conflict_whose_put_had_its_effect(
    server: ScriptedS3, store: ObjectStore
) -> None:
    server.faults.append(Fault(409, effect=True))
    assert store.create("a", b"mine") is False


def test_create_where_something_is(server: ScriptedS3, store: ObjectStore) -> None:
    server.objects["a"] = b"theirs"
    assert store.create("a", b"mine") is False
    assert store.get("a") == b"theirs"
    assert puts(server) == 1


@pytest.mark.parametrize("effect", [False, True])
def test_create_that_gets_no_answer_in_time(server: ScriptedS3, effect: bool) -> None:
    # The second PUT must be answered within it, too.
    store = open_store(server.settings(timeout_s=2.0))
    server.faults.append(Fault(silent=True, effect=effect))
    assert store.create("a", b"mine") is not effect
    assert server.objects == {"a": b"mine"}
    assert puts(server) == 2


def test_create_is_one_put_whatever_its_size(server: ScriptedS3, store: ObjectStore) -> None:
    data = bytes(20 * 1024 * 1024)
    assert store.create("a", data) is True
    assert server.requests == [("PUT", "a")]
    assert server.objects["a"] == data


def test_reads_are_repeated(server: ScriptedS3, store: ObjectStore) -> None:
    server.objects["a"] = b"data"
    server.faults.extend([Fault(503), Fault(broken=True)])
    assert store.get("a") == b"data"
    server.faults.append(Fault(500))
    assert store.exists("a") is True
    assert store.exists("b") is False
    assert store.get("b") is None


def test_delete_of_what_is_gone(server: ScriptedS3, store: ObjectStore) -> None:
    server.objects["a"] = b"data"
    server.faults.append(AFTER)
    store.delete("a")
    assert server.objects == {}


def test_a_delete_that_is_denied(server: ScriptedS3, store: ObjectStore) -> None:
    server.objects["a"] = b"data"
    server.denies_deletion = True
    with pytest.raises(Misconfigured, match="AccessDenied"):
        store.delete("a")
    assert len(server.requests) == 1


def test_a_store_that_stays_down_is_unavailable(server: ScriptedS3) -> None:
    store = open_store(server.settings(retry_s=2.0))
    server.faults.extend([Fault(503, "SlowDown")] * 100)
    with pytest.raises(Unavailable, match=r"put log/1.*status 503, SlowDown"):
        store.put("log/1", b"data")
    assert 2 <= puts(server) < 100


def test_a_server_that_is_gone_is_unavailable() -> None:
    with ScriptedS3() as server:
        settings = server.settings(retry_s=0.2)
    with pytest.raises(Unavailable, match="get a: no connection") as caught:
        open_store(settings).get("a")
    assert f"the store {settings.url} at {settings.endpoint} did not answer" in caught.value.message


@pytest.mark.parametrize(
    ("fault", "pattern"),
    [
        (Fault(403, "AccessDenied"), r"status 403, AccessDenied.*access_key_id"),
        (Fault(403, "SignatureDoesNotMatch"), r"SignatureDoesNotMatch.*access_key_id"),
        (Fault(401, "Unauthorized"), r"status 401"),
        (Fault(400, "AuthorizationHeaderMalformed"), r"AuthorizationHeaderMalformed"),
        (Fault(404, "NoSuchBucket"), r"no such bucket.*create the bucket"),
        (Fault(301, "PermanentRedirect"), r"region"),
        (Fault(501, "NotImplemented"), r"status 501, NotImplemented"),
    ],
)
def test_what_only_an_operator_can_mend(
    server: ScriptedS3, store: ObjectStore, fault: Fault, pattern: str
) -> None:
    server.faults.append(fault)
    with pytest.raises(Misconfigured, match=pattern):
        store.create("a/key", b"data")
    assert len(server.requests) == 1
    server.faults.append(fault)
    with pytest.raises(Misconfigured, match=pattern):
        store.get("a/key")


def test_a_refusal_that_the_library_takes_for_no_denial_is_one_too() -> None:
    """As a proxy's answer is, or Amazon's where another store was meant."""
    error = interpret(
        GenericError("Server returned error: status code: 403"), url="s3://b/x", request="create k"
    )
    assert isinstance(error, Misconfigured)
    assert "access_key_id" in str(error.hint) and "endpoint" in str(error.hint)


@pytest.mark.parametrize("status", [403, 400, 404, 503])
def test_no_credential_is_told(server: ScriptedS3, status: int) -> None:
    store = open_store(server.settings(retry_s=0.1))
    server.faults.extend([Fault(status)] * 20)
    with pytest.raises(TidelineError) as caught:
        store.put("a/key", b"data")
    shown = f"{caught.value} {caught.value!r} {store!r}"
    assert ACCESS_KEY_ID not in shown
    assert SECRET not in shown
    assert caught.value.__suppress_context__


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("file", "file/below"):
        with pytest.raises(Misconfigured, match="cannot be written: "):
            open_store(Store(url=f"file://{tmp_path}/{name}"))


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    store = open_store(Store(url=f"file://{tmp_path}", retry_s=0.1))
    store.put("a", b"data")
    with pytest.raises(Misconfigured, match=r"put a/b.*ENOTDIR"):
        store.put("a/b", b"data")


def test_a_directory_is_created_with_its_parents(tmp_path: Path) -> None:
    store = open_store(Store(url=f"file://{tmp_path}/with%20space/below"))
    store.put("a/b", b"data")
    assert (tmp_path / "with space" / "below" / "a" / "b").read_bytes() == b"data"


def test_a_directory_is_synced_before_a_write_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store = open_store(Store(url=f"file://{tmp_path}"))
    assert store.create("a/b", b"data") is True
    assert synced == [f"{tmp_path}/a/b", f"{tmp_path}/a", f"{tmp_path}"]


def test_memory_is_shared_by_name() -> None:
    first = open_store(Store(url="memory://test-shared"))
    first.put("a", b"data")
    assert open_store(Store(url="memory://test-shared")).get("a") == b"data"
    assert open_store(Store(url="memory://test-other")).get("a") is None


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, Unanswered), (errno.EACCES, Misconfigured), (errno.EROFS, Misconfigured)],
)
def test_errors_of_a_disk(number: int, kind: type[Exception]) -> None:
    error = GenericError(f"Unable to open file: {os.strerror(number)} (os error {number})")
    reported = interpret(error, url="file:///x", request="put a")
    assert isinstance(reported, kind)
    assert errno.errorcode[number] in str(reported)
