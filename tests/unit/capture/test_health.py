"""Alive and ready: what is judged, and that the server has the three paths and no other."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Gauge

from devtools.services.ports import free_port
from tideline.contract.errors import Misconfigured
from tideline.settings import Capture, make_settings
from tideline_capture.health import Health, limit_of
from tideline_capture.web import CONNECTIONS_MAX, serve


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def judged(clock: Clock, *, stopping: Callable[[], bool] = lambda: False) -> Health:
    return Health(limit_s=150.0, patience_s=15.0, stopping=stopping, clock=clock)


@pytest.mark.parametrize("loop", ["main", "uploader"])
def test_a_loop_that_hangs_is_not_alive_after_the_limit(loop: str) -> None:
    clock = Clock()
    health = judged(clock)
    getattr(health, loop).turn()
    other = health.uploader if loop == "main" else health.main
    clock.now += 150
    other.turn()
    assert health.alive().ok
    clock.now += 0.1
    other.turn()
    verdict = health.alive()
    assert not verdict.ok
    assert "has not come round for 150.1 s; 150 s are allowed" in verdict.reason
    getattr(health, loop).turn()
    assert health.alive().ok


def test_a_worker_that_hangs_before_its_first_turn_is_not_alive() -> None:
    clock = Clock()
    health = judged(clock)
    assert health.alive().ok
    clock.now += 151
    assert not health.alive().ok


def test_what_has_not_begun_is_not_watched() -> None:
    """A passive worker has no uploader."""
    clock = Clock()
    health = judged(clock)
    clock.now += 500
    health.main.turn()
    assert health.alive().ok


def test_the_limit_is_what_the_answers_may_take() -> None:
    settings = make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://tideline@db/shop"},
            "store": {"url": "memory://", "retry_s": 3, "timeout_s": 2},
            "warehouse": {"url": "file:///warehouse"},
            "capture": {"mark_timeout_s": 7},
        }
    )
    assert limit_of(settings) == 12


def test_a_passive_worker_is_ready_while_it_sees_the_chain() -> None:
    clock = Clock()
    health = judged(clock)
    assert (health.ready().ok, health.ready().reason) == (False, "starting")
    health.saw_chain()
    clock.now += 15
    assert health.ready().ok
    clock.now += 0.1
    assert "the store has not answered for 15.1 s" in health.ready().reason
    assert not health.ready().ok


def test_an_active_worker_is_ready_while_it_reads_and_owns_the_chain() -> None:
    clock = Clock()
    health = judged(clock)
    health.saw_chain()
    owned = [True]
    health.active(lambda: owned[0])
    assert not health.ready().ok, "it has seen the chain, but reads nothing yet"
    health.reading(True)
    assert (health.ready().ok, health.ready().reason) == (True, "active, reads the log")
    owned[0] = False
    assert "another worker may own the chain" in health.ready().reason
    assert not health.ready().ok
    owned[0] = True
    clock.now += 15.1
    assert not health.ready().ok, "its loop does not turn"
    health.main.turn()
    assert health.ready().ok
    health.reading(False)
    assert not health.ready().ok


def test_who_stops_is_alive_and_not_ready() -> None:
    clock = Clock()
    health = judged(clock, stopping=lambda: True)
    health.active(lambda: True)
    health.reading(True)
    assert (health.ready().ok, health.ready().reason) == (False, "stopping")
    assert health.alive().ok


class Served:
    """A server as the worker starts it."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.clock = Clock()
        self.health = judged(self.clock)
        self.port = free_port()
        registry = CollectorRegistry()
        Gauge("canary", "One", registry=registry).set(1)
        serve(address, self.port, registry, self.health)

    def get(self, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{host}:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def test_one_server_has_the_three_paths() -> None:
    served = Served()
    code, body = served.get("/metrics")
    assert (code, "canary 1.0" in body) == (200, True)
    assert served.get("/healthz")[0] == 200
    assert served.get("/readyz") == (503, "failed: starting\n")
    served.health.saw_chain()
    assert served.get("/readyz")[0] == 200
    served.clock.now += 151
    code, body = served.get("/healthz")
    assert (code, body.startswith("failed: the main loop")) == (503, True)
    for path in ("/", "/metrics/x", "/favicon.ico", "/healthz/"):
        code, body = served.get(path)
        assert (code, "canary" in body) == (404, False), path


@pytest.mark.parametrize(("method", "code"), [("HEAD", 200), ("POST", 405), ("DELETE", 405)])
def test_nothing_can_be_changed_through_it(method: str, code: int) -> None:
    connection = HTTPConnection("127.0.0.1", Served().port, timeout=30)
    with closing(connection):
        connection.request(method, "/healthz")
        answer = connection.getresponse()
        assert answer.status == code
        assert (answer.read() == b"") == (method == "HEAD")


def test_a_silent_client_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideline_capture.web._Handler.timeout", 0.2)
    served = Served()
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as mute:
        assert served.get("/healthz")[0] == 200
        assert mute.recv(1) == b"", "it is hung up on"


def test_many_slow_clients_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says a little again and again, so that none is ever silent for long."""
    monkeypatch.setattr("tideline_capture.web._Handler.timeout", 600)
    page = Served()
    with ExitStack() as stack:
        slow = []
        for _ in range(3 * CONNECTIONS_MAX):
            slow.append(stack.enter_context(socket.create_connection(("127.0.0.1", page.port))))
            slow[-1].sendall(b"GET /healthz HTTP/1.1\r\n")
        assert page.get("/healthz")[0] == 200
        for client in slow[: len(slow) - CONNECTIONS_MAX]:
            client.settimeout(60)
            with suppress(ConnectionError):
                assert client.recv(1) == b"", "it is hung up on"


def test_loopback_is_the_default_and_another_address_a_setting() -> None:
    assert Capture().metrics_address == "127.0.0.1"
    # 127.0.0.2 is this machine too, and who listens at 127.0.0.1 is not reached by it.
    alone, every = Served(), Served("0.0.0.0")
    with pytest.raises(urllib.error.URLError):
        alone.get("/healthz", "127.0.0.2")
    assert every.get("/healthz", "127.0.0.2")[0] == 200


def test_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as six:
            six.bind(("::1", 0))
    except OSError:
        with pytest.raises(Misconfigured, match="::1"):
            Served("::1")
        return
    assert Served("::1").get("/healthz", "[::1]")[0] == 200


def test_an_address_that_is_not_ours_is_a_mistake() -> None:
    with pytest.raises(Misconfigured, match=r"192\.0\.2\.7") as caught:
        Served("192.0.2.7")
    assert caught.value.hint is not None and "capture.metrics_address" in caught.value.hint


@pytest.mark.parametrize("address", ["", "localhost", "0.0.0.0:80", "*"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match="must be an IP address"):
        Capture(metrics_address=address)
