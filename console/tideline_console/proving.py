"""The steps of a verification, one after the other, whatever shows and runs them.

Read between marks; merge up to there; compare; read again what changed meanwhile; and, where it is
wanted, dump what differs, merge, and compare that again. Every round is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from tideline.contract.errors import Misconfigured
from tideline.contract.proofs import (
    PASSES_MAX,
    batches,
    keys_to_repair,
    repaired,
    short,
    verify_request,
    with_pass,
)
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline.contract.verification import Proof, TableProof, Verification, VerifyPlan
from tideline.planner.verified import store_verification
from tideline.planner.verifying import plan_verification, stuck
from tideline.settings import Settings

MERGES_MAX = 10
REPAIRS_MAX = 3


class Jobs(Protocol):
    """What somebody else does for a verification."""

    def read(self, request: DumpRequest) -> Answer:
        """Have the worker serve ``request``; its final answer."""

    def merge(self, name: str, tables: Sequence[str]) -> None:
        """Merge what is new of ``tables``, in a plan of that name."""

    def compare(self, plan: VerifyPlan) -> Verification:
        """Run ``plan``."""

    def tell(self, text: str) -> None:
        """Say how it goes on."""


class Proving:
    """One verification; its name is the first request's id."""

    def __init__(
        self,
        settings: Settings,
        jobs: Jobs,
        request: DumpRequest,
        *,
        passes_max: int = PASSES_MAX,
    ) -> None:
        self._passes_max = passes_max
        self._settings = settings
        self._jobs = jobs
        self._request = request
        self._name = request.request_id
        self._merges = 0
        self._passes = 0
        self._incarnation = ""

    def run(self, *, repair: bool) -> Verification:
        """The result, which is stored. Raises Misconfigured when the worker refuses to read."""
        proofs = self._hopeless() or self._settled(self._compared(self._request))
        for number in range(REPAIRS_MAX if repair else 0):
            if not any(one.differences for one in proofs):
                break
            proofs = [self._repair(one, number) if one.differences else one for one in proofs]
        result = Verification(
            self._name, self._settings.pipeline, self._incarnation, self._name, tuple(proofs)
        )
        store_verification(self._settings, result)
        return result

    def _hopeless(self) -> list[TableProof]:
        """The tables, if all that were asked for are ones which need not be read: they are held."""
        held = stuck(self._settings, self._request.tables)
        if not set(self._request.tables) <= set(held):
            return []
        return [TableProof(name, Proof.UNPROVEN, reason=why) for name, why in held.items()]

    def _compared(self, request: DumpRequest) -> list[TableProof]:
        """What was read for ``request``, compared."""
        answer = self._jobs.read(request)
        if answer.state is RequestState.REFUSED or answer.manifest_number is None:
            raise Misconfigured(
                f"the worker refuses to read: {answer.error or answer.state.value}", answer.hint
            )
        done = [one.table for one in answer.tables if one.state is RequestState.DONE]
        failed = [
            TableProof(one.table, Proof.UNPROVEN, reason=one.error or one.state.value)
            for one in answer.tables
            if one.state is not RequestState.DONE
        ]
        if not done:
            return failed
        plan = self._plan(request.request_id, answer.manifest_number, done)
        self._incarnation = plan.incarnation
        result = self._jobs.compare(plan)
        return [*result.tables, *failed]

    def _plan(self, request_id: str, finished_in: int, tables: Sequence[str]) -> VerifyPlan:
        self._passes += 1
        for attempt in range(MERGES_MAX + 1):
            planned = plan_verification(
                self._settings,
                request_id,
                verify_id=f"{self._name}.{self._passes}",
                finished_in=finished_in,
                tables=tables,
                last_call=attempt == MERGES_MAX,
            )
            if not planned.waiting:
                break
            self._merge(planned.waiting)
        return planned.plan

    def _merge(self, tables: Sequence[str]) -> None:
        self._merges += 1
        self._jobs.tell(f"merging {', '.join(tables)} up to where they were read")
        self._jobs.merge(f"{self._name}.m{self._merges}", tables)

    def _settled(self, proofs: Iterable[TableProof]) -> list[TableProof]:
        return [self._settle(one) for one in proofs]

    def _settle(self, proof: TableProof) -> TableProof:
        """``proof`` once no key is set aside any more, or the passes are used up."""
        for number in range(self._passes_max):
            if not proof.moving_keys:
                break
            self._jobs.tell(f"{proof.table}: {proof.moving:,} keys changed meanwhile; reading them")
            later = self._of_keys(f"p{number}", proof.table, proof.moving_keys)
            proof = with_pass(proof, later)
            if proof.reason is not None:
                break
        return proof

    def _of_keys(self, what: str, table: str, keys: Sequence[tuple[str, ...]]) -> list[TableProof]:
        found = []
        for number, batch in enumerate(batches(keys)):
            request = verify_request(
                f"{self._name}:{what}.{number}",
                table,
                batch,
                priority=self._request.priority,
                requested_by=self._request.requested_by,
            )
            found += self._compared(request)
        return found

    def _repair(self, proof: TableProof, number: int) -> TableProof:
        """``proof`` once its differing keys were dumped, merged, and compared again; or, where they
        are not all known, the whole table was."""
        keys = keys_to_repair(proof)
        many = "the whole table" if keys is None else f"{len(keys):,} keys"
        self._jobs.tell(f"{proof.table}: {proof.differences:,} differences; dumping {many}")
        for at, batch in enumerate([None] if keys is None else batches(keys)):
            answer = self._jobs.read(
                DumpRequest(
                    request_id=f"{self._name}:r{number}.{at}:{short(proof.table)}",
                    tables=(proof.table,),
                    keys=batch,
                    priority=self._request.priority,
                    requested_by=self._request.requested_by,
                )
            )
            if answer.state is not RequestState.DONE:
                reason = f"the repair is {answer.state.value}: {answer.error or 'no reason given'}"
                return replace(proof, reason=reason, hint=answer.hint)
        if keys is None:
            anew = DumpRequest(
                request_id=f"{self._name}:w{number}:{short(proof.table)}",
                tables=(proof.table,),
                purpose="verify",
                key_range=proof.key_range,
                priority=self._request.priority,
                requested_by=self._request.requested_by,
            )
            self._merge([proof.table])
            return self._settled(self._compared(anew))[0]
        self._merge([proof.table])
        later = self._of_keys(f"v{number}", proof.table, keys)
        return self._settle(repaired(proof, later))
