"""``python -m devtools.supply.licences``: the licence of every package that is installed here.

Those that ask for more than a notice are named in `KNOWN`, each with a sentence; a test fails on
another one, so that a dependency's licence is looked at before it comes in.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from types import MappingProxyType

OURS = frozenset({"tideline-cdc", "airflow-provider-tideline", "tideline"})
PERMISSIVE = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0",
        "PSF-2.0", "Python-2.0", "Unlicense", "Zlib",
    }
)  # fmt: skip
"""SPDX names of licences that ask for a notice at the most."""
KNOWN = MappingProxyType(
    {
        "certifi": "MPL-2.0: files of it that are changed stay under it; none is",
        "hypothesis": "MPL-2.0, and in tests alone",
        "pathspec": "MPL-2.0: as certifi",
        "psycopg2-binary": "LGPL with exceptions: used as a library, and it can be exchanged",
        "text-unidecode": "Artistic or GPL, as one likes: Artistic; Airflow needs it",
    }
)
"""Packages with another licence, and why they may be used."""
SILENT = MappingProxyType({"atheris": "Apache-2.0", "openlineage_sql": "Apache-2.0"})
"""Of packages whose licence stands in a file or in their repository alone."""
_SPDX = MappingProxyType(
    {
        "apache": "Apache-2.0", "apache 2": "Apache-2.0", "apache 2.0": "Apache-2.0",
        "apache software license": "Apache-2.0", "artistic license": "Artistic-1.0-Perl",
        "bsd 2-clause license": "BSD-2-Clause", "bsd 3-clause license": "BSD-3-Clause",
        "3-clause bsd license": "BSD-3-Clause", "bsd license": "BSD-3-Clause",
        "gnu library or lesser general public license (lgpl)": "LGPL-3.0-or-later",
        "isc license": "ISC", "isc license (iscl)": "ISC", "mit license": "MIT",
        "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0", "psfl": "PSF-2.0",
        "python software foundation license": "PSF-2.0", "the unlicense (unlicense)": "Unlicense",
        "mit -or- apache license 2.0": "MIT OR Apache-2.0",
    }
)  # fmt: skip
_SPDX_NAME = re.compile(r"[A-Za-z0-9.+-]+(?: (?:AND|OR) [A-Za-z0-9.+-]+)*")


def licence_of(package: Distribution) -> str:
    """An SPDX expression from what the package says of itself: its expression, the licence in a
    word or two, else its classifiers; ``unknown`` without any."""
    fields = package.metadata
    if "License-Expression" in fields:
        return fields["License-Expression"]
    short = fields["License"].strip() if "License" in fields else ""
    classifiers = [
        line.rpartition("::")[2].strip().lower()
        for line in fields.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    known = [_SPDX[one] for one in (short.lower(), *classifiers) if one in _SPDX]
    if short.lower() in _SPDX or (not _SPDX_NAME.fullmatch(short) and known):
        return known[0] if short.lower() in _SPDX else " OR ".join(dict.fromkeys(known))
    if _SPDX_NAME.fullmatch(short) and short != "UNKNOWN":
        return short
    return " OR ".join(dict.fromkeys(known)) or SILENT.get(fields["Name"], "unknown")


def permissive(expression: str) -> bool:
    """Whether all that an SPDX expression asks for is a notice; of alternatives one suffices."""
    parts = re.split(r" AND ", re.sub(r"[()]", "", expression))
    return all(any(one.strip() in PERMISSIVE for one in part.split(" OR ")) for part in parts)


def unlooked_at(packages: Iterable[Distribution]) -> Iterator[tuple[str, str]]:
    """(name, licence) of what is neither permissive nor known."""
    for name, _, licence in rows(packages):
        if not permissive(licence) and name not in KNOWN:
            yield name, licence


def rows(packages: Iterable[Distribution]) -> list[tuple[str, str, str]]:
    """(name, version, licence) by name; without ours."""
    found = {
        (re.sub(r"[-_.]+", "-", one.name).lower(), one.version, licence_of(one)) for one in packages
    }
    return sorted(row for row in found if row[0] not in OURS)


def main() -> int:
    """The exit code: 0, or 1 where a licence has not been looked at."""
    found = rows(distributions())
    width = max(len(f"{name} {version}") for name, version, _ in found)
    for name, version, licence in found:
        why = KNOWN.get(name) if not permissive(licence) else None
        print(f"{f'{name} {version}':{width}}  {licence}{f'  ({why})' if why else ''}")
    new = list(unlooked_at(distributions()))
    for name, licence in new:
        print(f"licences: {name}: {licence} has not been looked at", file=sys.stderr)
    return int(bool(new))


if __name__ == "__main__":
    sys.exit(main())
