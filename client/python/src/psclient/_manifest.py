"""The named tensors of a job's vector."""

from __future__ import annotations

import ctypes as C
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any, Union

from psclient import _native
from psclient._errors import InvalidArgument
from psclient._values import text, whole


class Role(enum.IntEnum):
    """How training treats a tensor."""

    PARAM = 0
    """Trained by the method."""
    BUFFER = 1
    """Statistics, such as those of batch normalisation: averaged over the workers, not changed by steps."""
    FROZEN = 2
    """Never changed."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One named tensor of the flat vector. Tensors are packed in the given order.

    name: unique, 1 to 127 bytes of UTF-8. shape: 1 to 8 sizes. decays: the method's weight decay applies."""

    name: str
    shape: tuple[int, ...]
    role: Role = Role.PARAM
    decays: bool = True

    @property
    def size(self) -> int:
        """Number of floats."""
        n = 1
        for d in self.shape:
            n *= d
        return n


Tensors = Union[Sequence[Tensor], Mapping[str, "tuple[int, ...]"]]


def _checked(tensor: Any) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"tensors has a {type(tensor).__name__}; allowed are a mapping of names to shapes, and a sequence of Tensor"
        )
    if not isinstance(tensor.name, str):
        raise TypeError(f"the name of a tensor is a {type(tensor.name).__name__}, {tensor.name!r}; allowed is a str")
    try:
        sizes = list(tensor.shape)
    except TypeError:
        raise TypeError(
            f"the shape of tensor '{tensor.name}' is a {type(tensor.shape).__name__}; allowed is a tuple, such as (10, 784)"
        ) from None
    if not 1 <= len(sizes) <= _native.MAX_DIMS:
        raise InvalidArgument(f"tensor '{tensor.name}' has {len(sizes)} dimensions; allowed are 1 to {_native.MAX_DIMS}")
    shape = tuple(whole(f"a size of tensor '{tensor.name}'", size, 1, 2**40) for size in sizes)
    return dataclasses.replace(tensor, shape=shape)


def tensors_of(given: Tensors) -> list[Tensor]:
    """TypeError and InvalidArgument name a tensor that the library could not be told."""
    if isinstance(given, Mapping):
        return [_checked(Tensor(name, shape)) for name, shape in given.items()]
    return [_checked(tensor) for tensor in given]


def manifest_of(tensors: list[Tensor]) -> C.Array[_native.psc_tensor]:
    out = (_native.psc_tensor * max(len(tensors), 1))()
    offset = 0
    for i, t in enumerate(tensors):
        shape = (C.c_uint64 * _native.MAX_DIMS)(*t.shape)
        name, role = text("the name of a tensor", t.name), whole(f"the role of '{t.name}'", t.role, 0, 2)
        out[i] = _native.psc_tensor(name, offset, shape, len(t.shape), role, int(not t.decays))
        offset += t.size
    return out
