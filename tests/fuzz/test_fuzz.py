"""The decoders keep their rule: on the whole corpus, and on damage that is the same every time.

`python -m tests.fuzz` looks for more, guided by what code is reached; `make long` has it do so for
ten minutes.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.fuzz.target import ROOT, Target, signature
from tests.fuzz.targets import TARGETS

MUTATIONS = 400
SECONDS = 600


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_corpus_and_its_damage_lead_to_named_errors(name: str) -> None:
    target = TARGETS[name]
    found: dict[str, bytes] = {}
    for data in inputs(target):
        error = target.check(data)
        if error is not None:
            found.setdefault(f"{signature(error)}: {error}", data)
    assert not found


@pytest.mark.long
@pytest.mark.timeout(3 * SECONDS)
def test_ten_minutes_of_fuzzing_find_nothing() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", str(SECONDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def inputs(target: Target) -> Iterator[bytes]:
    """The corpus as it is, then `MUTATIONS` damaged inputs made of it."""
    corpus = [path.read_bytes() for path in target.corpus()]
    assert corpus, f"no corpus for {target.name}"
    yield from corpus
    rng = random.Random(target.name)
    for _ in range(MUTATIONS):
        yield damaged(rng.choice(corpus), rng, rng.choice(corpus))


def damaged(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """``data`` with one to three changes, each a flipped bit, another byte, or bytes that are cut
    out, doubled or ``other``'s."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        stop = min(len(changed), at + rng.choice((1, 2, 4, 16)))
        kind = rng.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFB, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del changed[at:stop]
        elif kind == 3:
            changed[at:at] = changed[at:stop]
        elif kind == 4:
            begin = rng.randrange(len(other) + 1)
            changed[at:stop] = other[begin : begin + rng.choice((1, 4, 16))]
        else:
            del changed[at:]
    return bytes(changed)
