"""CUDA's stand-in of tests/cuda for Python: libpsclient-cuda.so of that folder is the module of client/memory/cuda with the
stand-in in it, so that a PyTorch that has brought CUDA's own runtime does not meet it."""

from __future__ import annotations

import contextlib
import ctypes as C
import sys
from typing import Any

import numpy as np

LIBRARY = "libpsclient-cuda.so"  # in LD_LIBRARY_PATH, where libpsclient finds it, too
UP, DOWN = 1, 2  # cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost
NON_BLOCKING = 1


class Runtime:
    """Its calls, by their names in CUDA."""

    def __init__(self) -> None:
        self._lib = C.CDLL(LIBRARY)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._lib, name)

        def call(*arguments: Any) -> None:
            result = function(*arguments)
            if result != 0:
                raise OSError(f"{name}: {result}")

        return call

    def malloc(self, n_floats: int) -> int:
        """Memory of the device: its numbers are NaN, and the host cannot reach them."""
        out = C.c_void_p()
        self.cudaMalloc(C.byref(out), C.c_size_t(4 * n_floats))
        assert out.value is not None
        return out.value

    def pinned(self, n_floats: int) -> Any:
        out = C.c_void_p()
        self.cudaHostAlloc(C.byref(out), C.c_size_t(4 * n_floats), 0)
        assert out.value is not None
        return np.ctypeslib.as_array((C.c_float * n_floats).from_address(out.value))

    def stream(self) -> int:
        out = C.c_void_p()
        self.cudaStreamCreateWithFlags(C.byref(out), NON_BLOCKING)
        assert out.value is not None
        return out.value

    def copy(self, to: int, values: int, n_floats: int, kind: int, stream: int) -> None:
        self.cudaMemcpyAsync(C.c_void_p(to), C.c_void_p(values), C.c_size_t(4 * n_floats), kind, C.c_void_p(stream))

    def wait(self, stream: int) -> None:
        self.cudaStreamSynchronize(C.c_void_p(stream))


def standin_gpu(lost: tuple[str, str] | None = None) -> Any:
    """A Gpu for psclient's DevicePlace. Imports PyTorch."""
    import torch

    from psclient import _place

    class Stream:
        def __init__(self, gpu: StandInGpu) -> None:
            self.gpu, self.handle = gpu, gpu.runtime.stream()

        def wait_stream(self, _current: Current) -> None:
            """What the current stream has made reaches the device in the order of this one. A call has begun, and until the
            current stream waits for this one it sees nothing; after DevicePlace.order it goes on."""
            if self.gpu.loses("stream"):
                return
            for vector, address in self.gpu.vectors:
                values = self.gpu.runtime.pinned(vector.numel())
                values[:] = vector.numpy()
                self.gpu.runtime.copy(address, values.ctypes.data, vector.numel(), UP, self.handle)
                if sys._getframe(1).f_code.co_name != "order":
                    vector.fill_(float("nan"))

    class Current:
        def __init__(self, gpu: StandInGpu) -> None:
            self.gpu = gpu

        def wait_stream(self, stream: Stream) -> None:
            if self.gpu.loses("current"):
                return
            for vector, address in self.gpu.vectors:
                values = self.gpu.runtime.pinned(vector.numel())
                self.gpu.runtime.copy(values.ctypes.data, address, vector.numel(), DOWN, stream.handle)
                self.gpu.runtime.wait(stream.handle)
                vector.copy_(torch.from_numpy(values))

    class StandInGpu(_place.Gpu):
        """The current stream is the program itself, which computes at once, with tensors of the CPU. The device has the same
        vectors; they are copied to it and from it where a stream waits for another, and not else."""

        def __init__(self) -> None:
            super().__init__(torch.device("cpu"))
            self.runtime = Runtime()
            self.vectors: list[tuple[torch.Tensor, int]] = []
            self._current = Current(self)
            self.was_lost = False

        def loses(self, who: str) -> bool:
            """As LateGpu."""
            found = (sys._getframe(2).f_code.co_name, who) == lost
            self.was_lost |= found
            return found

        def scope(self) -> contextlib.AbstractContextManager[Any]:
            return contextlib.nullcontext()

        def zeros(self, n: int) -> torch.Tensor:
            vector = torch.zeros(n)
            self.vectors.append((vector, self.runtime.malloc(n)))
            return vector

        def address(self, tensor: torch.Tensor) -> int:
            return next(address for vector, address in self.vectors if vector is tensor)

        def at(self, address: int, n: int, stream: Any) -> torch.Tensor:
            values = self.runtime.pinned(n)
            self.runtime.copy(values.ctypes.data, address, n, DOWN, stream.handle)
            self.runtime.wait(stream.handle)
            return torch.from_numpy(values)

        def stream(self) -> Stream:
            return Stream(self)

        def current(self) -> Current:
            return self._current

        def handle(self, stream: Any) -> int:
            return int(stream.handle)

        def generator_state(self) -> torch.Tensor | None:
            return None

    return StandInGpu()
