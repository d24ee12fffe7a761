"""``python -m devtools.supply.licence_page``: prints the licence of every package.

In a checkout it writes docs/LICENCES.md: the licences of all that the locks name, and of what is
inside of that.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import MappingProxyType

from devtools.supply.carried import crates, jars, libraries, with_libraries
from devtools.supply.licences import (
    CARRIED,
    KNOWN,
    LESSER,
    NOTES,
    carried,
    carried_unlooked_at,
    permissive,
    rows,
    unlooked_at,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "LICENCES.md"
LOCKS = ("image", "developers", "build", "uv")
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "async-timeout": "Apache-2.0",
        "colorama": "BSD-3-Clause",
        "httpx2-jsfetch": "BSD-3-Clause",
        "pyyaml-ft": "MIT",
    }
)
"""Licences of packages that the locks have for other platforms or versions of Python."""
_PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;]+)", re.MULTILINE)
_HEAD = """\
# Licences

Tideline is under the [Apache License 2.0](../LICENSE). This page has the licence of everything that
the locks in `requirements/` name, and of what is inside those packages. `make licences` writes it,
and fails for GPL and AGPL, for LGPL outside the packages named below, and for any licence that asks
for more than a notice and was not looked at. A test compares this page with the locks.

None of these packages is in Tideline's wheels: pip installs them. The image has them.

**Not on this page:** what the image has of Debian, its base and `openjdk-17-jre-headless` (GPL-2.0
with the Classpath exception), `procps` (GPL and LGPL), `tini` (MIT) and what these need. The
licence of each is in the image, in `/usr/share/doc/<package>/copyright`. Nor what
`requirements/bigquery.txt` names: an emulator (Apache-2.0) that tests alone run, in an environment
of its own.
"""


def locked(root: Path = ROOT) -> dict[str, dict[str, str]]:
    """Return the versions in each lock, by package."""
    texts = {name: (root / "requirements" / f"{name}.txt").read_text() for name in LOCKS}
    return {name: dict(_PINNED.findall(text)) for name, text in texts.items()}


def page(installed: Sequence[Distribution], root: Path = ROOT) -> str:
    """Return the whole page, for the packages in ``installed`` and the locks of ``root``."""
    found = {name: licence for name, _, licence in rows(installed)}
    sections = (
        _HEAD,
        "## More than a notice\n",
        _table(("package", "licence", "why it may be used"), _exceptions(found)),
        "The same of what packages bring along:\n",
        _table(("content", "of", "licence", "why it may be used"), _carried(installed)),
        "## Packages\n",
        "*image*: what the image and a production environment have. *developers*: tests and demo.\n"
        "*build*, *uv*: what builds and installs.\n",
        _table(("package", "version", "licence", "in"), _packages(found, locked(root))),
        "## Shared libraries in wheels\n",
        "Those that the wheels for Linux (x86_64) bring in a `.libs` folder. The GPL of GCC's\n"
        "Fortran runtime has an exception for what is linked with it. pyarrow and cryptography\n"
        "link theirs statically: pyarrow names them in its own `LICENSE`, cryptography has\n"
        "OpenSSL (Apache-2.0).\n",
        _table(("package", "library", "licence"), _libraries(installed)),
        "## Rust crates\n",
        "As the packages list them; of alternatives we take the permissive one.\n",
        _table(("licence", "crates"), _counted(_crates(installed))),
        "## Java jars of Spark, Delta and S3\n",
        "As Spark's own `LICENSE` has them, or a jar and its pom. All that are not under the\n"
        "Apache License:\n",
        _table(("jar", "licence"), (one for one in jars() if one[1] != "Apache-2.0")),
        _table(("licence", "jars"), _counted(licence for _, licence in jars())),
    )
    return "\n".join(sections).rstrip() + "\n"


def _exceptions(found: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for name, why in sorted({**LESSER, **NOTES, **KNOWN}.items()):
        if name in found:
            reason = why.rpartition(": ")[2] if name in KNOWN and name not in LESSER else why
            yield name, found[name], LESSER.get(name, reason)


def _carried(installed: Sequence[Distribution]) -> Iterator[tuple[str, ...]]:
    found: dict[tuple[str, str], set[str]] = {}
    for package, name, licence in carried(installed):
        if not permissive(licence):
            found.setdefault((name.partition(" ")[0], licence), set()).add(package)
    for (name, licence), packages in sorted(found.items()):
        yield name, ", ".join(sorted(packages)), licence, CARRIED.get(name, ("", ""))[1]


def _packages(
    found: Mapping[str, str], locks: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, ...]]:
    for name in sorted({name for lock in locks.values() for name in lock}):
        holders = [lock for lock in LOCKS if name in locks[lock]]
        version = locks[holders[0]][name]
        licence = found.get(name) or ELSEWHERE.get(name, "unknown")
        where = "image" if "image" in holders else ", ".join(holders)
        yield name, version, licence if permissive(licence) else f"**{licence}**", where


def _libraries(installed: Sequence[Distribution]) -> Iterator[tuple[str, ...]]:
    for package in sorted(with_libraries(installed)):
        for library, licence in sorted(libraries(package)):
            yield package, library, licence


def _crates(installed: Sequence[Distribution]) -> Iterator[str]:
    for package in installed:
        for _, licence in crates(package):
            yield (
                " ".join(re.sub(r"[()]", "", licence).split()) if "AND" not in licence else licence
            )


def _counted(licences: Iterable[str]) -> Iterator[tuple[str, ...]]:
    counts = Counter(licences)
    for licence, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        yield licence, str(count)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))


def main() -> int:
    """Return the exit code: 0, or 1 where a licence is refused or unreviewed."""
    installed = list(distributions())
    found = rows(installed)
    width = max(len(f"{name} {version}") for name, version, _ in found)
    for name, version, licence in found:
        why = KNOWN.get(name) if not permissive(licence) else None
        print(f"{f'{name} {version}':{width}}  {licence}{f'  ({why})' if why else ''}")
    if PAGE.parent.is_dir():
        PAGE.write_text(page(installed))
    bad = [*unlooked_at(installed), *carried_unlooked_at(installed)]
    for name, licence in bad:
        print(f"licences: {name}: {licence} is refused, or not looked at yet", file=sys.stderr)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
