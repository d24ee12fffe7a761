"""A worker that waits for its store hears that it is to stop."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.fixtures.settings import as_toml

PATIENCE_S = 120.0
PROGRAM = Path(sys.executable).with_name("tideline")


class Mute:
    """A store that takes connections and says nothing on them; ``broken``: it closes them at once,
    so that requests are tried again. ``asked``: a client has come for the n-th time."""

    def __init__(self, *, broken: bool, times: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.asked = threading.Event()
        self._broken, self._times = broken, times
        self._held: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._held.append(client)
                if self._broken:
                    client.close()
                if len(self._held) >= self._times:
                    self.asked.set()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        for one in (self._server, *self._held):
            one.close()


@contextmanager
def worker(store: Mute, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One that has begun to ask ``store``, and would for an hour."""
    values = {
        "pipeline": "p",
        "source": {"url": "postgresql://tideline@127.0.0.1:1/shop"},
        "store": {
            "url": "s3://bucket/lake",
            "endpoint": f"http://127.0.0.1:{store.port}",
            "region": "us-east-1",
            "access_key_id": "id",
            "secret_access_key": "canary-11",
            "retry_s": 3600.0,
            "timeout_s": 3600.0,
        },
        "warehouse": {"url": folder.as_uri()},
    }
    path = folder / "tideline.toml"
    path.write_text(as_toml(values))
    # Under nohup this process, and then that one, would ignore SIGHUP.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process = subprocess.Popen(
        [str(PROGRAM), "capture", "--config", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    signal.signal(signal.SIGHUP, before)
    try:
        assert store.asked.wait(PATIENCE_S), process.poll()
        yield process
    finally:
        process.kill()
        process.wait()
        store.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
@pytest.mark.parametrize("broken", [False, True], ids=["silent", "broken"])
def test_stopped_while_the_store_is_probed(
    number: signal.Signals, broken: bool, tmp_path: Path
) -> None:
    """Whoever stops containers waits for half a minute; the store would be asked for an hour. The
    store may be one that gives no answer, or none that one can use."""
    with worker(Mute(broken=broken, times=8 if broken else 1), tmp_path) as process:
        process.send_signal(number)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    assert "stopped before it began" in output
    assert "Traceback" not in output
    assert "stamina" not in output
    assert "canary" not in output
