"""ZetaSQL, Google's analyzer of SQL, from the wheel ``zetasql``: WebAssembly in this process.

Compiling it takes 20 to 50 seconds of CPU and 1.1 GB, so the compiled module stays in the cache; it
loads in a tenth of a second, and is of one version of both wheels. The wheel's own client compiles
at each start, and copies byte by byte.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tzdata
from wasmtime import (
    Config,
    Engine,
    Func,
    Linker,
    Module,
    SharedMemory,
    Store,
    WasiConfig,
    WasmtimeError,
)
from zetasql.wasi import get_wasm_path

from tideline.cache import cache_folder

_PREFIX = "ZetaSqlLocalService_"
_POINTER_BYTES = 4
_FAILURE = re.compile(r"Code: (\d+), Message: (.*)", re.DOTALL)


class ZetaSqlError(Exception):
    """A refusal of ZetaSQL's, in its own words."""


class ZetaSqlService:
    """One instance of the module. Calls take turns: it has one thread."""

    def __init__(self, engine: Engine, module: Module) -> None:
        wasi = WasiConfig()
        wasi.preopen_dir(str(Path(tzdata.__file__).parent / "zoneinfo"), "/usr/share/zoneinfo")
        self._store = Store(engine)
        self._store.set_wasi(wasi)
        linker = Linker(engine)
        linker.define_wasi()
        self._exports = linker.instantiate(self._store, module).exports(self._store)
        memory = self._exports["memory"]
        assert isinstance(memory, SharedMemory)
        self._memory = memory
        self._turn = threading.Lock()
        if "_initialize" in self._exports:
            self._run("_initialize")

    def call(self, method: str, request: Any, answer: Any) -> Any:
        """Call a method of ZetaSQL's local service with the message ``request``; return its answer
        as a message of the type ``answer``. Raises ZetaSqlError when ZetaSQL refuses it."""
        with self._turn:
            return answer.FromString(self._call(_PREFIX + method, request.SerializeToString()))

    def _call(self, name: str, data: bytes) -> bytes:
        with self._room(len(data)) as given, self._room(_POINTER_BYTES) as size:
            ctypes.memmove(self._address(given), data, len(data))
            answer = self._run(name, given, len(data), size)
            if answer == 0:
                raise _error(self._last_error())
            try:
                return self._read(answer, int.from_bytes(self._read(size, 4), "little"))
            finally:
                self._run("wasm_free", answer)

    def _last_error(self) -> str:
        size = self._run("wasm_get_last_error_size")
        return self._read(self._run("wasm_get_last_error"), size).decode() if size else ""

    @contextmanager
    def _room(self, size: int) -> Iterator[int]:
        pointer = self._run("wasm_malloc", size)
        try:
            yield pointer
        finally:
            self._run("wasm_free", pointer)

    def _run(self, name: str, *arguments: int) -> Any:
        function = self._exports[name]
        assert isinstance(function, Func)
        return function(self._store, *arguments)

    def _address(self, pointer: int) -> int:
        return ctypes.addressof(self._memory.data_ptr().contents) + pointer

    def _read(self, pointer: int, size: int) -> bytes:
        return ctypes.string_at(self._address(pointer), size)


@cache
def zetasql_service() -> ZetaSqlService:
    """Return this process's instance."""
    config = Config()
    config.shared_memory = True
    engine = Engine(config)
    return ZetaSqlService(engine, compiled(engine))


def compiled(engine: Engine) -> Module:
    """Return the module from the cache, for which one process at a time compiles it."""
    versions = f"{version('zetasql')}-wasmtime-{version('wasmtime')}"
    path = cache_folder() / f"zetasql-{versions}.module"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return Module.deserialize_file(engine, str(path))
        except WasmtimeError:  # It is not there, or was made for another processor.
            module = Module.from_file(engine, get_wasm_path())
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(module.serialize())
        partial.replace(path)
        return module


def _error(text: str) -> ZetaSqlError:
    found = _FAILURE.match(text)
    return ZetaSqlError(found[2] if found else text)
