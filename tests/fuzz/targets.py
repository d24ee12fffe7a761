"""All targets, by name."""

from __future__ import annotations

from tests.fuzz import documents, mysql, postgres, users
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (*mysql.TARGETS, *postgres.TARGETS, *documents.TARGETS, *users.TARGETS)
}
