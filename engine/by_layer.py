"""How a step runs whose attention is too large to be held at once: layer by layer.

One layer's scores are evaluated; while the device goes on to the next layer, another thread makes probabilities of
them and puts them where they belong. So there are never more than a few layers' scores, and where there is a second
core most of that work costs little time: on two, a prompt of 512 tokens took 1.32 times as long followed as not when
its scores were read after the step, and takes 1.15 times as long so.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future

from engine.device import mx

import numpy as np

from engine.captured import BY_LAYER_BYTES, Captured

Work = Callable[[], None]
"""What is done beside with one layer's scores."""


def run_by_layer(captured: list[Captured], outputs: list[mx.array], beside: Executor) -> Future[None]:
    """Evaluate the attention of captured rows in order of layers, then submit the step's other outputs.

    Args:
        captured: those whose attention is to be evaluated so; it is let go of as it is read.
        outputs: what else the step is to leave.
        beside: what runs the reading.

    Returns:
        Done when all attention has been read; raises what reading raised.
    """
    queue = _Queue()
    reading = beside.submit(queue.work)
    try:
        ahead: list[tuple[Captured, int, mx.array]] = []
        for turn in _turns(captured):
            mx.async_eval([array for _, _, array in turn] + _sinks(turn))
            _hand_over(ahead, queue)
            ahead = turn
        mx.async_eval(outputs)
        _hand_over(ahead, queue)
    finally:  # Ctrl-C in a notebook, too: the other thread must not wait for ever
        queue.close()
    return reading


def _turns(captured: list[Captured]) -> Iterator[list[tuple[Captured, int, mx.array]]]:
    """For each layer, the rows that captured it: the index in the row's layers, and the scores."""
    for layer in sorted({layer for row in captured for layer in row.layers}):
        yield [
            (row, row.layers.index(layer), row.arrays["attention"].pop(0)) for row in captured if layer in row.layers
        ]


def _sinks(turn: list[tuple[Captured, int, mx.array]]) -> list[mx.array]:
    """What scores become probabilities with, too: the other thread can evaluate nothing."""
    softmaxes = [row.scores.softmaxes[index] for row, index, _ in turn if row.scores is not None]
    return [softmax.sinks for softmax in softmaxes if softmax.sinks is not None]


def _hand_over(turn: list[tuple[Captured, int, mx.array]], queue: _Queue) -> None:
    for row, index, array in turn:
        queue.put(_reading(row, index, np.asarray(array)), array.nbytes)


def _reading(row: Captured, index: int, scores: np.ndarray) -> Work:
    return lambda: row.read(index, scores)


class _Queue:
    """Work for another thread, no more of it waiting than `BY_LAYER_BYTES` of scores: then the giver waits."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Work, int]] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, work: Work, size: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or self._bytes + size <= BY_LAYER_BYTES or self._closed)
            self._waiting.append((work, size))
            self._bytes += size
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will be put."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def work(self) -> None:
        """Do what is put, until the queue is closed and empty."""
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._closed)
                    if not self._waiting:
                        return
                    work, size = self._waiting.popleft()
                    self._bytes -= size
                    self._changed.notify_all()
                work()
        finally:
            self.close()
