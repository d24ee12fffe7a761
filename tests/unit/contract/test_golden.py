"""Golden files: documents of version 1 as they lie in stores and queues, readable for ever.

They are indented for the eye; what is stored is the same JSON without white space. A golden file
is never edited: a change that breaks one breaks every store that holds such a document.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from tideline.contract.block import check_files, decode_block, encode_block
from tideline.contract.description import decode_description, encode_description
from tideline.contract.json_schemas import DOCUMENTS, json_schema
from tideline.contract.maintenance import decode_maintenance_receipt, decode_order
from tideline.contract.manifest import (
    check_entry,
    decode_manifest,
    digest,
    encode_manifest,
)
from tideline.contract.plan import decode_plan, encode_plan
from tideline.contract.receipt import decode_receipt, encode_receipt
from tideline.contract.request import encode_answer, encode_request, parse_answer, parse_request
from tideline.contract.timeliness import decode_run, encode_run
from tideline.contract.verification import (
    decode_verification,
    decode_verified,
    decode_verify_plan,
    encode_verification,
    encode_verified,
    encode_verify_plan,
)

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
Codec = tuple[Callable[[bytes], Any], Callable[[Any], bytes]]
CODECS: dict[str, Codec] = {
    "manifest": (decode_manifest, encode_manifest),
    "block": (decode_block, encode_block),
    "description": (decode_description, encode_description),
    "request": (parse_request, encode_request),
    "answer": (parse_answer, encode_answer),
    "plan": (decode_plan, encode_plan),
    "receipt": (decode_receipt, encode_receipt),
    "run": (decode_run, encode_run),
    "maintenance-order": (decode_order, msgspec.json.encode),
    "maintenance": (decode_maintenance_receipt, msgspec.json.encode),
    "verification-plan": (decode_verify_plan, encode_verify_plan),
    "verification": (decode_verification, encode_verification),
    "verified": (decode_verified, encode_verified),
}
FILES = [
    pytest.param(kind, path, id=f"{kind}-{path.stem}")
    for kind in CODECS
    for path in sorted((GOLDEN / kind / "v1").glob("*.json"))
]


def test_every_document_has_golden_files_and_a_page() -> None:
    assert set(CODECS) == set(DOCUMENTS)
    for kind in CODECS:
        assert list((GOLDEN / kind / "v1").glob("*.json")), kind
    for page in ("manifest", "position", "block", "request", "plan", "receipt", "verification"):
        assert (ROOT / "docs" / "documents" / f"{page}.md").is_file()


@pytest.mark.parametrize(("kind", "path"), FILES)
def test_decoded_and_encoded_again_it_is_the_same(kind: str, path: Path) -> None:
    decode, encode = CODECS[kind]
    raw = path.read_bytes()
    again = encode(decode(raw))
    assert msgspec.json.format(again, indent=2) + b"\n" == raw
    assert encode(decode(again)) == again


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_published_schema_is_current(name: str) -> None:
    published = (ROOT / "docs" / "schemas" / f"{name}.v1.json").read_bytes()
    assert published == json_schema(name), (
        f"python -m tideline.contract.json_schemas {name} > docs/schemas/{name}.v1.json"
    )


@pytest.mark.parametrize(("kind", "path"), FILES)
def test_it_fits_the_published_schema(kind: str, path: Path) -> None:
    schema = published_schema(kind)
    document = json.loads(path.read_bytes())
    schema.validate(document)
    for wrong in ({"version": 2}, {"requires": "none"}):
        with pytest.raises(jsonschema.ValidationError):
            schema.validate({**document, **wrong})


@cache
def published_schema(kind: str) -> jsonschema.Draft202012Validator:
    """What a document of this kind is validated by. It takes longer to see that a schema is one
    than to validate by it."""
    schema = json.loads((ROOT / "docs" / "schemas" / f"{kind}.v1.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("kind", ["manifest", "block", "answer", "plan", "receipt"])
def test_the_schema_asks_for_the_version(kind: str) -> None:
    path = min((GOLDEN / kind / "v1").glob("*.json"))
    document = json.loads(path.read_bytes())
    del document["version"]
    with pytest.raises(jsonschema.ValidationError, match="version"):
        jsonschema.validate(document, json.loads(json_schema(kind)))


def test_the_manifests_are_a_chain() -> None:
    manifests = [
        decode_manifest(path.read_bytes())
        for path in sorted((GOLDEN / "manifest" / "v1").glob("*.json"))
    ]
    assert len(manifests) == 7
    for previous, manifest in itertools.pairwise(manifests):
        check_entry(previous, encode_manifest(previous), manifest)


def test_the_block_holds_the_manifests() -> None:
    """The golden file is indented; the manifests in it are the ones next door all the same."""
    block = decode_block((GOLDEN / "block" / "v1" / "full.json").read_bytes())
    paths = sorted((GOLDEN / "manifest" / "v1").glob("*.json"))
    manifests = [decode_manifest(path.read_bytes()) for path in paths][: len(block.manifests)]
    assert [decode_manifest(bytes(raw)) for raw in block.manifests] == manifests
    assert list(block.digests) == [digest(encode_manifest(one)) for one in manifests]
    check_files(block, manifests)


def test_the_canonical_bytes_are_pinned() -> None:
    """A digest is in the next manifest of every chain there is: not a byte may move."""
    last = decode_manifest((GOLDEN / "manifest" / "v1" / "5-released.json").read_bytes())
    assert digest(encode_manifest(last)) == (
        "758e8ce60898cff78fe3395ae77dee2d862398ff294bccf063c292aaf751a73e"
    )
