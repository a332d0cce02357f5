"""Who runs next: pure Python, no arrays, no clock of its own.

Waiting requests are admitted when a slot and memory are free: the highest priority first and, among equals, the one
that came first. Nobody overtakes the head of the queue, so nobody starves. A step's token budget goes first to the
rows that decode, since someone is reading along, and what is left to prefill chunks. When memory runs out while a
request decodes, the youngest of the lowest priority gives way: its memory is taken, and it is computed again later
(preemption by recompute, as in vLLM).

`static` is how it was done before continuous batching (Orca, Yu et al. 2022): a batch is admitted together and runs
until its last request has ended. It is here for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.blocks import Copy
from engine.config import Policy
from engine.events import Phase
from engine.memory import Memory, Unlimited
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a step: run positions start ≤ p < stop."""

    sequence: Sequence
    start: int
    stop: int
    phase: Phase

    @property
    def chooses(self) -> bool:
        """Whether the last position of this row chooses a token (earlier chunks of a prefill choose none)."""
        return self.stop >= self.sequence.prefill_until

    def as_dict(self) -> dict[str, object]:
        sequence = self.sequence
        return {
            "request": sequence.id,
            "slot": sequence.slot,
            "phase": self.phase,
            "from": self.start,
            "to": self.stop,
        }


@dataclass(frozen=True, slots=True)
class Admission:
    """A request got a slot, and why now."""

    sequence: Sequence
    slot: int
    reason: str


@dataclass(frozen=True, slots=True)
class Preemption:
    """A request gave way, and why."""

    sequence: Sequence
    slot: int
    reason: str


@dataclass(slots=True)
class Plan:
    """What the next step runs, and what had to happen first."""

    rows: list[Row] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)


class Scheduler:
    """Queue, slots, and the plan of each step.

    Args:
        slots: how many requests run at once.
        token_budget: most positions that a step computes.
        memory: where KV goes.
        policy: continuous or static.
    """

    def __init__(
        self, *, slots: int, token_budget: int, memory: Memory | None = None, policy: Policy = "continuous"
    ) -> None:
        self.token_budget = token_budget
        self.policy = policy
        self.waiting: list[Sequence] = []
        self.slots: list[Sequence | None] = [None] * slots
        self._memory: Memory = memory or Unlimited()
        self._arrivals = 0

    @property
    def running(self) -> list[Sequence]:
        """Those in slots, in the order in which they are served: priority, then arrival."""
        return sorted((sequence for sequence in self.slots if sequence is not None), key=_turn)

    @property
    def has_work(self) -> bool:
        return bool(self.waiting) or any(self.slots)

    def add(self, sequence: Sequence) -> None:
        """Put a request into the queue."""
        self._arrivals += 1
        sequence.order = self._arrivals
        self.waiting.append(sequence)
        self.waiting.sort(key=_turn)

    def admit(self) -> list[Admission]:
        """Give free slots to waiting requests, in turn, as long as there is memory for the next one."""
        admissions: list[Admission] = []
        if self.policy == "static" and any(self.slots):
            return admissions
        for slot, holder in enumerate(self.slots):
            if holder is None and self.waiting and self._may_enter(self.waiting[0]):
                admissions.append(self._enter(self.waiting.pop(0), slot))
        return admissions

    def plan(self) -> Plan:
        """The rows of the next step; none when no running request can go on before a result has arrived."""
        plan = Plan()
        budget = self.token_budget
        for sequence in self.running:
            if budget and sequence.slot is not None and self._may_decode(sequence):
                budget -= self._decode(sequence, plan)
        for sequence in self.running:
            if budget and sequence.slot is not None and sequence.prefilling:
                budget -= self._prefill(sequence, budget, plan)
        return plan

    def release(self, sequence: Sequence, *, keep: bool = True) -> int | None:
        """Take a request out of its slot, or out of the queue. Returns the slot it held.

        Args:
            keep: whether what it computed may serve others that begin alike.
        """
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        slot = sequence.slot
        if slot is None or self.slots[slot] is not sequence:
            return None
        self.slots[slot] = None
        self._memory.close(sequence.id, keep=keep)
        return slot

    # --- entering -----------------------------------------------------------------------------------------------------

    def _may_enter(self, sequence: Sequence) -> bool:
        fork = sequence.forked_from
        if fork is not None and _runs(fork.parent) and fork.parent.computed < fork.position:
            return False  # what it shares is being computed right now
        if self._computed_elsewhere(sequence):
            return False
        # A block for each of the others: admitting somebody must not make one who runs give way at the next token.
        return self._memory.can_open(sequence.tokens, spare=len(self.running))

    def _computed_elsewhere(self, sequence: Sequence) -> bool:
        """Whether a running request is just computing a beginning that this one could then find.

        Waiting a few steps for it costs less than computing it twice: so the choices of one prompt share its blocks.
        """
        found = self._memory.match_prefix(sequence.tokens)
        for other in self.running:
            alike = _common(other.tokens[: other.prefill_until], sequence.tokens[:-1])
            if other.stored < (whole := self._memory.whole_blocks(alike)) and found < whole:
                return True
        return False

    def _enter(self, sequence: Sequence, slot: int) -> Admission:
        self.slots[slot], sequence.slot = sequence, slot
        known = len(sequence.tokens)
        sequence.prefill_until = known
        fork = sequence.forked_from
        if fork is not None and _runs(fork.parent):
            shared = min(fork.position, fork.parent.computed, known - 1)  # one token must run, to choose the next
            shared = self._memory.fork(fork.parent.id, sequence.id, shared, sequence.most_tokens)
            reason = f"slot {slot} was free; shares {shared} positions with {fork.parent.id}"
        else:
            shared = self._memory.open(sequence.id, sequence.tokens, sequence.most_tokens)
            reason = f"slot {slot} was free, and memory for {known} tokens, {shared} of them found in the prefix cache"
        sequence.computed = sequence.cached = sequence.stored = shared
        sequence.forked_from = None  # or a chain of forks would keep all its ancestors in memory
        return Admission(sequence, slot, reason)

    # --- planning -----------------------------------------------------------------------------------------------------

    def _may_decode(self, sequence: Sequence) -> bool:
        return not sequence.prefilling and sequence.computed <= sequence.last_pass

    def _decode(self, sequence: Sequence, plan: Plan) -> int:
        length = sequence.computed + 1
        if not self._make_room(sequence, length, plan):
            return 0
        self._put(sequence, length, "decode", plan)
        return 1

    def _prefill(self, sequence: Sequence, budget: int, plan: Plan) -> int:
        start = sequence.computed
        stop = self._memory.most(sequence.id, min(sequence.prefill_until, start + budget))
        if stop <= start:
            # No memory. Others will give some back when they end; but when nobody else moves, somebody must give way.
            if plan.rows or not self._make_room(sequence, start + 1, plan):
                return 0
            stop = self._memory.most(sequence.id, min(sequence.prefill_until, start + budget))
        self._put(sequence, stop, "prefill", plan)
        return stop - start

    def _put(self, sequence: Sequence, stop: int, phase: Phase, plan: Plan) -> None:
        plan.copies += self._memory.grow(sequence.id, stop)
        plan.rows.append(Row(sequence, sequence.computed, stop, phase))

    def _make_room(self, sequence: Sequence, length: int, plan: Plan) -> bool:
        """Preempt until the request can grow. False when it had to give way itself."""
        while not self._memory.can_grow(sequence.id, length):
            victim = self.running[-1]
            planned = any(row.sequence is victim for row in plan.rows)
            if victim is sequence or planned:
                if not planned:
                    self._preempt(victim, plan, f"no block was free for position {length - 1}, and it was last in turn")
                return False
            self._preempt(victim, plan, f"{sequence.id} needed a block for position {length - 1}")
        return True

    def _preempt(self, victim: Sequence, plan: Plan, reason: str) -> None:
        slot = self.release(victim)
        assert slot is not None, "only a running request is preempted"
        victim.slot, victim.computed, victim.prefill_until, victim.stored = None, 0, 0, 0
        victim.preemptions += 1
        self.waiting.append(victim)
        self.waiting.sort(key=_turn)
        plan.preemptions.append(Preemption(victim, slot, reason))


def _common(one: list[int], other: list[int]) -> int:
    """Length of the longest common beginning."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(index for index in range(length) if one[index] != other[index])


def _runs(sequence: Sequence) -> bool:
    return sequence.slot is not None and not sequence.finished


def _turn(sequence: Sequence) -> tuple[int, int]:
    return -sequence.request.priority, sequence.order
