"""The log store of tables in S3 without its condition: what tests of it must find out."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from tideline.warehouse.delta.log_store import SOURCE, compile_to

_CONDITION = "if (conditional) {"


def plain_create(source: str) -> str:
    """The log store's source, changed so that each entry replaces whatever has its name."""
    assert _CONDITION in source
    return source.replace(_CONDITION, "if (false) {")


def plain_create_jar(folder: Path, delta: Sequence[Path]) -> Path:
    """A jar of that log store, under the name of the real one, in ``folder``, which is made;
    ``delta`` are Delta's jars."""
    classes = folder / "classes"
    classes.mkdir(parents=True)
    source = folder / SOURCE.name
    source.write_text(plain_create(SOURCE.read_text()))
    compile_to(classes, [source], delta)
    jar = folder / "plain-create.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, path.relative_to(classes).as_posix())
    return jar
