"""Makes ``tests/golden/releases/VERSION.tar.xz``: what a release wrote, half done, for later ones.

    .venv/bin/python tests/release_before/make_golden.py 0.1.0 899a94a [--python PYTHON]

checks out that release's commit in a folder of its own and runs ``make_VERSION.py.txt`` there, once
for each kind of source: a recipe that is written in the release's own names and is never renamed
with later code. PYTHON is of an environment that has what the release's locks name (by default the
one that runs this script; ``make setup`` in a checkout of the release makes one). The archive has
no times or owners and its members are sorted; sequences, tokens and times within the documents
differ from run to run.
"""

from __future__ import annotations

import argparse
import io
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RELEASES = ROOT / "tests" / "golden" / "releases"
KINDS = ("postgres", "mariadb", "mysql")
BYTES_MAX = 1_000_000
RECIPE = "recipe.py.txt"
"""The recipe's name in the archive."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("commit")
    parser.add_argument("--python", default=sys.executable)
    wanted = parser.parse_args()
    recipe = HERE / f"make_{wanted.version.replace('.', '_')}.py.txt"
    with tempfile.TemporaryDirectory(prefix="tideline-golden-") as name:
        os.chmod(name, 0o755)  # The servers run as another user.
        checkout, made = Path(name) / "checkout", {}
        _run("git", "-C", ROOT, "worktree", "add", "--detach", checkout, wanted.commit)
        try:
            for kind in KINDS:
                folder = Path(name) / kind
                _run(wanted.python, recipe, folder, kind, path=checkout)
                made[kind] = folder / "golden"
        finally:
            _run("git", "-C", ROOT, "worktree", "remove", "--force", checkout)
        packed = pack(made, recipe)
    assert len(packed) <= BYTES_MAX, f"{len(packed):,} bytes are too many"
    target = RELEASES / f"{wanted.version}.tar.xz"
    target.write_bytes(packed)
    print(f"{target.relative_to(ROOT)}: {len(packed):,} bytes")


def pack(folders: dict[str, Path], recipe: Path) -> bytes:
    """The files of ``folders``, each below its name, and the recipe that they were made by."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, RECIPE, recipe)
        for name, folder in sorted(folders.items()):
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    _add(archive, f"{name}/{path.relative_to(folder).as_posix()}", path)
    return lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = path.stat().st_size, 0o644
    archive.addfile(member, io.BytesIO(path.read_bytes()))


def _run(*command: str | Path, path: Path | None = None) -> None:
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = f"{path}{os.pathsep}{path / 'plugins'}"
    subprocess.run([str(word) for word in command], check=True, cwd=path, env=environment)


if __name__ == "__main__":
    main()
