"""A GPU whose streams are as late as CUDA allows, for tests of psclient's places.

Memory of the GPU is that of a CPU tensor, and the current stream is the program itself, which computes at once. Any other
stream keeps what is put into it until something waits for it:

- A copy runs when the host waits for a later event of its stream, or when the current stream waits for its stream.
- Of the GPU's memory a copy reads what the current stream had made when the copy's stream was last told to wait for it.
- Between its start and its end, a copy's target is NaN.

`lost` makes the waits of one place of _place.py do nothing: (function, who waits), where "host", "stream" or "current"
waits."""

from __future__ import annotations

import collections
import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from psclient import _place

PATIENCE = 3  # queries of an event until what it stands for has happened


class LateGpu(_place.Gpu):
    def __init__(self, lost: tuple[str, str] | None = None) -> None:
        super().__init__(torch.device("cpu"))
        self.lost = lost
        self.was_lost = False
        self.vectors: list[torch.Tensor] = []
        self._current = Current(self)

    def loses(self, who: str) -> bool:
        """Called by a wait: whether its caller is the one to be lost."""
        found = (sys._getframe(2).f_code.co_name, who) == self.lost
        self.was_lost |= found
        return found

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def zeros(self, n: int) -> torch.Tensor:
        self.vectors.append(torch.zeros(n))
        return self.vectors[-1]

    def pinned(self, n: int) -> torch.Tensor:
        return torch.full((n,), float("nan"))

    def stream(self) -> LateStream:
        return LateStream(self)

    def current(self) -> Current:
        return self._current

    def copy(self, to: torch.Tensor, values: torch.Tensor, stream: Any) -> None:
        down, up = self.find(values), self.find(to)
        assert (down is None) != (up is None), "one end of a copy is the GPU's"
        to.fill_(float("nan"))

        def run() -> None:
            if down is not None:
                vector, part = down
                to.copy_(stream.seen(vector)[part])
            elif up is not None:
                vector, part = up
                to.copy_(values)
                stream.seen(vector)[part] = values

        stream.put(run)

    def find(self, tensor: torch.Tensor) -> tuple[int, slice] | None:
        """The vector of the GPU that the tensor is a part of."""
        for i, vector in enumerate(self.vectors):
            first = (tensor.data_ptr() - vector.data_ptr()) // 4
            if 0 <= first < vector.numel():
                return i, slice(first, first + tensor.numel())
        return None

    def generator_state(self) -> torch.Tensor | None:
        return None


class Current:
    def __init__(self, gpu: LateGpu) -> None:
        self._gpu = gpu

    def wait_stream(self, stream: LateStream) -> None:
        if not self._gpu.loses("current"):
            stream.run()


class LateStream:
    def __init__(self, gpu: LateGpu) -> None:
        self._gpu = gpu
        self._work: collections.deque[Callable[[], None]] = collections.deque()
        self._put = self._done = 0
        self._seen: dict[int, torch.Tensor] = {}

    def seen(self, vector: int) -> torch.Tensor:
        return self._seen.setdefault(vector, torch.full_like(self._gpu.vectors[vector], float("nan")))

    def put(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        self._put += 1

    def run(self, n: int | None = None) -> None:
        """The first n pieces of work; all."""
        while self._work and (n is None or self._done < n):
            self._work.popleft()()
            self._done += 1

    def wait_stream(self, _current: Current) -> None:
        if self._gpu.loses("stream"):
            return
        now = {i: vector.detach().clone() for i, vector in enumerate(self._gpu.vectors)}
        self.put(lambda: self._seen.update(now))

    def record_event(self) -> Event:
        return Event(self._gpu, self, self._put)


class Event:
    def __init__(self, gpu: LateGpu, stream: LateStream, n: int) -> None:
        self._gpu, self._stream, self._n = gpu, stream, n
        self._queries = 0

    def query(self) -> bool:
        self._queries += 1
        if self._queries <= PATIENCE:
            return self._gpu.loses("host")
        self._stream.run(self._n)
        return True

    def synchronize(self) -> None:
        if not self._gpu.loses("host"):
            self._stream.run(self._n)
