"""``python -m devtools.supply.images [--check]``: pin every image to what its registry has now.

A tag can change; a digest is one image. The compose files and the Dockerfile
name both, ``name:tag@sha256:…``; this reads each tag's digest from its registry and writes it
there.
``--check`` writes nothing and ends with 1 where one is missing or the registry has another.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tideline.contract.errors import CorruptData, Misconfigured, TidelineError, Unavailable

FILES = ("Dockerfile", "docker-compose.yml", "docker-compose.s3.yml")
"""Relative to the checkout; every image that is named stands in one of them."""
OWN = "tideline"
"""The image that is built from the Dockerfile."""
_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_NAMED = re.compile(r"^(?P<before>\s*image: |FROM )(?P<image>[^\s#]+)", re.MULTILINE)
_TIMEOUT_S = 60
_BYTES_MAX = 4 << 20

Registry = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Image:
    """A reference of an image; ``digest`` is ``sha256:…``, or empty where none is named."""

    name: str
    tag: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}:{self.tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def place(self) -> tuple[str, str]:
        """Return the registry's host and the repository there, as Docker reads a short name."""
        host, slash, rest = self.name.partition("/")
        if slash and ("." in host or ":" in host or host == "localhost"):
            return host, rest
        return "registry-1.docker.io", self.name if slash else f"library/{self.name}"


def parse_image(text: str) -> Image:
    """Parse ``name:tag[@sha256:…]``; Misconfigured without a tag."""
    rest, _, digest = text.partition("@")
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        raise Misconfigured(f"the image {text} names no tag", hint="write name:tag")
    return Image(name, tag, digest)


def images_in(text: str) -> list[Image]:
    """Return every image that a compose file or Dockerfile names, except ours."""
    found = (match["image"] for match in _NAMED.finditer(text))
    return [parse_image(image) for image in found if image != OWN]


def pinned(text: str, digests: Mapping[tuple[str, str], str]) -> str:
    """Put the digest of each (name, tag) into ``text``."""

    def one(match: re.Match[str]) -> str:
        if match["image"] == OWN:
            return match[0]
        image = parse_image(match["image"])
        return match["before"] + str(Image(image.name, image.tag, digests[image.name, image.tag]))

    return _NAMED.sub(one, text)


def https(host: str) -> str:
    """Return the address of the API of the registry ``host``."""
    return f"https://{host}"


def resolve(image: Image, registry: Registry = https) -> str:
    """Return the registry's present digest of the tag: of all platforms' list, where there is one.

    The digest is computed from the response, and compared with the one that the registry states:
    CorruptData where they differ, Unavailable where it does not answer or has no such tag.
    """
    host, repository = image.place
    address = f"{registry(host)}/v2/{repository}/manifests/{image.tag}"
    headers = {"Accept": ", ".join(_TYPES)}
    try:
        try:
            body, found = _get(address, headers)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            token = _token(error.headers.get("WWW-Authenticate", ""), repository)
            body, found = _get(address, {**headers, "Authorization": f"Bearer {token}"})
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise Unavailable(
            f"the registry does not return the digest of {image.name}:{image.tag}: {error}",
            hint="run this where the registry can be reached",
        ) from error
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if found and found != digest:
        raise CorruptData(
            f"the registry calls {image.name}:{image.tag} {found}, and it is {digest}"
        )
    return digest


def _get(address: str, headers: Mapping[str, str]) -> tuple[bytes, str]:
    request = urllib.request.Request(address, headers=dict(headers))
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        body: bytes = answer.read(_BYTES_MAX + 1)
        if len(body) > _BYTES_MAX:
            raise ValueError("its answer is too long for a manifest")
        return body, answer.headers.get("Docker-Content-Digest") or ""


def _token(challenge: str, repository: str) -> str:
    """Ask the service that the registry names for a token that may read the repository."""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    if not challenge.startswith("Bearer ") or "realm" not in fields:
        raise ValueError("it asks for a login")
    query = {"scope": f"repository:{repository}:pull"}
    if "service" in fields:
        query["service"] = fields["service"]
    body, _ = _get(f"{fields['realm']}?{urllib.parse.urlencode(query)}", {})
    answer = json.loads(body)
    return str(answer.get("token") or answer["access_token"])


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    for name in FILES:
        yield root / name, (root / name).read_text()


def pin(root: Path, *, check: bool, registry: Registry = https) -> list[str]:
    """Pin all that ``root``'s files name; with ``check`` write nothing. Return a line for each
    that differed."""
    files = list(_files(root))
    named = [image for _, text in files for image in images_in(text)]
    digests = {
        (image.name, image.tag): resolve(image, registry)
        for image in dict.fromkeys(Image(one.name, one.tag, "") for one in named)
    }
    if not check:
        for path, text in files:
            path.write_text(pinned(text, digests))
    return list(dict.fromkeys(_differences(named, digests)))


def _differences(named: Iterable[Image], digests: Mapping[tuple[str, str], str]) -> Iterator[str]:
    for image in named:
        now = digests[image.name, image.tag]
        if image.digest != now:
            yield f"{image.name}:{image.tag}: {image.digest or 'no digest'}, now {now}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if ``--check`` found another digest or a registry did not answer."""
    parser = argparse.ArgumentParser(description="pin images to their digests")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    try:
        lines = pin(Path.cwd(), check=options.check)
    except TidelineError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    for line in lines:
        print(line)
    return int(options.check and bool(lines))


if __name__ == "__main__":
    sys.exit(main())
