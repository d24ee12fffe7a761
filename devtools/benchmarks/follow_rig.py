"""A worker and a merger as processes of their own, over the servers of a rig."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from devtools.benchmarks.rig import CaptureRig
from tideline.control.merger import MergerClient, MergerStatus
from tideline.settings import Settings

COMMAND = (sys.executable, "-c", "from tideline_console.app import main; main()")
PATIENCE_S = 1_800.0


def settings_file(
    server: CaptureRig, settings: Settings, merge: Mapping[str, Any] | None = None
) -> Path:
    """Write the settings, and the keys ``merge`` of ``[merge]``, where other processes read
    them."""
    path = server.folder / "tideline.toml"
    capture = settings.capture
    path.write_text(
        f"""
        pipeline = "{settings.pipeline}"
        source = {{ url = "{server.dsn}", tables = ["public.*"], initial = "dump" }}
        store.url = "{settings.store.url}"
        control.url = "{server.valkey.url()}"
        warehouse.url = "{settings.warehouse.url}"
        capture.flush_interval_s = {capture.flush_interval_s}
        capture.heartbeat_s = {capture.heartbeat_s}
        capture.takeover_after_s = {capture.takeover_after_s}
        """
        + "".join(f"merge.{key} = {json.dumps(one)}\n" for key, one in (merge or {}).items())
    )
    return path


@contextmanager
def running(command: str, config: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of ours beside; stopped by SIGTERM at the end."""
    log = config.with_name(f"{command}.log")
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*COMMAND, command, *options, "--config", str(config)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TIDELINE_CONFIG": str(config)},
        )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(120)


def merger_status(settings: Settings) -> MergerStatus | None:
    with closing(MergerClient(settings.control, settings.pipeline)) as client:
        return client.status()


def until(what: str, holds: Callable[[], bool]) -> None:
    """Return once ``holds``; TimeoutError if it never does."""
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end_s:
            raise TimeoutError(f"it never happened: {what}")
        time.sleep(0.2)
