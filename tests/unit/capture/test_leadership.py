"""Who writes the chain: founding, takeover, and that there is never more than one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from tests.fixtures.systems import Clocked
from tests.fixtures.troubled_store import Failing, TroubledStore
from tests.support.each import each
from tideline.contract.errors import Fenced, Unavailable
from tideline.contract.manifest import Manifest, ManifestKind, VerificationChunk
from tideline.contract.open_state import OpenState
from tideline.contract.position import PostgresPosition, SourceIdentity
from tideline.contract.request import Answer, RequestState
from tideline.store.chain import Chain, ManifestEntry
from tideline_capture.leadership import Candidate, Lead

PIPELINE = "shop"
TAKEOVER_S = 10.0
IDENTITY = SourceIdentity("postgres", "1", 1, "d")


class Turns(threading.Event):
    """Time that passes only while someone waits; others act meanwhile."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.now = 100.0
        self.meanwhile = meanwhile

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        self.meanwhile()
        return self.is_set()


def candidate(store: TroubledStore, turns: Turns, writer: str = "new") -> Candidate:
    return Candidate(
        Chain(store, PIPELINE),
        writer=writer,
        takeover_after_s=TAKEOVER_S,
        stopping=turns,
        system=Clocked(lambda: turns.now),
    )


def origin() -> tuple[SourceIdentity, PostgresPosition]:
    return IDENTITY, PostgresPosition(0)


def lead_of(store: TroubledStore, turns: Turns | None = None, writer: str = "new") -> Lead:
    lead = candidate(store, turns or Turns(), writer).acquire(origin)
    assert lead is not None
    return lead


def following(entry: ManifestEntry, **fields: object) -> Manifest:
    """The heartbeat that the writer of ``entry`` appends next."""
    last = entry.manifest
    beat = replace(
        last,
        manifest_number=last.manifest_number + 1,
        previous_digest=entry.digest,
        kind=ManifestKind.HEARTBEAT,
        state=None,
        state_at=last.state_at or last.manifest_number,
    )
    return replace(beat, **fields)


def check_chain(store: TroubledStore) -> list[ManifestEntry]:
    """All manifests; each must follow the one before."""
    chain = Chain(store, PIPELINE)
    tail = chain.tail()
    assert tail is not None
    return list(chain.entries(1, tail.manifest.manifest_number))


class TestFounding:
    def test_the_first_one_founds(self) -> None:
        store = TroubledStore()
        lead = lead_of(store)
        manifest = lead.entry.manifest
        assert (manifest.manifest_number, manifest.term, manifest.writer) == (1, 1, "new")
        assert (manifest.identity, manifest.state) == (IDENTITY, OpenState())

    def test_of_two_one_founds_and_the_other_waits(self) -> None:
        store = TroubledStore()
        turns = Turns()
        first: list[Lead] = []

        def other_is_first() -> tuple[SourceIdentity, PostgresPosition]:
            if not first:
                first.append(lead_of(store, writer="other"))
            return origin()

        lead = candidate(store, turns).acquire(other_is_first)
        assert lead is not None and lead.entry.manifest.kind is ManifestKind.TAKEOVER
        assert turns.now - 100 >= TAKEOVER_S
        assert [entry.manifest.writer for entry in check_chain(store)] == ["other", "new"]

    def test_the_source_is_asked_for_a_new_chain_only(self) -> None:
        store = TroubledStore()
        lead_of(store, writer="old")

        def not_asked() -> tuple[SourceIdentity, PostgresPosition]:
            raise AssertionError("the source was asked")

        assert candidate(store, Turns()).acquire(not_asked) is not None

    def test_a_source_that_is_away_is_told(self) -> None:
        def away() -> tuple[SourceIdentity, PostgresPosition]:
            raise Unavailable("no source")

        with pytest.raises(Unavailable):
            candidate(TroubledStore(), Turns()).acquire(away)


class TestTakeover:
    def test_a_released_chain_is_taken_at_once(self) -> None:
        store, turns = TroubledStore(), Turns()
        old = lead_of(store, writer="old")
        Chain(store, PIPELINE).append(following(old.entry, released=True))
        manifest = lead_of(store, turns).entry.manifest
        assert turns.now == 100
        assert (manifest.term, manifest.released, manifest.kind) == (2, False, "takeover")

    def test_a_wait_is_said_once(self) -> None:
        """However often the chain grows meanwhile, and with whom it waits for."""
        store = TroubledStore()
        last = [lead_of(store, writer="old").entry]

        def grow() -> None:
            if len(last) < 20:
                last.append(Chain(store, PIPELINE).append(following(last[-1])))

        with capture_logs() as reported:
            lead_of(store, Turns(grow))
        waits = [one for one in reported if one["event"].startswith("waiting: ")]
        assert [(one["writer"], one["takeover_after_s"]) for one in waits] == [("old", TAKEOVER_S)]
        Chain(store, PIPELINE).append(following(check_chain(store)[-1], released=True))
        with capture_logs() as reported:
            lead_of(store, writer="third")
        assert [one["event"] for one in reported] == ["took over"], (
            "a released chain is not waited for"
        )

    def test_silence_is_waited_for(self) -> None:
        store, turns = TroubledStore(), Turns()
        lead_of(store, writer="old")
        lead_of(store, turns)
        assert TAKEOVER_S <= turns.now - 100 <= TAKEOVER_S + 1

    def test_a_chain_that_grows_is_left_alone(self) -> None:
        store, turns = TroubledStore(), Turns()
        chain, last = Chain(store, PIPELINE), [lead_of(store, writer="old").entry]

        def beat() -> None:
            if turns.now < 200:
                last.append(chain.append(following(last[-1])))

        turns.meanwhile = beat
        manifest = lead_of(store, turns).entry.manifest
        assert TAKEOVER_S - 1 <= turns.now - 200 <= TAKEOVER_S + 1
        assert manifest.manifest_number == last[-1].manifest.manifest_number + 1

    def test_probes_that_fail_start_the_wait_again(self) -> None:
        store, turns = TroubledStore(), Turns()
        lead_of(store, writer="old")

        def away_until_150(kind: str, key: str) -> None:
            if kind == "get" and key.endswith("2.json") and 105 < turns.now < 150:
                raise Unavailable("no answer")

        store.before = away_until_150
        lead_of(store, turns)
        assert turns.now - 149 >= TAKEOVER_S, "the last probe that failed was at 149"

    def test_an_answer_that_took_long_does_not_count_as_silence(self) -> None:
        store, turns = TroubledStore(), Turns()
        lead_of(store, writer="old")
        asked: list[str] = []

        def slowly(kind: str, key: str) -> None:
            if key.endswith("2.json"):
                if kind == "get" and "get" not in asked:
                    turns.now += 2 * TAKEOVER_S
                asked.append(kind)

        store.after = slowly
        lead_of(store, turns)
        assert asked[asked.index("get") :][:2] == ["get", "get"], "it probes once more"

    def test_the_old_writer_is_fenced(self) -> None:
        store = TroubledStore()
        old = lead_of(store, writer="old")
        lead_of(store)
        with pytest.raises(Fenced):
            Chain(store, PIPELINE).append(following(old.entry))

    def test_its_state_is_that_of_the_chain(self) -> None:
        store = TroubledStore()
        old = lead_of(store, writer="old")
        Chain(store, PIPELINE).append(following(old.entry))
        lead = lead_of(store)
        assert lead.entry.manifest.state == lead.state == OpenState()

    def test_it_says_nothing_again_that_the_manifest_before_it_says(self) -> None:
        store = TroubledStore()
        old = lead_of(store, writer="old")
        reported: dict[str, object] = {
            "verification_chunks": (VerificationChunk("v", "public.t", "f", 0, 0, 0),),
            "accepted": ("r",),
            "refused": (Answer("q", RequestState.FAILED),),
            "released": True,
            "uploading": (2,),
        }
        before = following(
            old.entry, source_time_us=7, state=OpenState(), state_at=None, **reported
        )
        Chain(store, PIPELINE).append(before)
        made = lead_of(store).entry.manifest
        mute = Manifest.__struct_defaults__
        names = Manifest.__struct_fields__[-len(mute) :]
        silent = dict(zip(names, mute, strict=True))
        own = ("version", "requires", "source_time_us", "written_at_us", "state")
        assert [n for n in names if n not in own and getattr(made, n) != silent[n]] == []
        assert (made.kind, made.term, made.source_time_us) == (ManifestKind.TAKEOVER, 2, 7)

    def test_it_repeats_no_time_to_come(self) -> None:
        """The chain was written by a worker that believed a clock which was wrong."""
        store = TroubledStore()
        old = lead_of(store, writer="old")
        wrong = following(old.entry, source_time_us=9 * 10**18, written_at_us=1_700_000_000_000_000)
        Chain(store, PIPELINE).append(wrong)
        lead = lead_of(store)
        assert lead.entry.manifest.source_time_us == 1_700_000_000_000_000

    def test_one_that_was_stopped_takes_nothing(self) -> None:
        store, turns = TroubledStore(), Turns()
        lead_of(store, writer="old")
        turns.meanwhile = turns.set
        assert candidate(store, turns).acquire(origin) is None
        assert len(check_chain(store)) == 1

    def test_a_takeover_that_the_store_took_without_an_answer_is_ours(self) -> None:
        store, turns = TroubledStore(), Turns()
        lead_of(store, writer="old")
        store.after = Failing("create", "log/", 1)
        lead = lead_of(store, turns)
        assert lead.entry.manifest.manifest_number == 2
        assert turns.now - 100 < 2 * TAKEOVER_S

    @pytest.mark.parametrize("kind", ["exists", "get", "create"])
    def test_a_store_that_is_away_for_a_while_ends_no_candidate(self, kind: str) -> None:
        store = TroubledStore()
        lead_of(store, writer="old")
        store.before = Failing(kind, "log/", 3)
        assert lead_of(store).entry.manifest.term == 2


class _Writer:
    """An active writer that appends, pauses for any time, and does not know that it is replaced."""

    def __init__(
        self, store: TroubledStore, lead: Lead, *, chosen: random.Random, turns: Turns
    ) -> None:
        self.appended = [lead.entry]
        self._chain = Chain(store, PIPELINE)
        self._chosen = chosen
        self._turns = turns
        self._awake_at = turns.now
        self._steps_left = 40
        self._fenced = False

    def step(self) -> None:
        if self._fenced or not self._steps_left or self._turns.now < self._awake_at:
            return
        self._steps_left -= 1
        if self._chosen.random() < 0.3:
            self._awake_at = self._turns.now + self._chosen.uniform(0, 1.5 * TAKEOVER_S)
            return
        try:
            self.appended.append(self._chain.append(following(self.appended[-1])))
        except Fenced:
            self._fenced = True


@each("seed", range(200))
def test_no_interleaving_forks_the_chain(seed: int) -> None:
    """The old writer appends before, between and after any of the new one's requests."""
    chosen = random.Random(seed)
    store, turns = TroubledStore(), Turns()
    old = _Writer(store, lead_of(store, writer="old"), chosen=chosen, turns=turns)
    acting = [False]

    def interleave(kind: str = "", key: str = "") -> None:
        if not acting[0]:
            acting[0] = True
            while chosen.random() < 0.5:
                old.step()
            acting[0] = False

    store.before = store.after = interleave
    turns.meanwhile = interleave
    new = _Writer(store, lead_of(store, turns), chosen=chosen, turns=turns)
    for _ in range(20):
        chosen.choice((old, new)).step()

    entries = check_chain(store)
    assert entries == old.appended + new.appended
    terms = [entry.manifest.term for entry in entries]
    assert terms == [1] * len(old.appended) + [2] * len(new.appended)
