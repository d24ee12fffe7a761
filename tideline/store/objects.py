"""Objects by key, in a directory, in memory or in S3; the only place where requests are repeated.

The client's own retries are off. A request that got no usable answer (a time-out, 409, 429, 5xx)
may have had its effect, so only requests that can be repeated are sent at all: the same bytes to
the same key, create-only where another writer may be meant. After ``retry_s`` it is `Unavailable`.

A directory is synced to disk before a write counts as done: what the chain calls durable must
survive a loss of power.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit

import stamina
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store
from stamina.instrumentation import set_on_retry_hooks

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.settings import Store
from tideline.store.answers import Unanswered, interpret, is_missing_bucket, missing_bucket
from tideline.store.s3 import cloud_client, s3_client

SINGLE_PUT_BYTES_MAX = 32 * 1024 * 1024
"""The size above which `ObjectStore.put` uploads in several requests; `ObjectStore.create` never
does."""
LISTED_MAX = 1_000
"""Objects in an answer to a listing: S3's own limit."""
_WAIT_FIRST_S = 0.05
_WAIT_MAX_S = 5.0

# The library's own log lines quote its arguments, and go to standard output with our results.
set_on_retry_hooks([])

_T = TypeVar("_T")
_memories: dict[str, MemoryStore] = {}


@dataclass(frozen=True, slots=True)
class Entry:
    """An object as a listing shows it; ``modified`` is by the store's clock."""

    key: str
    bytes: int
    modified: datetime


class Client(Protocol):
    """The methods of an obstore store that are used; tests replace it by fakes."""

    def put(
        self,
        path: str,
        file: bytes,
        *,
        mode: Literal["create", "overwrite"],
        use_multipart: bool,
    ) -> object: ...

    def get(self, path: str) -> Any: ...

    def head(self, path: str) -> object: ...

    def delete(self, paths: str) -> None: ...

    def list(
        self, prefix: str, *, offset: str | None = None, chunk_size: int = LISTED_MAX
    ) -> Iterable[Sequence[Any]]: ...


def open_store(settings: Store) -> ObjectStore:
    """Open a separate client to the store; a directory is created when it is missing.

    ``memory://name`` is one store per name in this process. No request is sent to an S3 store yet.
    Raises Misconfigured for a directory that cannot be written.
    """
    parts = urlsplit(settings.url)
    if parts.scheme == "file":
        root = _writable_directory(settings.url)
        return ObjectStore(settings, _as_client(LocalStore(root)), root=root)
    if parts.scheme == "memory":
        memory = _memories.setdefault(settings.url, MemoryStore())
        return ObjectStore(settings, _as_client(memory))
    make = s3_client if settings.in_s3 else cloud_client
    return ObjectStore(settings, _as_client(make(settings, timeout_s=settings.timeout_s)))


class ObjectStore:
    """Reads and writes whole objects. Safe to use from several threads.

    Every method raises Unavailable when the store gave no usable answer for ``retry_s`` (the
    request may have had its effect all the same) and Misconfigured when it refused. ``tries``
    yields the tries of one request, with pauses between them: stamina's own, by the real clock.
    """

    def __init__(
        self,
        settings: Store,
        client: Client,
        *,
        root: Path | None = None,
        tries: Callable[..., Iterable[AbstractContextManager[Any]]] = stamina.retry_context,
    ) -> None:
        self.url = settings.url
        self._place = self.url if not settings.endpoint else f"{self.url} at {settings.endpoint}"
        self._client = client
        self._root = root
        self._tries = tries
        self._retry_s = settings.retry_s
        self._lists_by_key = urlsplit(settings.url).scheme == "s3"

    def put(self, key: str, data: bytes) -> None:
        """Write an object; the caller only ever writes the same bytes to the same key."""

        def attempt() -> None:
            multipart = len(data) > SINGLE_PUT_BYTES_MAX
            self._client.put(key, data, mode="overwrite", use_multipart=multipart)
            self._sync(key)

        self._ask(f"put {key}", attempt)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none: True when this call did it, in one PUT.

        False: something exists at ``key``: another's object or, after a lost answer, our own. Of
        any number of concurrent callers at most one gets True.
        """

        def attempt() -> bool:
            try:
                self._client.put(key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                # obstore reports 409 (another conditional PUT is under way) like 412 (it exists).
                if not self._present(key):
                    raise Unanswered(f"create {key}: refused, but nothing exists there") from None
                self._sync(key)
                return False
            self._sync(key)
            return True

        return self._ask(f"create {key}", attempt)

    def get(self, key: str) -> bytes | None:
        """Return the object's bytes, None when there is none."""
        request = f"get {key}"

        def attempt() -> bytes | None:
            try:
                return bytes(self._client.get(key).bytes())
            except FileNotFoundError as error:
                if is_missing_bucket(error, writing=False):
                    raise missing_bucket(self.url, request) from None
                return None

        return self._ask(request, attempt)

    def exists(self, key: str) -> bool:
        """Return whether there is an object at ``key``, without reading it."""
        return self._ask(f"head {key}", lambda: self._present(key))

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""

        def attempt() -> None:
            try:
                self._client.delete(key)
            except FileNotFoundError:
                return

        self._ask(f"delete {key}", attempt)

    def list(self, prefix: str) -> list[str]:
        """Return all keys below the folder ``prefix``, sorted; for people and tests, never for the
        tail.

        A folder, not the beginning of a name: ``a/lo`` does not find ``a/log/1``.
        """
        return self._ask(
            f"list {prefix}",
            lambda: sorted(item["path"] for page in self._client.list(prefix) for item in page),
        )

    def entries(self, prefix: str, after: str = "") -> Iterator[Sequence[Entry]]:
        """Yield the objects below the folder ``prefix`` in pages, by key; those behind the key
        ``after`` only. For finding garbage, never the tail: objects written concurrently may be
        missing, and on a store with another order of names one may come twice.
        """
        request = f"list {prefix}"
        page = self._ask(request, partial(self._page, prefix, after))
        while page and page[-1].key > after:
            yield page
            after = page[-1].key
            page = self._ask(request, partial(self._page, prefix, after))

    def _page(self, prefix: str, after: str) -> Sequence[Entry]:
        """Return one request's page where the store lists by key (S3 does), else everything."""
        pages = iter(self._client.list(prefix, offset=after, chunk_size=LISTED_MAX))
        found = list(next(pages, []))
        if not self._lists_by_key:
            found += [item for page in pages for item in page]
        entries = [Entry(item["path"], item["size"], item["last_modified"]) for item in found]
        return sorted(entries, key=lambda entry: entry.key)

    def _present(self, key: str) -> bool:
        try:
            self._client.head(key)
        except FileNotFoundError:
            return False
        return True

    def _ask(self, request: str, attempt: Callable[[], _T]) -> _T:
        """Run ``attempt`` until it is answered: the one place of retry at this border."""
        try:
            for attempted in self._tries(
                on=Unanswered,
                attempts=None,
                timeout=self._retry_s,
                wait_initial=_WAIT_FIRST_S,
                wait_max=_WAIT_MAX_S,
                wait_jitter=_WAIT_FIRST_S,
            ):
                with attempted:
                    return self._once(request, attempt)
        except Unanswered as error:
            raise Unavailable(
                f"the store {self._place} did not answer within {self._retry_s:g} s: {error}",
                hint="check that the store runs and can be reached; the same call may succeed",
            ) from None
        raise Unavailable(f"the store {self.url} was not asked: {request}")

    def _once(self, request: str, attempt: Callable[[], _T]) -> _T:
        try:
            return attempt()
        except (BaseError, OSError, NotImplementedError) as error:
            raise interpret(error, url=self.url, request=request) from None

    def _sync(self, key: str) -> None:
        """Make a file, and the directories that lead to it, outlive a loss of power."""
        if self._root is None:
            return
        path = self._root / key
        while True:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if path == self._root:
                return
            path = path.parent


def _writable_directory(url: str) -> Path:
    root = Path(unquote(urlsplit(url).path))
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            return root
    except OSError as error:
        raise Misconfigured(
            f"the store's directory {root} cannot be written: {error.strerror}",
            hint="make it writable for this user, or change store.url",
        ) from None


def _as_client(store: LocalStore | MemoryStore | S3Store | GCSStore | AzureStore) -> Client:
    """Cast to `Client`: obstore's overloads are wider than what is used of them."""
    return cast(Client, store)
