"""Checks of ``merge.jars``: files that are not there, and classes that none of them has.

Nothing is started for it: Spark only warns of a missing jar, and fails much later.
"""

from __future__ import annotations

import glob
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tideline.local_spark import spark_home
from tideline.settings import Settings
from tideline.warehouse.job_jars import WHERE_JARS_ARE_LISTED, classes_everywhere, classes_in_s3
from tideline_capture.sources.finding import Finding, error, ok, warning

_FILE = "file:"
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")


def check_named_jars(settings: Settings) -> list[Finding]:
    """Check the jars that the settings name; no findings where those in the cache are used. Capture
    does without, so that no finding is an error."""
    named = settings.merge.jars
    found = () if named is None else check_jars(settings, named.split(","))
    return [
        warning(one.name, one.message, one.fix) if one.level == "error" else one for one in found
    ]


def check_jars(settings: Settings, jars: Sequence[str]) -> Iterator[Finding]:
    """Yield an error for each jar that is not there, and for each missing class; or one line."""
    found = {name: _files(name) for name in jars if not _is_elsewhere(name)}
    absent = [name for name, files in found.items() if not files]
    for name in absent:
        yield error("jars", f"{name} cannot be read here", "correct merge.jars, or leave it out")
    if absent:
        return
    if len(found) == len(jars) and (missing := _missing(settings, found.values())):
        text = f"merge.jars lacks what jobs need: {', '.join(missing)}"
        yield error("jars", text, f"add them, or leave merge.jars out; {WHERE_JARS_ARE_LISTED}")
        return
    first, *others = jars
    yield ok("jars", f"{first}, and {len(others)} more" if others else first)


def _missing(settings: Settings, named: Iterable[Sequence[Path]]) -> list[str]:
    """Return the jars whose classes neither the ``named`` ones nor Spark's own have."""
    wanted = classes_everywhere(settings.formats_held)
    if settings.store.in_s3 or settings.warehouse.in_s3:
        wanted |= classes_in_s3()
    home = spark_home()
    spark = () if home is None else (home / "jars").glob("*.jar")
    for path in (*(one for files in named for one in files), *spark):
        if not wanted:
            break
        classes = _classes(path)
        wanted = {name: jar for name, jar in wanted.items() if _entry(name) not in classes}
    return list(wanted.values())


def _classes(path: Path) -> set[str]:
    try:
        with zipfile.ZipFile(path) as jar:
            return set(jar.namelist())
    except (OSError, zipfile.BadZipFile):
        return set()


def _entry(name: str) -> str:
    return f"{name.replace('.', '/')}.class"


def _is_elsewhere(name: str) -> bool:
    return _SCHEME.match(name) is not None and not name.startswith(_FILE)


def _files(name: str) -> list[Path]:
    """Return the files on this machine that ``name``, a path or a pattern as Spark takes it, names
    and that this user may read."""
    place = f"/{name.removeprefix(_FILE).lstrip('/')}" if name.startswith(_FILE) else name
    paths = glob.glob(place) or ([place] if Path(place).exists() else [])
    return [Path(path) for path in paths if os.access(path, os.R_OK)]
