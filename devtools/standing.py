"""Keeps servers up for trying Tideline on them, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from devtools.services.process import leftovers
from devtools.signals import ignore_interrupts, interrupt_on_sigterm


class Servers(Protocol):
    """Servers that are started and stopped together."""

    def start(self) -> object: ...

    def stop(self) -> object: ...


_Servers = TypeVar("_Servers", bound=Servers)


def keep_up(
    name: str,
    folder: Path,
    make: Callable[[], _Servers],
    lines: Callable[[_Servers], Iterator[str]],
) -> None:
    """Start what ``make`` gives, print the ``lines`` about it, and wait for a signal.

    Its files are in ``folder``. Raises Misconfigured where another one runs there, and what the
    servers raise; whatever happens, no process is left behind.
    """
    interrupt_on_sigterm()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    leftovers(folder)
    servers = make()
    try:
        servers.start()
        for line in lines(servers):
            print(line)
        print(f"\n{name}: Ctrl-C ends it", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        print(f"{name}: ending …", flush=True)
    finally:
        ignore_interrupts()
        servers.stop()


def toml_lines(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of ``settings`` for a section of the settings; JSON's texts are TOML's."""
    for key, value in settings.items():
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
