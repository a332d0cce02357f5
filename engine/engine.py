"""The engine thread: it alone owns the model, every MLX array and the KV caches.

Streams, lazy arrays and caches belong to the thread that made them, so the model is loaded on the engine thread and
nothing else touches MLX. Others talk to it through a queue of commands; it answers by calling each request's
`deliver`, and by events on the bus. A command takes effect between two steps.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from engine.device import mx

from engine.bus import EventBus
from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import EngineStopped, QueueFull, RequestError, explained, shown
from engine.events import Absent, RequestFinished, RequestRejected
from engine.header import run_header
from engine.kv.blocks import BlockMemory
from engine.models.info import LoadedModel, ModelInfo
from engine.prepare import Preparation, new_request_id
from engine.readings import Reading
from engine.remembered import Remembered
from engine.request import GenerationRequest, RequestView
from engine.sequence import Deliver, Sequence
from engine.tokenizer import Tokenizer

log = logging.getLogger(__name__)

MAX_REASON = 500
"""Characters of the reason why a request was refused. A chat template's own words may hold the whole chat."""

STALLED_SECONDS = 120.0
"""A step that takes longer than this is no progress: no machine is that slow."""

COMPANY_S = 0.002
"""An idle engine that is asked waits so long for whoever asks at the same time, and starts with them together: whoever
came a millisecond too late would wait for a whole prompt's pass."""

Command = Callable[[EngineCore], object]
Read = Callable[[Sequence, int, EngineCore], object]


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the engine thread is alive and making progress."""

    ok: bool
    reason: str | None
    steps: int
    last_progress_s: float


class Engine:
    """A model that takes requests, on a thread of its own.

    Args:
        loader: loads the model; called on the engine thread.
        config: how to run it.
        bus: where events go.

    Attributes:
        info: facts about the model, once started.
        tokenizer: its tokenizer, once started.
        slots: requests that run at once.
    """

    info: ModelInfo
    tokenizer: Tokenizer

    def __init__(self, loader: Callable[[], LoadedModel], config: EngineConfig, bus: EventBus) -> None:
        self.config = config
        self.bus = bus
        self.slots = config.slots
        self._loader = loader
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._readings: queue.SimpleQueue[tuple[Sequence, int, Read]] = queue.SimpleQueue()
        """Made one between two steps: each takes as long as a step or two."""
        self._remembered = Remembered()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stopping = False
        self._last_progress = time.monotonic()
        self._steps = 0
        self._thread = threading.Thread(target=self._run, name="tokenwalk-engine", daemon=True)

    def start(self) -> None:
        """Start the thread and load the model; returns when it is ready.

        Raises:
            ModelError: as the loader does.
        """
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()  # the interpreter must not end while it still cleans up in MLX
            raise explained(self._failure)

    def stop(self) -> None:
        """Cancel what runs and end the thread."""
        self._stopping = True
        self._commands.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def submit(self, request: GenerationRequest, deliver: Deliver) -> str:
        """Tokenize a request on this thread and queue it.

        `deliver` is called on the engine thread: with every token, then once with the end. It must not block.

        Returns:
            The request's id.

        Raises:
            RequestError: when the request is wrong.
            QueueFull: when too many wait.
            EngineStopped: when the engine is not running.
        """
        with self._refusals(request):
            self._may_wait()
            return self._queue(self._preparation.prepare(request, deliver))

    def estimate(self, request: GenerationRequest) -> dict[str, Any]:
        """What the capture of a request would cost (`CaptureSchedule.estimate`), without running it.

        Raises:
            RequestError: when the request is wrong.
            EngineStopped: when the engine is not running.
        """
        self._must_run()
        return self._preparation.estimate(request)

    def estimate_of(self, prompt_tokens: int, max_tokens: int, plan: CapturePlan | None) -> dict[str, Any]:
        """The same of a request with so many tokens. Raises likewise."""
        self._must_run()
        return self._preparation.estimate_of(prompt_tokens, max_tokens, plan)

    def fork(self, parent: str, position: int, request: GenerationRequest, deliver: Deliver) -> str:
        """Continue another request from a position with other tokens, sharing the KV of what comes before.

        Args:
            parent: id of the request to branch off, running or remembered.
            position: the first position that differs: the parent's tokens before it are kept.
            request: its prompt (token ids, or text) takes the place of what the parent has from there on.
            deliver: as for `submit`.

        Returns:
            The new request's id.

        Raises:
            RequestError: when there is no such request or position, or the request is wrong.
            QueueFull, EngineStopped: as `submit`.
        """
        with self._refusals(request):
            self._may_wait()
            sequence = self._remembered.find(parent)
            if sequence is None:
                raise RequestError(f"there is no request {parent}, or it is remembered no more", param="request")
            return self._queue(self._preparation.prepare_fork(request, deliver, sequence, position))

    @contextmanager
    def _refusals(self, request: GenerationRequest) -> Iterator[None]:
        """Let those who watch know of a request that is refused, too."""
        try:
            yield
        except (RequestError, QueueFull) as error:
            reason = str(error)
            cut = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}…"
            self.bus.emit(RequestRejected(request=request.id or new_request_id(), reason=cut))
            raise

    def _may_wait(self) -> None:
        """Raise unless one more request may be queued."""
        self._must_run()
        ahead = sum(not sequence.finished for sequence in self._remembered.newest_first())
        if ahead >= self.slots + self.config.max_queue:
            raise QueueFull(f"{ahead - self.slots} requests wait already, as many as may; try again later")

    def _queue(self, sequence: Sequence) -> str:
        open_for_requests = self._remembered.add(sequence)
        self._commands.put(lambda core: core.scheduler.add(sequence))
        if not open_for_requests:  # the thread ended in between, and will not see the command
            self._end(sequence)
        return sequence.id

    def cancel(self, request_id: str) -> bool:
        """Cancel a request within one step. False when there is no such request, or it has ended."""
        sequence = self._remembered.find(request_id)
        if sequence is None or sequence.finished:
            return False
        self._commands.put(lambda core: core.cancel(sequence))
        return True

    def lens(self, request_id: str, positions: list[int]) -> None:
        """Emit `lens` events for these positions, or `absent` ones that say why not.

        Raises:
            RequestError: when there was no such request, or it has no such position: then nothing is emitted.
            EngineStopped: when the engine is not running.
        """
        self._read("lens", request_id, positions, lambda asked, position, core: core.readings.lens(asked, position))

    def attribution(self, request_id: str, positions: list[int], *, heads: bool = False) -> None:
        """Emit `attribution` events for these positions, by head too if asked, or `absent` ones that say why not.

        Raises: as `lens`.
        """

        def read(sequence: Sequence, position: int, core: EngineCore) -> None:
            core.readings.attribution(sequence, position, heads=heads)

        self._read("attribution", request_id, positions, read)

    def _read(self, what: Reading, request_id: str, positions: list[int], read: Read) -> None:
        """Position by position, so that those who decode wait for one at most."""
        self._must_run()
        sequence, tokens = self._remembered.find(request_id), self._remembered.tokens_of(request_id)
        # What a caller got wrong is for that caller alone: events go to everybody, and into the recording.
        if tokens is None:
            raise RequestError(f"this run has no request {shown(request_id)}, or knows of it no more", param="request")
        wrong = next((position for position in positions if not 0 <= position < tokens), None)
        if wrong is not None:
            raise RequestError(
                f"positions holds {wrong}; {request_id} has {tokens} tokens, so expected 0 to {tokens - 1}",
                param="positions",
            )
        for position in dict.fromkeys(positions):
            if sequence is None:
                at = [position, position + 1]
                detail = "the engine remembers this request no more"
                self.bus.emit(Absent(what=what, reason="not_captured", request=request_id, positions=at, detail=detail))
            else:
                self._readings.put((sequence, position, read))
        self._commands.put(lambda core: None)  # whoever waits for a command sees that there is something to read

    def time_steps(self, steps: int) -> None:
        """Time the operations of the next steps: `kernel` events, and steps that are slower than normal.

        Raises:
            EngineStopped: when the engine is not running.
        """
        self._must_run()
        self._commands.put(lambda core: core.timing.ask(steps))

    def requests(self) -> list[RequestView]:
        """Live and recent requests, the newest first."""
        return [sequence.view() for sequence in self._remembered.newest_first()]

    def request(self, request_id: str) -> RequestView | None:
        sequence = self._remembered.find(request_id)
        return None if sequence is None else sequence.view()

    def slots_view(self) -> list[dict[str, object]]:
        """Per slot: its number and the request that holds it, or None."""
        held = {view.slot: view for view in self.requests() if view.slot is not None and view.state != "finished"}
        return [
            {
                "slot": slot,
                "request": held[slot].id if slot in held else None,
                "state": held[slot].state if slot in held else "free",
            }
            for slot in range(self.slots)
        ]

    def cache_state(self) -> dict[str, Any]:
        """The block map between two steps: what every block holds, and the last event that it follows from.

        Raises:
            EngineStopped: when the engine is not running.
        """
        self._must_run()
        answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._commands.put(lambda core: answer.put(self._cache_state(core)))
        while True:
            try:
                return answer.get(timeout=1.0)
            except queue.Empty:
                self._must_run()

    def _cache_state(self, core: EngineCore) -> dict[str, Any]:
        memory = core.kv.memory
        state: dict[str, Any] = {"seq": self.bus.last_seq, **core.kv.facts}
        state |= {"map": [], "waste": None, "fragmentation": None}
        if isinstance(memory, BlockMemory):
            pool = memory.pool
            state |= {"map": pool.state(), "waste": pool.waste(), "fragmentation": asdict(pool.fragmentation())}
        return state

    def health(self) -> Health:
        """Whether requests can be served."""
        since = time.monotonic() - self._last_progress
        reason = None
        if self._failure is not None:
            reason = f"the engine thread has ended: {type(self._failure).__name__}: {self._failure}"
        elif not self._ready.is_set():
            reason = "the model is loading"
        elif not self._thread.is_alive():
            reason = "the engine thread is not running"
        elif since > STALLED_SECONDS:
            reason = f"no step has finished for {since:.0f} s"
        return Health(reason is None, reason, self._steps, since)

    # --- on the engine thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        core = None
        try:
            core = self._introduce(self._loader())
            self._ready.set()
            self._serve(core)
        except BaseException as failure:  # whatever it was: those who wait must hear of it, and /health must say so
            if self._ready.is_set():
                log.exception("the engine thread has ended")
            self._failure = failure.with_traceback(None)  # its frames hold arrays
        finally:
            self._end_all(core)
            self._ready.set()
            del core
            # MLX asks for this at the end of every thread that ran it: its own clean-up comes after the interpreter's.
            mx.clear_streams()

    def _introduce(self, loaded: LoadedModel) -> EngineCore:
        core = EngineCore(loaded, self.config, self.bus.emit, self.bus.now_ns)
        info = loaded.info
        self.info, self.tokenizer = info, loaded.tokenizer
        context = min(info.context, self.config.max_context or info.context)
        self._preparation = Preparation(
            tokenizer=loaded.tokenizer,
            info=info,
            context=context,
            kv_tokens=core.kv.tokens,
            default_plan=self.config.capture_default,
            visible=core.visible,
            emit=self.bus.emit,
            now_ns=self.bus.now_ns,
        )
        self.bus.emit(run_header(loaded, core, epoch=self.bus.epoch, age_ns=self.bus.now_ns()))
        return core

    def _serve(self, core: EngineCore) -> None:
        while not self._stopping:
            self._obey(core)
            self._last_progress = time.monotonic()
            if not self._readings.empty():
                sequence, position, read = self._readings.get()
                if core.readings.waits(sequence, position):
                    self._readings.put((sequence, position, read))
                else:
                    read(sequence, position, core)
            if core.has_work:
                core.step()
                self._steps = core.steps

    def _obey(self, core: EngineCore) -> None:
        """Carry out what has been asked for; with nothing to run, wait until something is, and for its company."""
        company = self.config.slots if not core.has_work and self._readings.empty() else 0
        try:
            command = self._commands.get(block=company > 0, timeout=1.0)
            while command is not None:
                command(core)
                company -= 1
                command = self._commands.get(block=company > 0, timeout=COMPANY_S)
        except queue.Empty:
            pass

    def _end_all(self, core: EngineCore | None) -> None:
        for sequence in self._remembered.close():
            if core is not None and self._failure is None:
                core.cancel(sequence)
            else:
                self._end(sequence)
        if core is not None and self._failure is None:
            core.close()

    def _end(self, sequence: Sequence) -> None:
        """Tell a request that the engine is gone."""
        sequence.finish_reason, sequence.finished_ns = "error", self.bus.now_ns()
        event = RequestFinished(
            request=sequence.id,
            reason="error",
            detail=self.health().reason or "the engine has stopped",
            prompt_tokens=sequence.prompt_tokens,
            completion_tokens=sequence.completion_tokens,
            timings=sequence.timings(),
        )
        sequence.deliver(self.bus.emit(event))

    def _must_run(self) -> None:
        if self._failure is not None or self._remembered.closed or self._stopping or not self._ready.is_set():
            raise EngineStopped(self.health().reason or "the engine is stopping")
