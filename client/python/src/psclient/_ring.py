"""Ring: processes that sum their vectors, client/psclique.h."""

from __future__ import annotations

import contextlib
import ctypes as C
import os
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psclient import _native
from psclient._arrays import take
from psclient._errors import InvalidArgument, error_of
from psclient._values import fill, text, whole

if TYPE_CHECKING:
    from psclient._worker import Worker

_lib = _native.lib


class Shrunk(NamedTuple):
    """What is left of a Ring that has lost members. Ranks are the new ones."""

    step: int  # the greatest step that a member gave
    source: int  # the lowest rank that has it
    behind: int  # how many members have a smaller one
    lost: int  # how many members the Ring had more before


class Ring:
    """A clique of `members` processes, which make the same calls in the same order with the same counts.

    rendezvous: where the members find each other: "file:PATH", "psd:URL" or "psd:@FILE". rank: the requested rank; -1: the
    lowest free one. name: distinguishes cliques with the same rendezvous. CliqueError names a member whose process is silent
    for timeout_ms, or that keeps the others waiting in a call for step_ms; Ctrl-C takes effect when the call has returned.
    algorithm: "ring", "tree", or "auto", by size. on_loss: after CliqueError every call fails ("end"), or the members that are
    left may call shrink ("shrink"); a Worker whose clique it is without a server then does that itself. With a server, psd's
    clique.on_loss decides."""

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
        on_loss: str = "end",
        key_file: str | os.PathLike[str] | None = None,
        server_key: str | None = None,
    ) -> None:
        options = _native.psc_ring_options()
        _lib.psc_ring_options_init(C.byref(options), C.sizeof(options))
        fill(options, members=members, rank=rank, links=links, timeout_ms=timeout_ms, step_ms=step_ms, rendezvous=rendezvous)
        fill(options, name=name, listen=listen, algorithm=algorithm, on_loss=on_loss, key_file=key_file, server_key=server_key)
        self._handle = C.c_void_p()
        self._lock = threading.Lock()
        self._workers: weakref.WeakSet[Worker] = weakref.WeakSet()  # whose clique it is
        self._in_use: set[int] = set()  # the ids of those: a collection may empty the WeakSet before it comes to them
        self._dropped = False  # it is closed with the last of those
        try:
            self._check(_lib.psc_ring_open(C.byref(options), C.byref(self._handle)))
        except BaseException:
            self.close()
            raise

    def _check(self, rc: int) -> None:
        if rc < 0:
            raise error_of(rc, (_lib.psc_clique_error(self._handle) or b"").decode() if self._handle else "")

    @contextlib.contextmanager
    def _use(self, call: str) -> Iterator[None]:
        """Reserves the ring for the call."""
        if not self._handle:
            raise InvalidArgument(f"{call}: it is closed; open another Ring")
        if not self._lock.acquire(blocking=False):
            raise InvalidArgument(f"{call}: another thread is in a call of this ring: it can be used by one thread at a time")
        try:
            yield
        finally:
            self._lock.release()

    @property
    def rank(self) -> int:
        """-1 once it is closed."""
        return int(_lib.psc_clique_rank(self._handle)) if self._handle else -1

    @property
    def size(self) -> int:
        """0 once it is closed."""
        return int(_lib.psc_clique_size(self._handle)) if self._handle else 0

    def allreduce(self, x: Any, codec: str | None = None) -> None:
        """Replaces x, float32 and contiguous, with the sum over all members, with the same bits at each."""
        array = take("x", x, None, writes=True)
        with self._use("Ring.allreduce"):
            self._check(_lib.psc_allreduce(self._handle, array.ctypes.data, array.size, text("codec", codec or None)))

    def broadcast(self, x: Any, root: int = 0) -> None:
        """Replaces x with the x of member `root`."""
        array = take("x", x, None, writes=True)
        with self._use("Ring.broadcast"):
            self._check(_lib.psc_broadcast(self._handle, array.ctypes.data, array.nbytes, whole("root", root, 0, 1023)))

    def _gather(self, number: int) -> list[int]:
        """The numbers of all members, by rank."""
        out = []
        for root in range(self.size):
            theirs = np.array([number], np.int64)
            self.broadcast(theirs.view(np.float32), root)
            out.append(int(theirs[0]))
        return out

    def barrier(self) -> None:
        """Returns when all members have called it."""
        with self._use("Ring.barrier"):
            self._check(_lib.psc_barrier(self._handle))

    def shrink(self, step: int, timeout_ms: int = 60000) -> Shrunk:
        """Forms the Ring anew of the members that are left, after a call has failed with CliqueError. All of them call it.
        step: how many steps this member has applied, by the caller's count. Waits for at most timeout_ms for members whose
        process runs and which have not called it. Afterwards rank and size are new, and calls work again. If `behind` is
        not 0, all broadcast their state from `source` and go on at `step`; otherwise all go on at the step that they gave.
        CliqueError: too few are left to decide, or the others have gone on without this member; InvalidArgument: no call
        has failed, or on_loss is "end". See psc_clique_shrink in psclique.h."""
        out = _native.psc_shrunk()
        with self._use("Ring.shrink"):
            most = 2**32 - 1  # of a uint32_t; the library says what is allowed
            arguments = (whole("step", step, 0, 2**63), whole("timeout_ms", timeout_ms, 0, most))
            self._check(_lib.psc_clique_shrink(self._handle, *arguments, C.byref(out)))
        return Shrunk(out.step, out.source, out.behind, out.lost)

    def _serve(self, worker: Worker) -> None:
        """The worker, which keeps a reference to this ring, is about to use it."""
        self._workers.add(worker)
        self._in_use.add(id(worker))

    def _serve_no_more(self, worker: Worker) -> None:
        self._workers.discard(worker)
        self._in_use.discard(id(worker))
        self._close_if_dropped()

    def _close_if_dropped(self) -> None:
        if self._dropped and not self._in_use:
            with contextlib.suppress(Exception):
                self.close()

    def close(self) -> None:
        """Closes the workers whose clique it is. Calls of the other members fail. May be called twice; InvalidArgument while
        another thread is in a call of the ring or of such a worker."""
        if not self._handle:
            return
        with self._use("Ring.close"):
            for worker in list(self._workers):
                worker._end_with_ring()
            handle, self._handle = self._handle, C.c_void_p()
            _lib.psc_clique_close(handle)

    def __enter__(self) -> Ring:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_handle", None):
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
        self._dropped = True
        self._close_if_dropped()

    def __repr__(self) -> str:
        return f"<psclient.Ring {f'rank {self.rank} of {self.size}' if self._handle else 'closed'}>"
