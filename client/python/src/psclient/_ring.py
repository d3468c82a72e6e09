"""Ring: processes that sum their vectors, client/psclique.h."""

from __future__ import annotations

import ctypes as C
import os
from typing import Any

from psclient import _native
from psclient._arrays import take
from psclient._errors import error_of

_lib = _native.lib


class Ring:
    """A clique of `members` processes, which make the same calls in the same order with the same counts.

    rendezvous: where the members find each other: "file:PATH", "psd:URL" or "psd:@FILE". rank: the requested rank; -1: the
    lowest free one. name: distinguishes cliques with the same rendezvous. CliqueError names a member whose process is silent
    for timeout_ms, or that keeps the others waiting in a call for step_ms. algorithm: "ring", "tree", or
    "auto", by size."""

    def __init__(
        self,
        rendezvous: str,
        members: int,
        *,
        rank: int = -1,
        name: str = "0",
        listen: str = "tcp://127.0.0.1",
        links: int = 1,
        timeout_ms: int = 60000,
        step_ms: int = 3600000,
        algorithm: str = "ring",
        key_file: str | os.PathLike[str] | None = None,
        server_key: str | None = None,
    ) -> None:
        options = _native.psc_ring_options()
        _lib.psc_ring_options_init(C.byref(options), C.sizeof(options))
        options.members, options.rank, options.links = members, rank, links
        options.rendezvous, options.name, options.listen = rendezvous.encode(), name.encode(), listen.encode()
        options.timeout_ms, options.step_ms = timeout_ms, step_ms
        options.algorithm = algorithm.encode()
        options.key_file = None if key_file is None else os.fspath(key_file).encode()
        options.server_key = None if server_key is None else server_key.encode()
        self._handle = C.c_void_p()
        try:
            self._check(_lib.psc_ring_open(C.byref(options), C.byref(self._handle)))
        except Exception:
            self.close()
            raise

    def _check(self, rc: int) -> None:
        if rc < 0:
            raise error_of(rc, (_lib.psc_clique_error(self._handle) or b"").decode() if self._handle else "")

    @property
    def rank(self) -> int:
        return int(_lib.psc_clique_rank(self._handle))

    @property
    def size(self) -> int:
        return int(_lib.psc_clique_size(self._handle))

    def allreduce(self, x: Any, codec: str | None = None) -> None:
        """Replaces x, float32 and contiguous, with the sum over all members, with the same bits at each."""
        array = take("x", x, None, writes=True)
        self._check(_lib.psc_allreduce(self._handle, array.ctypes.data, array.size, codec.encode() if codec else None))

    def broadcast(self, x: Any, root: int = 0) -> None:
        """Replaces x with the x of member `root`."""
        array = take("x", x, None, writes=True)
        self._check(_lib.psc_broadcast(self._handle, array.ctypes.data, array.nbytes, root))

    def barrier(self) -> None:
        """Returns when all members have called it."""
        self._check(_lib.psc_barrier(self._handle))

    def close(self) -> None:
        """Aborts calls in progress; calls of the other members fail. May be called twice."""
        handle, self._handle = self._handle, C.c_void_p()
        _lib.psc_clique_close(handle)

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()
