"""Where the vectors of a Trainer lie, and how the work on them is ordered.

A Trainer has two vectors: x, of which the model's tensors are views, and g, of which their gradients are. PyTorch computes on
them, and calls of the Worker read and write them. There are three places:

    HostPlace    memory of the host: both use the same memory, in turn
    DevicePlace  memory of a GPU: both compute there (memory="cuda" of Worker)
    PinnedPlace  x and g are on a GPU, and the Worker has copies in pinned memory of the host

A GPU does what streams hold, later than it is called. The program's work is in the stream that is current when it calls, and
a place of a GPU has a stream of its own. Every place keeps these promises:

- what the current stream holds when a call begins is done before the call reads x or g,
- what a call has written to x is there for all that the current stream holds afterwards,
- the same for the optimizer's step, which the Worker calls in the middle of a call: it is the current stream's work.

`Gpu` is what the places need of PyTorch; tests put another in its place, whose streams are later than any GPU's."""

from __future__ import annotations

import collections
import contextlib
import ctypes as C
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from psclient._arrays import Vector
from psclient._model import Entry, kind_of
from psclient._worker import Worker


class _Memory:
    """Floats of a GPU that are another's, for PyTorch."""

    def __init__(self, address: int, n: int) -> None:
        self.__cuda_array_interface__ = {"shape": (n,), "typestr": "<f4", "data": (address, False), "version": 2}


class Gpu:
    """One GPU, by torch.cuda."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Within it, the GPU is the thread's; afterwards the one before is."""
        return torch.cuda.device(self.device)

    def zeros(self, n: int) -> torch.Tensor:
        return torch.zeros(n, device=self.device)

    def address(self, tensor: torch.Tensor) -> int:
        return tensor.data_ptr()

    def at(self, address: int, n: int, stream: Any) -> torch.Tensor:
        """The n floats at an address, which are complete in the order of the stream, and of the current one."""
        return torch.as_tensor(_Memory(address, n), device=self.device)

    def pinned(self, n: int) -> torch.Tensor:
        """Memory of the host that copies reach while the host goes on."""
        return torch.zeros(n, device="cpu", pin_memory=True)

    def stream(self) -> Any:
        return torch.cuda.Stream(self.device)

    def current(self) -> Any:
        return torch.cuda.current_stream(self.device)

    def handle(self, stream: Any) -> int:
        return int(stream.cuda_stream)

    def copy(self, to: torch.Tensor, values: torch.Tensor, stream: Any) -> None:
        """Puts a copy into the stream."""
        with torch.cuda.stream(stream):
            to.copy_(values, non_blocking=True)

    def generator_state(self) -> torch.Tensor | None:
        return torch.cuda.get_rng_state(self.device)

    def set_generator_state(self, state: torch.Tensor) -> None:
        torch.cuda.set_rng_state(state, self.device)


class Reports:
    """Tells the worker which parts of the gradient are final."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def tell(self, first: int, count: int) -> None:
        self.worker.ready(first, count)

    def finish(self) -> None:
        """Afterwards the worker knows of all that was told."""


class HostPlace:
    """Memory of the host, which a psd on this machine can map."""

    memory = "host"
    x: torch.Tensor
    g: torch.Tensor
    x_array: Any  # what calls of the Worker get
    g_array: Any

    def options(self) -> dict[str, Any]:
        """Of the Worker."""
        return {}

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Around the Worker's construction."""
        return contextlib.nullcontext()

    def make(self, worker: Worker, n: int) -> None:
        self.x_array = worker.alloc(n)
        self.x, self.g = torch.from_numpy(self.x_array), torch.zeros(n, device="cpu")
        self.g_array = self.g.numpy()

    def call(self, *, x: bool = True, g: bool = False, back: bool = True) -> contextlib.AbstractContextManager[Any]:
        """Around a call of the worker. x, g: the call reads this vector. back: it may write x."""
        return _NOTHING

    def own_step(self, g: int) -> contextlib.AbstractContextManager[bool]:
        """Around the optimizer's step within a call. g: the address of the gradient, as the library says it. True: it is
        another one than the worker's, and has been copied to this place's g."""
        return self._own_step(g)

    @contextlib.contextmanager
    def _own_step(self, g: int) -> Iterator[bool]:
        yield self._take_mean(g, self.g_array)

    def _take_mean(self, g: int, mine: Any) -> bool:
        """In a clique g is the members' mean, elsewhere in memory."""
        is_mean = g != int(mine.ctypes.data)
        if is_mean:
            mine[:] = np.ctypeslib.as_array((C.c_float * len(mine)).from_address(g))
        return is_mean

    def reports(self, worker: Worker) -> Reports:
        return Reports(worker)

    def generator_state(self) -> torch.Tensor | None:
        """Of the GPU's random numbers; None: there is no GPU."""
        return None

    def set_generator_state(self, state: torch.Tensor) -> None:
        pass


_NOTHING = contextlib.nullcontext()


class _GpuPlace(HostPlace):
    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._stream = gpu.stream()

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        return self._gpu.scope()

    def generator_state(self) -> torch.Tensor | None:
        return self._gpu.generator_state()

    def set_generator_state(self, state: torch.Tensor) -> None:
        self._gpu.set_generator_state(state)


class DevicePlace(_GpuPlace):
    """Memory of a GPU, which libpsclient uses itself, in the order of the place's stream.

    PyTorch allocates the vectors: those of psc_alloc would end with the worker, and the model lives on."""

    memory = "cuda"

    def options(self) -> dict[str, Any]:
        return {"memory": "cuda", "stream": self._gpu.handle(self._stream)}

    def make(self, worker: Worker, n: int) -> None:
        self.x, self.g = self._gpu.zeros(n), self._gpu.zeros(n)
        self.x_array = Vector(self._gpu.address(self.x), n, self.x)
        self.g_array = Vector(self._gpu.address(self.g), n, self.g)

    def call(self, *, x: bool = True, g: bool = False, back: bool = True) -> contextlib.AbstractContextManager[Any]:
        return self._call()

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        with self._gpu.scope():
            current = self._gpu.current()
            self._stream.wait_stream(current)
            try:
                yield
            finally:
                current.wait_stream(self._stream)

    @contextlib.contextmanager
    def _own_step(self, g: int) -> Iterator[bool]:
        current = self._gpu.current()
        current.wait_stream(self._stream)
        is_mean = g != self.g_array.address
        if is_mean:
            self.g.copy_(self._gpu.at(g, self.g.numel(), self._stream))
        try:
            yield is_mean
        finally:
            self._stream.wait_stream(current)

    def reports(self, worker: Worker) -> Reports:
        return _OrderedReports(worker, self)

    def order(self) -> None:
        """What the current stream holds comes before what libpsclient does from now on."""
        self._stream.wait_stream(self._gpu.current())


class _OrderedReports(Reports):
    """The worker reads parts in the order of the place's stream."""

    def __init__(self, worker: Worker, place: DevicePlace) -> None:
        super().__init__(worker)
        self._place = place

    def tell(self, first: int, count: int) -> None:
        self._place.order()
        super().tell(first, count)


class PinnedPlace(_GpuPlace):
    """x and g are on a GPU, and pinned memory of the host has copies, on which libpsclient works. They travel in the place's
    stream; the host waits for those that it reads."""

    memory = "pinned"

    def make(self, worker: Worker, n: int) -> None:
        self.x, self.g = self._gpu.zeros(n), self._gpu.zeros(n)
        self._host_x, self._host_g = self._gpu.pinned(n), self._gpu.pinned(n)
        self.x_array, self.g_array = self._host_x.numpy(), self._host_g.numpy()

    def _down(self, *, x: bool, g: bool) -> None:
        """Copies what the current stream has made to the host, and waits for it."""
        self._stream.wait_stream(self._gpu.current())
        if x:
            self._gpu.copy(self._host_x, self.x, self._stream)
        if g:
            self._gpu.copy(self._host_g, self.g, self._stream)
        self._stream.record_event().synchronize()

    def _up(self, *, x: bool, g: bool) -> None:
        """Copies to the GPU, behind all that the current stream does with the old values, and before what it does next. The
        host writes the copies again only in a later call, which begins with a _down, and so waits for these."""
        current = self._gpu.current()
        self._stream.wait_stream(current)
        if x:
            self._gpu.copy(self.x, self._host_x, self._stream)
        if g:
            self._gpu.copy(self.g, self._host_g, self._stream)
        current.wait_stream(self._stream)

    def call(self, *, x: bool = True, g: bool = False, back: bool = True) -> contextlib.AbstractContextManager[Any]:
        return self._call(x, g, back)

    @contextlib.contextmanager
    def _call(self, x: bool, g: bool, back: bool) -> Iterator[None]:
        with self._gpu.scope():
            if x or g:
                self._down(x=x, g=g)
            try:
                yield
            finally:
                if back:
                    self._up(x=True, g=False)

    @contextlib.contextmanager
    def _own_step(self, g: int) -> Iterator[bool]:
        is_mean = self._take_mean(g, self.g_array)
        self._up(x=True, g=is_mean)
        try:
            yield is_mean
        finally:
            self._down(x=True, g=False)

    def send(self, first: int, count: int) -> Any:
        """Starts to copy a part of g, as the current stream makes it, to the host. Returns an event."""
        part = slice(first, first + count)
        self._stream.wait_stream(self._gpu.current())
        self._gpu.copy(self._host_g[part], self.g[part], self._stream)
        return self._stream.record_event()

    def reports(self, worker: Worker) -> Reports:
        return _LateReports(worker, self)


class _LateReports(Reports):
    """Parts are copied to the host as backward makes them, and reported once they are there. PyTorch runs the hooks of a
    GPU's parameters in a thread of its own, while the caller's waits in backward."""

    def __init__(self, worker: Worker, place: PinnedPlace) -> None:
        super().__init__(worker)
        self._place = place
        self._coming: collections.deque[tuple[Any, int, int]] = collections.deque()

    def tell(self, first: int, count: int) -> None:
        self._coming.append((self._place.send(first, count), first, count))
        while self._coming and self._coming[0][0].query():
            self._report()

    def _report(self) -> None:
        _, first, count = self._coming.popleft()
        self.worker.ready(first, count)

    def finish(self) -> None:
        while self._coming:
            self._coming[0][0].synchronize()
            self._report()


def device_of(entries: list[Entry]) -> torch.device:
    """The device of all tensors. TypeError names one that is on another."""
    first = entries[0]
    device = first.tensor.device
    for entry in entries:
        if entry.tensor.device != device:
            raise TypeError(
                f"{kind_of(entry)} '{entry.name}' is on {entry.tensor.device}, and {kind_of(first)} '{first.name}' on {device}: "
                f"a worker's model is on one device, so call model.to('{device}')"
            )
    return device


def places_of(device: torch.device, memory: str | None) -> list[HostPlace]:
    """The places for a model on this device, the best first. memory: one of them by name, or None."""
    if device.type == "cpu":
        allowed: dict[str, Callable[[], HostPlace]] = {"host": HostPlace}
    else:
        gpu = Gpu(device)
        allowed = {"cuda": lambda: DevicePlace(gpu), "pinned": lambda: PinnedPlace(gpu)}
    if memory is None:
        return [make() for make in allowed.values()]
    if memory not in allowed:
        raise ValueError(f"memory is '{memory}', and the model is on {device}; allowed there: {' and '.join(allowed)}")
    return [allowed[memory]()]


def through_the_host(gpu: Gpu, stream: Any, values: torch.Tensor, work: Callable[[torch.Tensor], object]) -> None:
    """Lets `work` change a copy of a GPU's values in pinned memory of the host; the values are then those of the copy. The
    copies travel in `stream`, in order with the current one."""
    with gpu.scope():
        current = gpu.current()
        host = gpu.pinned(values.numel())
        flat = values.view(-1)
        stream.wait_stream(current)
        gpu.copy(host, flat, stream)
        stream.record_event().synchronize()
        work(host)
        gpu.copy(flat, host, stream)
        current.wait_stream(stream)
