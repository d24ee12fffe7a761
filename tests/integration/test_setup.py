"""`scripts/setup` takes no file but the one that was looked at: with pip and with uv, each step."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def wheel(folder: Path, name: str, code: str) -> Path:
    """A small package as a wheel, version 1."""
    path = folder / f"{name}-1-py3-none-any.whl"
    info = f"{name}-1.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", code)
        file.writestr(f"{info}/METADATA", metadata)
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")
    return path


def hashed(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{path.name.split('-')[0]}==1 --hash=sha256:{digest}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """`scripts/setup` in a project of two packages, with a folder instead of a registry."""
    root = tmp_path / "checkout"
    for folder in ("scripts", "requirements", "wheels"):
        (root / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup", root / "scripts" / "setup")
    tool = wheel(root / "wheels", "buildtool", "")
    (root / "requirements" / "build.txt").write_text(hashed(tool))
    (root / "requirements" / "uv.txt").write_text("uv==1 --hash=sha256:" + "0" * 64 + "\n")
    package = wheel(root / "wheels", "package", "value = 1\n")
    (root / "requirements" / "developers.txt").write_text(hashed(package))
    return root


def setup(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))
    }
    environment |= {
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout / "wheels"), "UV_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull, "TIDELINE_CACHE": str(checkout / "cache"),
        "PYTHON": sys.executable,
    }  # fmt: skip
    return subprocess.run(
        [str(checkout / "scripts" / "setup"), "venv", *words],
        cwd=checkout, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def has(checkout: Path, name: str) -> bool:
    return bool(list((checkout / "venv").glob(f"lib/python*/site-packages/{name}.py")))


def remove(checkout: Path, name: str) -> None:
    [packages] = (checkout / "venv").glob("lib/python*/site-packages")
    shutil.rmtree(packages / f"{name}-1.dist-info")
    (packages / f"{name}.py").unlink()


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode != 0 and "hash" in done.stderr.lower()


def test_a_package_with_another_hash_is_refused(checkout: Path) -> None:
    """First all as it should be: what fails then is our own package, which this project has not."""
    done = setup(checkout)
    assert not refused(done) and "could not be installed" in done.stderr
    assert has(checkout, "buildtool") and has(checkout, "package"), done.stderr
    remove(checkout, "package")
    wheel(checkout / "wheels", "package", "value = 2\n")
    assert refused(setup(checkout)), "pip takes it"
    (checkout / "venv" / "bin" / "uv").symlink_to(Path(sys.prefix) / "bin" / "uv")
    assert refused(setup(checkout)), "uv or pip takes it"
    assert refused(setup(checkout, "package")), "uv takes it beside constraints"
    assert not has(checkout, "package")
    remove(checkout, "buildtool")
    wheel(checkout / "wheels", "buildtool", "changed = 1\n")
    assert refused(setup(checkout)), "what builds packages is taken"
    assert not has(checkout, "buildtool")
