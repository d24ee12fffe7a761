"""Checks that a target has applied the present chain: by digest, not by number.

A store that was restored from its backup continues with other manifests under numbers that targets
have applied. Trusting the numbers would silently skip their rows.
"""

from __future__ import annotations

from tideline.contract.manifest import Manifest
from tideline.contract.printable import command
from tideline.planner.chain_index import ChainIndex
from tideline.warehouse.state import TargetState


def strayed(
    chain_index: ChainIndex, tail: Manifest, name: str, target: TargetState, *, shadow: bool = False
) -> str:
    """Return why ``target`` of the table called ``name`` has not applied the chain that ends with
    ``tail``, and the remedy; "" where it has, or has applied nothing.

    ``shadow``: it is a rebuild's shadow table. Raises like the chain.
    """
    why = _why(chain_index, tail, target)
    if not why:
        return ""
    cure = f"{command('rebuild', name, '--restart')} begins the rebuild once more"
    if not shadow:
        cure = (
            f"once the worker has caught up with the source, {command('rebuild', name)} builds it"
            " again from the chain, while the old one can be read; or remove the table's directory"
            " and merge"
        )
    return f"{why}: the store or the warehouse was restored from a backup, or set back. {cure}"


def _why(chain_index: ChainIndex, tail: Manifest, target: TargetState) -> str:
    if target.newer is not None:
        return f"the target holds generation {target.newer}, which the chain does not have"
    applied, commit_metadata = target.applied, target.standing
    if applied is None:
        return ""
    # One that was merged since the tail was read is ahead of that, and not of the chain.
    if applied > tail.manifest_number and not chain_index.has(applied):
        return f"the target has applied manifest {applied}, which the chain does not reach"
    if commit_metadata is None or commit_metadata.to_manifest != applied:
        return f"the target's log no longer shows which manifest {applied} it has applied"
    # Metadata of an older version, without digests, has the manifest's last sequence only.
    same = commit_metadata.digest == chain_index.digest(applied)
    if not commit_metadata.digest:
        same = commit_metadata.seq == chain_index.manifest(applied).last_seq
    return "" if same else f"the target has applied another manifest {applied} than the chain's"
