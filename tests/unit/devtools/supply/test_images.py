"""Every image is one image: named with its digest, which a command reads from the registry."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from devtools.supply.images import FILES, Image, images_in, parse_image, pin, resolve
from tideline.contract.errors import CorruptData, Misconfigured, Unavailable

ROOT = Path(__file__).resolve().parents[4]
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
HOSTED = (
    "Dockerfile",
    "docker-compose*.yml",
    "docker-compose*.yaml",
    "compose*.yml",
    "compose*.yaml",
)


def test_every_image_is_named_with_its_digest() -> None:
    digests: dict[tuple[str, str], set[str]] = {}
    for name in FILES:
        for image in images_in((ROOT / name).read_text()):
            assert DIGEST.fullmatch(image.digest), f"{name}: {image}; run make images"
            digests.setdefault((image.name, image.tag), set()).add(image.digest)
    assert len(digests) == 6
    for image_name, found in digests.items():
        assert len(found) == 1, f"{image_name} has two digests"
    assert set(FILES) == {path.name for one in HOSTED for path in ROOT.glob(one)}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("postgres:18", ("registry-1.docker.io", "library/postgres")),
        ("valkey/valkey:9@sha256:00", ("registry-1.docker.io", "valkey/valkey")),
        ("ghcr.io/a/b:1", ("ghcr.io", "a/b")),
        ("localhost:5000/a:1", ("localhost:5000", "a")),
    ],
)
def test_short_names_are_read_as_docker_reads_them(text: str, place: tuple[str, str]) -> None:
    assert parse_image(text).place == place
    assert str(parse_image(text)) == text


@pytest.mark.parametrize("text", ["postgres", "localhost:5000/postgres"])
def test_an_image_without_a_tag_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="names no tag"):
        parse_image(text)


class Registry(BaseHTTPRequestHandler):
    """The part of a registry's API that is asked for, with tokens as Docker's has them."""

    lies = False

    def do_GET(self) -> None:
        if self.path.startswith("/token?"):
            assert "pull" in self.path and "service=here" in self.path
            self._answer(200, json.dumps({"token": "t"}).encode())
        elif self.headers.get("Authorization") != "Bearer t":
            realm = f'Bearer realm="http://{self.headers["Host"]}/token",service="here"'
            self._answer(401, b"", ("WWW-Authenticate", realm))
        elif "/gone/" in self.path:
            self._answer(404, b"")
        else:
            assert "image.index" in self.headers["Accept"]
            body = self.path.encode()
            reported = hashlib.sha256(b"other" if self.lies else body).hexdigest()
            self._answer(200, body, ("Docker-Content-Digest", f"sha256:{reported}"))

    def _answer(self, code: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(code)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def expected(repository: str, tag: str) -> str:
    return f"sha256:{hashlib.sha256(f'/v2/{repository}/manifests/{tag}'.encode()).hexdigest()}"


def test_the_digest_is_of_what_the_registry_has(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image("postgres", "18", "")
    assert resolve(image, lambda host: registry) == expected("library/postgres", "18")
    with pytest.raises(Unavailable, match=r"gone:1.*404"):
        resolve(Image("a/gone", "1", ""), lambda host: registry)
    monkeypatch.setattr(Registry, "lies", True)
    with pytest.raises(CorruptData, match="and it is"):
        resolve(image, lambda host: registry)


def test_a_registry_that_is_away_changes_nothing(tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    with pytest.raises(Unavailable, match="digest of python"):
        pin(tmp_path, check=False, registry=lambda host: "http://127.0.0.1:1")
    for name in FILES:
        assert (tmp_path / name).read_text() == (ROOT / name).read_text()


def test_pinning_writes_digests_and_nothing_else(registry: str, tmp_path: Path) -> None:
    for name in FILES:
        text = (ROOT / name).read_text()
        (tmp_path / name).write_text(re.sub("@sha256:[0-9a-f]+", "", text))
    lines = pin(tmp_path, check=True, registry=lambda host: registry)
    assert len(lines) == 6 and all("no digest, now sha256:" in line for line in lines)
    assert lines == pin(tmp_path, check=False, registry=lambda host: registry)
    for name in FILES:
        text = (tmp_path / name).read_text()
        for image in images_in(text):
            assert image.digest == expected(image.place[1], image.tag)
        plain = re.sub("@sha256:[0-9a-f]+", "", text)
        assert plain == re.sub("@sha256:[0-9a-f]+", "", (ROOT / name).read_text())
    assert pin(tmp_path, check=True, registry=lambda host: registry) == []
