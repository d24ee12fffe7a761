"""Documents are read by several threads at once, from the first one on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden"
PLAIN = {
    "schema": '{"table": "a.b", "key": ["id"],'
    ' "columns": [{"name": "id", "type": "int64", "source_type": "bigint"}]}',
    "stamp": '{"app_id": "a", "pipeline": "p", "incarnation": "i", "plan_id": "x", "a": 1, "b": 2,'
    ' "seq": 3}',
}
PROGRAM = """
import sys, threading
from operator import attrgetter
from pathlib import Path
from importlib import import_module

module, function, path = sys.argv[1:]
read = attrgetter(function)(import_module(module))
raw = Path(path).read_bytes()
sys.setswitchinterval(1e-6)
ready = threading.Barrier(24)
done = []

def first():
    ready.wait()
    done.append(read(raw))

threads = [threading.Thread(target=first) for _ in range(24)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(done) == 24 and len(set(map(repr, done))) == 1, len(done)
"""


@pytest.mark.parametrize(
    ("module", "function", "document"),
    [
        ("tideline.contract.manifest", "decode_manifest", "manifest"),
        ("tideline.contract.plan", "decode_plan", "plan"),
        ("tideline.contract.receipt", "decode_receipt", "receipt"),
        ("tideline.contract.request", "parse_request", "request"),
        ("tideline.contract.request", "parse_answer", "answer"),
        ("tideline.contract.schema", "decode_schema", "schema"),
        ("tideline.contract.plan", "CommitMetadata.parse", "stamp"),
    ],
)
@pytest.mark.thorough
def test_first_reads_at_once(module: str, function: str, document: str, tmp_path: Path) -> None:
    """msgspec looks a type up when it is first used, and crashes when two threads do so at once."""
    path = tmp_path / "document"
    if document in PLAIN:
        path.write_text(PLAIN[document])
    else:
        golden = (GOLDEN / document / "v1").iterdir()
        path.write_bytes(max((file.read_bytes() for file in golden), key=len))
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, module, function, str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr[-2000:]
