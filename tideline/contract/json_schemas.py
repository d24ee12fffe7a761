"""JSON Schemas of the documents, for readers that are not written in Python.

``python -m tideline.contract.json_schemas manifest`` prints the one that is kept as
``docs/schemas/manifest.v1.json``. They describe the shape of a document of this version; the code
that decodes it checks how its numbers must relate.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import msgspec

from tideline.contract.block import BLOCK_VERSION, Block
from tideline.contract.description import DESCRIPTION_VERSION, Description
from tideline.contract.maintenance import (
    MAINTENANCE_VERSION,
    MaintenanceOrder,
    MaintenanceReceipt,
)
from tideline.contract.manifest import MANIFEST_VERSION, Manifest
from tideline.contract.plan import PLAN_VERSION, Plan
from tideline.contract.receipt import RECEIPT_VERSION, Receipt
from tideline.contract.request import REQUEST_VERSION, Answer, DumpRequest
from tideline.contract.timeliness import RUN_VERSION, MergeRun
from tideline.contract.verification import (
    VERIFICATION_VERSION,
    Verification,
    Verified,
    VerifyPlan,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: dict[str, tuple[type[msgspec.Struct], int]] = {
    "manifest": (Manifest, MANIFEST_VERSION),
    "block": (Block, BLOCK_VERSION),
    "description": (Description, DESCRIPTION_VERSION),
    "request": (DumpRequest, REQUEST_VERSION),
    "answer": (Answer, REQUEST_VERSION),
    "plan": (Plan, PLAN_VERSION),
    "receipt": (Receipt, RECEIPT_VERSION),
    "run": (MergeRun, RUN_VERSION),
    "maintenance-order": (MaintenanceOrder, MAINTENANCE_VERSION),
    "maintenance": (MaintenanceReceipt, MAINTENANCE_VERSION),
    "verification-plan": (VerifyPlan, VERIFICATION_VERSION),
    "verification": (Verification, VERIFICATION_VERSION),
    "verified": (Verified, VERIFICATION_VERSION),
}
_NOT_STORED = frozenset({"request", "answer", "description"})
"""Documents without a checksum: all others end in one in a store; a description is named by its
own."""
_WRITTEN_BY_HAND = frozenset({"request"})
"""Documents in which the version may be left out; in all others a reader checks it first."""


def json_schema(name: str) -> bytes:
    """Return the schema of one of `DOCUMENTS`, indented, with a newline at its end."""
    kind, version = DOCUMENTS[name]
    schema: dict[str, Any] = {"$schema": DIALECT, **msgspec.json.schema(kind)}
    stored = _stored_names(msgspec.Struct)
    for title, part in schema["$defs"].items():
        if "description" in part:
            text = inspect.cleandoc(part["description"])
            for attribute, other in stored.get(title, {}).items():
                text = text.replace(f"``{attribute}``", f"``{other}``")
            part["description"] = text
    root = schema["$defs"][kind.__name__]
    root["properties"]["version"] = {"const": version}
    root["properties"]["requires"] = {"type": "array", "items": {"type": "string"}}
    if name not in _NOT_STORED:
        root["properties"]["checksum"] = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
    if name not in _WRITTEN_BY_HAND:
        root["required"] = [*root["required"], "version"]
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _stored_names(kind: type[msgspec.Struct]) -> dict[str, dict[str, str]]:
    """Return, by struct, the attributes that documents hold under another name, and that name."""
    found: dict[str, dict[str, str]] = {}
    for one in kind.__subclasses__():
        pairs = zip(one.__struct_fields__, one.__struct_encode_fields__, strict=True)
        found |= {one.__name__: {name: stored for name, stored in pairs if name != stored}}
        found |= _stored_names(one)
    return found


def main() -> None:
    names = [name for name in sys.argv[1:] if name in DOCUMENTS]
    if len(names) != 1:
        sys.exit(f"name one of {', '.join(DOCUMENTS)}")
    sys.stdout.buffer.write(json_schema(names[0]))


if __name__ == "__main__":
    main()
