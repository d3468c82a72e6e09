"""Arrays of a GPU for the C library with memory="cuda", as _arrays.py takes those of the host. DLPack or
__cuda_array_interface__ describe them; CUDA itself is not called here.

Work on a GPU is ordered by streams. An array that comes by DLPack is told the worker's stream, and its library lets that
stream wait for what it has put into its own. An array whose __cuda_array_interface__ names a stream must name the
worker's."""

from __future__ import annotations

import ctypes as C
from typing import Any

import numpy as np

from psclient._arrays import ON_HOST, Vector, check_size

# DLPack's device types: CUDA, and managed memory of CUDA.
_ON_GPU = {2, 13}
_FLOAT, _UNORDERED = 2, -1  # DLPack's code of a type, and its "do not order"
_LEGACY = 1  # cudaStreamLegacy: the default stream under a handle of its own


class _DLTensor(C.Structure):
    """DLTensor of dlpack.h, with which both of its managed tensors begin."""

    _fields_ = [
        ("data", C.c_void_p),
        ("device_type", C.c_int32),
        ("device_id", C.c_int32),
        ("n_dims", C.c_int32),
        ("code", C.c_uint8),
        ("bits", C.c_uint8),
        ("lanes", C.c_uint16),
        ("shape", C.POINTER(C.c_int64)),
        ("strides", C.POINTER(C.c_int64)),
        ("byte_offset", C.c_uint64),
    ]


_pointer_in = C.PYFUNCTYPE(C.c_void_p, C.py_object, C.c_char_p)(("PyCapsule_GetPointer", C.pythonapi))


def handle_of(stream: Any) -> int | None:
    """The cudaStream_t of a stream: a handle, or an object of PyTorch, of CuPy, or with __cuda_stream__. 1 is the default
    stream, 2 that of each thread, as in DLPack. None: none."""
    if stream is None:
        return None
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        handle = (protocol() if callable(protocol) else protocol)[1]
    elif hasattr(stream, "cuda_stream"):  # PyTorch
        handle = stream.cuda_stream
    elif hasattr(stream, "ptr"):  # CuPy
        handle = stream.ptr
    elif isinstance(stream, int) and not isinstance(stream, bool):
        if stream <= 0:
            raise ValueError(f"stream is {stream}; allowed are handles, and 1 for the default stream")
        return stream
    else:
        raise TypeError(
            f"stream is a {type(stream).__name__}; allowed are handles, PyTorch's and CuPy's streams, others with __cuda_stream__"
        )
    return int(handle) or _LEGACY


class _Described:
    """What an array says of itself. strides are in floats; None: contiguous."""

    def __init__(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, keep: object, device: int | None = None
    ) -> None:
        self.address, self.shape, self.strides = address, shape, strides
        self.keep, self.device = keep, device
        self.read_only = False

    @property
    def size(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def contiguous(self) -> bool:
        wanted = 1
        for d, stride in zip(reversed(self.shape), reversed(self.strides or ())):
            if d != 1 and stride != wanted:
                return False
            wanted *= d
        return True


def _check_type(name: str, dtype: str) -> None:
    if dtype != "float32":
        raise TypeError(f"{name} has type {dtype}; psd needs float32: convert it with the library that made it")


def _by_dlpack(name: str, array: Any, stream: int | None) -> _Described:
    kind, device = (int(n) for n in array.__dlpack_device__())
    if kind in ON_HOST:
        raise _of_the_host(name)
    if kind not in _ON_GPU:
        raise TypeError(f"{name} is on a device (DLPack type {kind}); allowed with memory 'cuda' is memory of an NVIDIA GPU")
    try:
        capsule = array.__dlpack__(stream=_UNORDERED if stream is None else stream)
        pointer = _pointer_in(capsule, b"dltensor")
    except (BufferError, RuntimeError, TypeError, ValueError) as why:
        raise TypeError(f"{name}: {why}") from why
    tensor = C.cast(pointer, C.POINTER(_DLTensor)).contents
    kinds = {0: "int", 1: "uint", _FLOAT: "float", 4: "bfloat", 5: "complex", 6: "bool"}
    lanes = f" x {tensor.lanes}" if tensor.lanes != 1 else ""
    _check_type(name, f"{kinds.get(tensor.code, f'DLPack code {tensor.code}, ')}{tensor.bits}{lanes}")
    shape = tuple(tensor.shape[: tensor.n_dims])
    strides = tuple(tensor.strides[: tensor.n_dims]) if tensor.strides else None
    # The capsule is not consumed: it keeps the array's memory, and frees what it describes when it goes.
    return _Described((tensor.data or 0) + tensor.byte_offset, shape, strides, (capsule, array), device)


def _by_interface(name: str, array: Any, stream: int | None) -> _Described:
    try:
        said = array.__cuda_array_interface__
    except RuntimeError as why:
        raise TypeError(f"{name}: {why}") from why
    dtype = np.dtype(said["typestr"])
    _check_type(name, dtype.name if dtype.isnative else f"{dtype.name} of the other byte order")
    if said.get("mask") is not None:
        raise TypeError(f"{name} has a mask, which psd does not know: pass an array without")
    theirs = said.get("stream")
    if theirs is not None and theirs != stream:
        mine = "none" if stream is None else f"{stream:#x}"
        raise ValueError(
            f"{name} is ordered by stream {theirs:#x}, and the worker's stream is {mine}: open the worker with stream={theirs:#x}"
        )
    strides = said.get("strides")
    if strides is not None:
        if any(s % 4 for s in strides):
            raise _not_contiguous(name, tuple(said["shape"]))
        strides = tuple(s // 4 for s in strides)
    address, read_only = said["data"]
    out = _Described(int(address or 0), tuple(said["shape"]), strides, array)
    out.read_only = bool(read_only)
    return out


def _of_the_host(name: str) -> TypeError:
    return TypeError(
        f"{name} is in memory of the host, and the worker's memory is 'cuda': pass an array of the GPU; Worker.write fills one"
    )


def _not_contiguous(name: str, shape: tuple[int, ...]) -> ValueError:
    return ValueError(f"{name}, of shape {shape}, is not contiguous: pass a contiguous copy")


class Gpu:
    """Takes arrays in memory of one GPU. stream: the worker's, or None."""

    def __init__(self, stream: int | None) -> None:
        self.stream = stream
        self._device: int | None = None  # that begin's x is on

    def starts_at(self, x: Vector) -> None:
        """x is the vector of begin: all others must be on its GPU."""
        self._device = x.device

    def take(self, name: str, array: Any, n_floats: int | None, *, writes: bool) -> Vector:
        """TypeError and ValueError name the array and a remedy. DLPack does not tell whether an array is read-only."""
        if isinstance(array, Vector):
            check_size(name, (array.size,), array.size, n_floats)
            return array
        if isinstance(array, np.ndarray):
            raise _of_the_host(name)
        if hasattr(array, "__dlpack__"):
            said = _by_dlpack(name, array, self.stream)
        elif hasattr(array, "__cuda_array_interface__"):
            said = _by_interface(name, array, self.stream)
        else:
            raise TypeError(
                f"{name} is a {type(array).__name__}; allowed with memory 'cuda' are arrays of the GPU with __dlpack__ or "
                "__cuda_array_interface__, such as PyTorch's tensors"
            )
        return self._check(name, said, n_floats, writes)

    def _check(self, name: str, said: _Described, n_floats: int | None, writes: bool) -> Vector:
        if not said.contiguous:
            raise _not_contiguous(name, said.shape)
        check_size(name, said.shape, said.size, n_floats)
        if said.address % 4:
            raise ValueError(f"{name} is not aligned to 4 bytes: pass a copy")
        if writes and said.read_only:
            raise ValueError(f"{name} is read-only, and the call writes it: pass a copy")
        if None not in (said.device, self._device) and said.device != self._device:
            raise ValueError(f"{name} is on GPU {said.device}, and x of begin on GPU {self._device}: a worker has one")
        return Vector(said.address, said.size, said.keep, fixed=False, device=said.device)
