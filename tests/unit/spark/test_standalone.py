"""A standalone master that is there or is not, asked before a Java is started for it."""

from __future__ import annotations

import socket

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from devtools.services.ports import free_port
from tideline.contract.errors import Misconfigured, Unavailable
from tideline_spark.session import make_session
from tideline_spark.standalone import require_master, start_failure


def test_one_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        require_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}")


def test_none_is_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"does not answer: spark://127\.0\.0\.1") as away:
        require_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{free_port()}")
    assert "the next run goes on" in str(away.value.hint)


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://h:1", ""])
def test_others_are_left_to_spark(master: str) -> None:
    require_master(master)


def test_an_address_of_none_is_named() -> None:
    """That of Airflow's connection is no setting."""
    with pytest.raises(Misconfigured, match="master spark://h must have a port") as flaw:
        require_master("spark://h")
    assert "Airflow's connection" in str(flaw.value.hint)


def test_no_java_is_started_for_a_master_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(settings: object) -> None:
        pytest.fail("a Java was started")

    monkeypatch.setattr("tideline_spark.session._start_java", started)
    with pytest.raises(Unavailable, match="does not answer"):
        make_session(master=f"spark://127.0.0.1:{free_port()}")


@pytest.mark.parametrize(
    ("text", "kind", "hint"),
    [
        ("java.net.BindException: Cannot assign requested address", Misconfigured, "driver_host"),
        ("IllegalStateException: Cannot call methods on a stopped", Unavailable, "secret"),
    ],
)
def test_why_a_session_does_not_start(text: str, kind: type[Exception], hint: str) -> None:
    found = start_failure(Py4JError(text), "spark://h:7077", secret=True)
    assert isinstance(found, kind) and hint in str(found)


@pytest.mark.parametrize(
    ("secret", "hint"),
    [(True, "may be another than"), (False, "may want a secret, and merge.auth")],
)
def test_a_secret_is_looked_for_where_it_may_be_missing(secret: bool, hint: str) -> None:
    found = start_failure(Py4JError("a stopped SparkContext"), "spark://h:7077", secret=secret)
    assert "did not accept this application" in found.message and hint in str(found.hint)
