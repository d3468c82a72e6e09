"""Worker: one session with psd, the interface of client/psclient.h."""

from __future__ import annotations

import atexit
import contextlib
import ctypes as C
import dataclasses
import itertools
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

import numpy as np

from psclient import _native
from psclient._arrays import Floats, Host, take
from psclient._device import Gpu, handle_of
from psclient._errors import Drained, InvalidArgument, Unsupported, error_of
from psclient._manifest import Role, Tensor, Tensors, manifest_of, tensors_of
from psclient._memory import array_at
from psclient._ring import Ring
from psclient._signals import Asker, Catcher
from psclient._values import fill, text, whole

_lib = _native.lib
_log = logging.getLogger("psclient")
_T = TypeVar("_T")

_OK, _DRAINED, _EINVAL, _INTERRUPTED = 0, 1, -1, -14
_ALL = 0  # PSC_ALL
_AT_EXTRA_BYTES, _CHECKSUM_BYTES = 56, 8  # client/save_format.h


@dataclasses.dataclass(frozen=True)
class Local:
    """A method without a server, for one worker or one clique: struct psc_local."""

    method: str
    learning_rate: float = 0.05
    momentum: float = 0.9
    averaging_rate: float = 0.001
    weight_decay: float = 0.0
    schedule: str = "constant"
    gamma: float = 0.1
    step_steps: int = 10000
    warmup_steps: int = 0
    pipeline_warmup: int = 0
    codec: str = "raw"
    total_steps: int = 10000
    floor: float = 0.0
    milestones: tuple[int, ...] = ()
    bucket_floats: int = 0
    pipeline: int = 2


@dataclasses.dataclass(frozen=True)
class Info:
    """struct psc_info: seconds, bytes of payload and counts are of this handle."""

    n_floats: int
    center_version: int
    exchanges: int
    retries: int
    reconnects: int
    bytes_sent: int
    bytes_received: int
    exchange_seconds: float
    update_seconds: float
    learning_rate: float
    alpha: float
    period: int
    generation: int
    method: str
    optimizer: str
    transport: str
    save_version: int
    averaging: str


class Transfer:
    """A transfer in the background. The library uses its arrays until wait() returns; the worker holds references to them
    until then."""

    def __init__(self, worker: Worker, ticket: int) -> None:
        self._worker, self._ticket = worker, ticket

    def wait(self) -> None:
        """Waits for the end of the transfer; raises like the call without _start."""
        self._worker._wait(self._ticket)


def _named(array: str, tensor: str | None) -> str:
    """The array's name in messages."""
    return array if tensor is None else f"{array} of '{tensor}'"


_open_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


def _close_all() -> None:
    """Closes all workers at exit: the library's threads must not call into a finalized interpreter."""
    for worker in list(_open_workers):
        with contextlib.suppress(InvalidArgument):  # another thread is still using it
            worker.close()


atexit.register(_close_all)

OwnStep = Callable[[int, int, float], None]


class Worker:
    """A worker, or an observer, of a job of psd.

    server: "tcp://HOST:PORT", "ipc://PATH" or "@FILE", an endpoint file of psd. rank: the requested rank; -1: the lowest
    free one. name: shown by psctl workers. observer: only pulls the center. timeout_ms: how long a call waits without
    hearing from the server, including reconnects. key_file, server_key, transport: as in client/psclient.h. log: called with
    log messages in a thread of the library; None: the logger "psclient". own_step(x, g, learning_rate): makes the local step
    if the job's optimizer is external; x and g are addresses. net, data, steps: the names of the net and the data, and the
    planned steps of this worker; for display only. samples_per_epoch: for a method with pipeline_warmup_epochs. local: a
    method without a server, replaces server. clique: the Ring that this worker is a member of.

    memory: the memory of all arrays that the calls get: "host", or "cuda", the GPU that is the thread's current device.
    Arrays of the GPU are those with __dlpack__ or __cuda_array_interface__. stream: the CUDA stream in whose order calls read
    and write them: a handle (1: the default stream), or a stream of PyTorch or CuPy. What was put into it before a call is
    done before, and what is put there later comes after. None: arrays must be complete when a call begins, and are when it
    returns. Unsupported says why there is no memory "cuda". DeviceError is a failure of the GPU: the worker can only be
    closed then.

    Connects at once; raises psclient.Error. A `with` statement closes it. A worker may be used by one thread at a time, in
    the process that created it: in a child of fork every call fails. Ctrl-C during a wait for psd closes it and raises
    KeyboardInterrupt; a wait for members of a clique ends first, as those of Ring do."""

    def __init__(
        self,
        server: str | None = None,
        *,
        rank: int = -1,
        name: str | None = None,
        observer: bool = False,
        timeout_ms: int = 60000,
        retry_ms: int = 2000,
        heartbeat_ms: int = 1000,
        key_file: str | os.PathLike[str] | None = None,
        server_key: str | None = None,
        transport: str | None = None,
        log: Callable[[str], object] | None = None,
        own_step: OwnStep | None = None,
        net: str | None = None,
        data: str | None = None,
        steps: int = 0,
        samples_per_epoch: int = 0,
        local: Local | None = None,
        clique: Ring | None = None,
        memory: str | None = None,
        stream: Any = None,
    ) -> None:
        self._handle = C.c_void_p()
        self._lock = threading.Lock()
        self._user = ("", "")
        self._sizes: dict[str | None, int] = {}
        self._draining = self._kept_out = False
        self._asker = Asker()
        self._step_raised: BaseException | None = None
        self._catcher: Catcher | None = None  # of own_step
        self._x: object = None
        self._g: object = None
        self._x_at = self._g_at = 0
        self._stepped: tuple[object, ...] = ()  # the objects at these addresses
        self._before: tuple[object, ...] = ()  # theirs before a call that has not returned, or was refused
        self._started: dict[int, tuple[object, ...]] = {}  # by ticket
        self._unnamed = itertools.count(1)  # transfers that have no ticket yet are its negative numbers
        self._clique = clique  # used by the library until close
        self._stream = stream  # likewise
        handle = handle_of(stream)
        self._memory: Host | Gpu = Gpu(handle) if memory == "cuda" else Host()
        self._why_closed = "it is closed"
        options = _native.psc_options()
        _lib.psc_options_init_sized(C.byref(options), C.sizeof(options), C.sizeof(_native.psc_tensor))
        fill(options, server=server, name=name, kind=int(observer), rank=rank, key_file=key_file, server_key=server_key)
        fill(options, timeout_ms=timeout_ms, retry_ms=retry_ms, heartbeat_ms=heartbeat_ms, transport=transport)
        fill(options, net=net, data=data, steps=steps, samples_per_epoch=samples_per_epoch, memory=memory, stream=handle)
        options.go_on = self._asker.callback
        self._callbacks: list[object] = [self._asker.callback]  # used by the library until close
        self._listen(options, log)
        if own_step is not None:
            options.own_step = self._step_of(own_step)
        if local is not None:
            if not isinstance(local, Local):
                raise TypeError(f"local is a {type(local).__name__}; allowed is a Local")
            options.local = C.pointer(self._local_of(local))
        if clique is not None:
            if not isinstance(clique, Ring):
                raise TypeError(f"clique is a {type(clique).__name__}; allowed is a Ring")
            if not clique._handle:
                raise InvalidArgument("clique is a Ring that is closed: open another")
            options.clique = clique._handle
        _open_workers.add(self)
        if clique is not None:
            clique._serve(self)
        with self._use("Worker"):
            rc = _lib.psc_open(C.byref(options), C.byref(self._handle))
            if rc != _OK:
                why = self._error(rc)
                self._end("it was never opened")
                raise why

    def _listen(self, options: _native.psc_options, log: Callable[[str], object] | None) -> None:
        listener = log if log is not None else _log.info

        def say(_arg: int | None, sentence: bytes) -> None:
            listener(sentence.decode(errors="replace"))

        options.log = _native.LOG(say)
        self._callbacks.append(options.log)

    def _local_of(self, local: Local) -> _native.psc_local:
        out = _native.psc_local()
        _lib.psc_local_init(C.byref(out), C.sizeof(out), None)
        values = {field.name: getattr(local, field.name) for field in dataclasses.fields(local)}
        milestones = [whole("a milestone", value) for value in values.pop("milestones")]
        if len(milestones) > len(out.milestones):
            raise InvalidArgument(f"milestones has {len(milestones)} values; allowed are at most {len(out.milestones)}")
        out.milestones[: len(milestones)] = milestones
        fill(out, n_milestones=len(milestones), **values)
        return out

    def _step_of(self, own_step: OwnStep) -> C._FuncPointer:
        """Wraps own_step; step() raises its exceptions."""

        def run(_arg: int | None, x: int, g: int, learning_rate: float) -> None:
            try:
                own_step(x, g, learning_rate)
            except BaseException as raised:
                self._step_raised = raised

        def tell(raised: BaseException) -> None:
            self._step_raised = raised

        self._catcher = Catcher(run.__code__, tell)
        callback = _native.OWN_STEP(run)
        self._callbacks.append(callback)
        return callback

    # -- Common to all calls --

    def _use(self, call: str) -> threading.Lock:
        """Returns a context manager that reserves the worker for the call."""
        me = threading.current_thread().name
        if self._lock.locked():
            user, thread = self._user
            raise InvalidArgument(
                f"{call}: thread '{thread}' is in {user} of this worker"
                + ("; it cannot be called from there" if thread == me else f", and this is '{me}'")
                + ": a worker can be used by one thread at a time"
            )
        if not self._handle and call != "Worker":
            raise InvalidArgument(f"{call}: {self._why_closed}; open another Worker")
        self._user = (call, me)
        return self._lock

    def _error(self, rc: int) -> BaseException:
        sentence = (_lib.psc_error(self._handle) or b"").decode(errors="replace") if self._handle else ""
        if rc == _INTERRUPTED and self._asker.raised is not None:
            raised, self._asker.raised = self._asker.raised, None
            self._end(f"{self._user[0]} was interrupted by {type(raised).__name__}")
            return raised
        return error_of(rc, sentence)

    def _check(self, rc: int) -> None:
        """Raises for a failed result. PSC_OK and a drain do not raise. An exception of a signal handler is always raised."""
        if self._asker.raised is not None:
            raise self._error(_INTERRUPTED)
        if rc == _DRAINED:
            self._draining = True
        elif rc != _OK:
            raise self._error(rc)

    def _check_effect(self, rc: int) -> None:
        """_check of a call that the caller makes by hand: Drained is raised, too, where psd ended before it took effect."""
        if self._kept_out:
            raise Drained(f"{self._user[0]}: the server was draining when this worker began, and let nobody in any more")
        self._check(rc)
        if rc == _DRAINED and _lib.psc_error(self._handle):
            raise self._error(rc)

    def _end(self, why: str) -> None:
        handle, self._handle = self._handle, C.c_void_p()
        self._why_closed = why
        self._x = self._g = None
        _lib.psc_close(handle)
        self._started, self._stepped, self._before = {}, (), ()
        _open_workers.discard(self)
        if self._clique is not None:
            self._clique._serve_no_more(self)

    def _size_of(self, call: str, tensor: str | None) -> int:
        if tensor not in self._sizes:
            raise InvalidArgument(
                f"{call}: call begin first" if not self._sizes else f"{call}: no tensor of the manifest is named '{tensor}'"
            )
        return self._sizes[tensor]

    # -- Joining --

    def alloc(self, n_floats: int) -> Floats:
        """Returns [n_floats] zeros in memory shared with a psd on this machine: elastic exchanges update it in place.
        Call it before begin, which may get the array as x; at most 3 times. The array is valid after close, until its last
        view is gone. It is not mapped in a child of fork: access there is a SIGSEGV. Unsupported with memory "cuda", whose
        arrays come from the library that computes with them."""
        if isinstance(self._memory, Gpu):
            raise Unsupported(
                "Worker.alloc: with memory 'cuda' any array of the GPU serves, and none ends with the worker: allocate it with "
                "the library that computes, such as torch.zeros(n, device='cuda')"
            )
        address, memory = C.c_void_p(), C.c_void_p()
        n_floats = whole("n_floats", n_floats, 1, 2**48)
        with self._use("Worker.alloc"):
            self._check(_lib.psc_alloc(self._handle, n_floats, C.byref(address)))
            self._check(_lib.psc_keep(self._handle, address, C.byref(memory)))
        assert address.value is not None
        return array_at(address.value, n_floats, memory)

    def begin(self, tensors: Tensors, x: Any) -> None:
        """Joins the job with a model of these tensors: a mapping of names to shapes, or a sequence of Tensor.

        x: [all floats]. In: the initial point, which should depend only on the seed. Out: the point to start from, the
        center unless this worker is the first. Raises ManifestMismatch, NotFinite and others. A server that is draining lets
        nobody in: x is as before, `draining` is True, and explicit calls are Drained."""
        listed = tensors_of(tensors)
        sizes: dict[str | None, int] = {t.name: t.size for t in listed}
        sizes[None] = sum(t.size for t in listed)
        array = self._memory.take("x", x, sizes[None], writes=True)
        with self._use("Worker.begin"):
            self._hold(x, array)
            rc = self._held(_lib.psc_begin(self._handle, manifest_of(listed), len(listed), array.address))
            self._check(rc)
            self._sizes, self._kept_out = sizes, rc == _DRAINED
            self._memory.starts_at(array)

    def read(self, x: Any, out: Any = None) -> Floats:
        """Copies x, an array in the worker's memory, to `out`, an array of the host of as many values (None: a new one), behind
        all work that was put into `stream`, and returns it."""
        array = self._memory.take("x", x, None, writes=False)
        host = take("out", np.empty(array.size, np.float32) if out is None else out, array.size, writes=True)
        with self._use("Worker.read"):
            self._check(_lib.psc_read(self._handle, host.ctypes.data, array.address, array.size))
        return host

    def write(self, x: Any, values: Any) -> None:
        """Copies `values`, an array of the host, to x, an array in the worker's memory, likewise."""
        array = self._memory.take("x", x, None, writes=True)
        host = take("values", values, array.size, writes=False)
        with self._use("Worker.write"):
            self._check(_lib.psc_write(self._handle, array.address, host.ctypes.data, array.size))

    # -- Training --

    def step(self, x: Any, g: Any, n_samples: int = 1) -> None:
        """Makes one training step of the method: the optimizer's step, and an exchange if one is due.

        x: [all floats], updated; g: [all floats], the gradient at x, averaged over n_samples samples. A drain does not
        raise: see steps. NotFinite: the values to send are not finite; pull restarts from the center."""
        n_samples = whole("n_samples", n_samples)
        with self._use("Worker.step"):
            if x is not self._x or g is not self._g:
                self._bind("Worker.step", x, g)
            if self._catcher is None:
                rc = _lib.psc_step(self._handle, self._x_at, self._g_at, n_samples)
            else:
                with self._catcher:
                    rc = _lib.psc_step(self._handle, self._x_at, self._g_at, n_samples)
            if self._before:
                self._held(rc)
            if rc != _OK or self._step_raised is not None or self._asker.raised is not None:
                self._after_step(rc)

    def step_begin(self, x: Any, g: Any, n_samples: int = 1) -> bool:
        """Begins a step whose gradient is reported in parts: step(x, g, n) equals step_begin(x, g, n), ready(0, all
        floats), step_end(), with the same bits, under every method. Where a clique sums gradients, the sum of a part
        travels while the rest is computed. Until step_end the library reads x and g, and the worker holds references.

        False: the server is draining and no step has begun."""
        n_samples = whole("n_samples", n_samples)
        with self._use("Worker.step_begin"):
            self._bind("Worker.step_begin", x, g)
            rc = self._held(_lib.psc_step_begin(self._handle, self._x_at, self._g_at, n_samples))
            self._check(rc)
        return bool(rc == _OK)

    def ready(self, first: int, count: int) -> None:
        """Floats [first, first + count) of g, and of x for buffers, are final. Each float once, in any order; the last
        layers first is the order in which sums can start."""
        first, count = whole("first", first), whole("count", count)
        with self._use("Worker.ready"):
            self._check(_lib.psc_ready(self._handle, first, count))

    def step_end(self) -> None:
        """Makes the step that step_begin began; raises as step does. InvalidArgument names floats that were not reported:
        the step stays begun."""
        with self._use("Worker.step_end"):
            with self._catcher or contextlib.nullcontext():
                rc = _lib.psc_step_end(self._handle)
            self._after_step(rc)

    def _bind(self, call: str, x: Any, g: Any) -> None:
        n = self._size_of(call, None)
        x_taken, g_taken = self._memory.take("x", x, n, writes=True), self._memory.take("g", g, n, writes=False)
        self._hold(x, g, x_taken, g_taken)
        self._x_at, self._g_at = x_taken.address, g_taken.address
        self._x, self._g = (x, g) if x_taken.fixed and g_taken.fixed else (None, None)

    def _hold(self, *objects: object) -> None:
        """The library may use these from now on, and the ones before until the call has returned."""
        self._before += self._stepped
        self._stepped = objects
        self._x = self._g = None

    def _held(self, rc: int) -> int:
        """rc, the call's result. One that is refused leaves the library with the objects before."""
        if rc != _EINVAL:
            self._before = ()
        return rc

    def _after_step(self, rc: int) -> None:
        raised, self._step_raised = self._step_raised, None
        if raised is not None:
            raise raised
        self._check(rc)

    @property
    def draining(self) -> bool:
        """Whether the server is draining: the training loop should stop."""
        return self._draining

    @overload
    def steps(self) -> Iterator[int]: ...
    @overload
    def steps(self, of: Iterable[_T]) -> Iterator[_T]: ...

    def steps(self, of: Iterable[Any] | None = None) -> Iterator[Any]:
        """Iterates over the items of `of`, such as a DataLoader, or over t = clock, clock + 1, … without `of`, until the
        server drains."""
        for item in of if of is not None else itertools.count(self.clock):
            if self._draining:
                return
            yield item

    def point(self, x: Any) -> None:
        """Copies the worker's own point to x [all floats]: the point from which Nesterov's momentum looks ahead."""
        array = self._memory.take("x", x, self._size_of("Worker.point", None), writes=True)
        with self._use("Worker.point"):
            self._check(_lib.psc_point(self._handle, array.address))

    # -- Transfers by hand: `tensor` is a name of the manifest, or None for the whole vector. A drain does not raise, but for
    # Drained where psd ended before the call took effect --

    def _move(self, call: str, tensor: str | None, *arrays: tuple[str, Any, bool], n: int | None = None) -> None:
        size = self._size_of(f"Worker.{call}", tensor)
        taken = [self._memory.take(_named(name, tensor), array, size, writes=writes) for name, array, writes in arrays]
        numbers = () if n is None else (whole("n_samples", n),)
        with self._use(f"Worker.{call}"):
            function = getattr(_lib, f"psc_{call}")
            self._check_effect(function(self._handle, text("tensor", tensor), *(a.address for a in taken), *numbers))

    def _start(self, call: str, tensor: str | None, *arrays: tuple[str, Any, bool], n: int | None = None) -> Transfer:
        size = self._size_of(f"Worker.{call}_start", tensor)
        taken = [self._memory.take(_named(name, tensor), array, size, writes=writes) for name, array, writes in arrays]
        numbers = () if n is None else (whole("n_samples", n),)
        ticket = C.c_uint64()
        with self._use(f"Worker.{call}_start"):
            function = getattr(_lib, f"psc_{call}_start")
            unnamed = -next(self._unnamed)
            self._started[unnamed] = (*taken, *(given for _, given, _ in arrays))
            rc = function(self._handle, text("tensor", tensor), *(a.address for a in taken), *numbers, C.byref(ticket))
            if rc < 0 and rc != _INTERRUPTED:
                del self._started[unnamed]
            self._check_effect(rc)
            self._started[ticket.value] = self._started.pop(unnamed)
            self._started.pop(ticket.value - _native.MAX_STARTED, None)  # the library has completed that one
        return Transfer(self, ticket.value)

    def init(self, tensor: str | None, x: Any) -> None:
        """Sets the center's values to x; the rule's state is unchanged."""
        self._move("init", tensor, ("x", x, False))

    def pull(self, tensor: str | None, x: Any) -> None:
        """Copies the center's values into x. If the whole vector is pulled into the array of step, the next step restarts
        from there, without momentum."""
        self._move("pull", tensor, ("x", x, True))

    def pull_average(self, tensor: str | None, z: Any) -> None:
        """Copies the values of the center's average into z. InvalidArgument if the job has no average."""
        self._move("pull_average", tensor, ("z", z, True))

    def push(self, tensor: str | None, message: Any, n_samples: int = 1) -> None:
        """Updates the center by the job's rule. message: x under elastic, the gradient over n_samples samples under sgd,
        the change under add."""
        self._move("push", tensor, ("message", message, False), n=n_samples)

    def pushpull(self, tensor: str | None, message: Any, answer: Any, n_samples: int = 1) -> None:
        """push, and copies the rule's answer to `answer`: the center before the update under elastic, after it under sgd.
        The arrays must not overlap."""
        self._move("pushpull", tensor, ("message", message, False), ("answer", answer, True), n=n_samples)

    def init_start(self, tensor: str | None, x: Any) -> Transfer:
        """init in the background."""
        return self._start("init", tensor, ("x", x, False))

    def pull_start(self, tensor: str | None, x: Any) -> Transfer:
        """pull in the background."""
        return self._start("pull", tensor, ("x", x, True))

    def pull_average_start(self, tensor: str | None, z: Any) -> Transfer:
        """pull_average in the background."""
        return self._start("pull_average", tensor, ("z", z, True))

    def push_start(self, tensor: str | None, message: Any, n_samples: int = 1) -> Transfer:
        """push in the background."""
        return self._start("push", tensor, ("message", message, False), n=n_samples)

    def pushpull_start(self, tensor: str | None, message: Any, answer: Any, n_samples: int = 1) -> Transfer:
        """pushpull in the background."""
        return self._start("pushpull", tensor, ("message", message, False), ("answer", answer, True), n=n_samples)

    def _wait(self, ticket: int) -> None:
        with self._use("Worker.wait"):
            rc = _lib.psc_wait(self._handle, ticket)
            if rc in (_EINVAL, _INTERRUPTED):  # transfers go on
                pass
            elif ticket == _ALL:
                self._started.clear()
            else:
                self._started.pop(ticket, None)
            self._check_effect(rc)

    def wait(self) -> None:
        """Waits for all started transfers, including those of the last step. Drained: psd ended before one took effect."""
        self._wait(_ALL)

    # -- The job's method --

    def set_method(self, values: Mapping[str, object]) -> None:
        """Changes the job's method while it runs, as psctl set does: keys of the method, such as {"rule": "adam",
        "learning_rate": 0.01}. Only for rank 0; the other workers follow at their next call. Refused says why not, and
        nothing has changed."""
        lines = ""
        for key, value in values.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            if "\n" in key + shown:
                raise InvalidArgument(f"Worker.set_method: {key!r}, {shown!r}: allowed is one line for each key")
            lines += f"{key}={shown}\n"
        with self._use("Worker.set_method"):
            self._check_effect(_lib.psc_set_method(self._handle, text("values", lines)))

    def workers_barrier(self) -> None:
        """Returns when all workers of the job have called it; afterwards all use the current method."""
        with self._use("Worker.workers_barrier"):
            self._check_effect(_lib.psc_workers_barrier(self._handle))

    # -- Saving and reporting --

    def save(self, path: str | os.PathLike[str], x: Any, extra: bytes = b"") -> None:
        """Saves the worker's part of the job: x as last returned by step, the library's state, t, and `extra`, the
        caller's bytes. Replaces the file atomically."""
        array = self._memory.take("x", x, self._size_of("Worker.save", None), writes=False)
        if not isinstance(extra, bytes):
            raise TypeError(f"extra is a {type(extra).__name__}; allowed is bytes")
        with self._use("Worker.save"):
            self._check(_lib.psc_save(self._handle, text("path", path), array.address, extra, len(extra)))

    def load(self, path: str | os.PathLike[str], x: Any) -> bytes:
        """Restores a saved state, after begin and before the first step; returns `extra`."""
        array = self._memory.take("x", x, self._size_of("Worker.load", None), writes=True)
        room = C.create_string_buffer(max(os.path.getsize(path), 1))
        n = C.c_size_t()
        with self._use("Worker.load"):
            self._hold(x, array)
            rc = _lib.psc_load(self._handle, text("path", path), array.address, room, len(room), C.byref(n))
            if rc == _OK:
                self._before = ()
            self._check(rc)
        return room.raw[: n.value]

    def _saved_extra(self, path: str | os.PathLike[str]) -> bytes:
        """The `extra` of a saved state (client/save_format.h). Only load verifies the checksum."""
        n_bytes = os.path.getsize(path)
        self.saved_version(path)  # DamagedState if it is none, or shorter than its head says
        with open(path, "rb") as file:
            file.seek(_AT_EXTRA_BYTES)
            n_extra = int.from_bytes(file.read(8), "little")
            file.seek(n_bytes - _CHECKSUM_BYTES - n_extra)
            return file.read(n_extra)

    def saved_version(self, path: str | os.PathLike[str]) -> int:
        """The version of the center that a saved state belongs to."""
        version = C.c_uint64()
        with self._use("Worker.saved_version"):
            self._check(_lib.psc_saved_version(self._handle, text("path", path), C.byref(version)))
        return version.value

    def report(
        self,
        *,
        loss: float = float("nan"),
        accuracy: float = float("nan"),
        samples_per_second: float = float("nan"),
        test_loss: float = float("nan"),
        test_accuracy: float = float("nan"),
        center_version: int = 0,
        vector: Any = None,
    ) -> None:
        """Reports metrics to the server, for psctl workers and /metrics; does not wait. NaN: unknown.

        Only observers may report test_loss and test_accuracy, after begin; others get InvalidArgument. vector, [all floats]:
        the vector that the observer evaluated. If the server keeps the best center, the call waits until it has received
        this one."""
        given = None if vector is None else take("vector", vector, self._size_of("Worker.report", None), writes=False)
        metrics = _native.psc_metrics(C.sizeof(_native.psc_metrics))
        fill(metrics, loss=loss, accuracy=accuracy, samples_per_second=samples_per_second)
        fill(metrics, test_loss=test_loss, test_accuracy=test_accuracy, center_version=center_version)
        metrics.vector = None if given is None else given.ctypes.data
        with self._use("Worker.report"):
            self._check(_lib.psc_report(self._handle, C.byref(metrics)))

    @property
    def info(self) -> Info:
        """The method's current values and this handle's counts."""
        out = _native.psc_info(C.sizeof(_native.psc_info))
        with self._use("Worker.info"):
            self._check(_lib.psc_info(self._handle, C.byref(out)))
        values: dict[str, Any] = {f.name: getattr(out, f.name) for f in dataclasses.fields(Info)}
        for name in ("method", "optimizer", "transport", "averaging"):
            values[name] = values[name].decode()
        return Info(**values)

    def _number(self, field: str) -> int:
        """One number of psc_info."""
        out = _native.psc_info(C.sizeof(_native.psc_info))
        with self._use(f"Worker.{field}"):
            self._check(_lib.psc_info(self._handle, C.byref(out)))
        return int(getattr(out, field))

    @property
    def save_version(self) -> int:
        """The center's version when the server last asked the workers to save; 0: never."""
        return self._number("save_version")

    @property
    def early(self) -> bool:
        """Whether parts of a gradient may leave before step_end, under the job's present method: a clique sums them, or the
        server applies them chunk by chunk. False: step_begin is allowed, and gains nothing."""
        return self._number("early") != 0

    @property
    def rank(self) -> int:
        """-1 for observers, and in a child of fork."""
        return int(_lib.psc_rank(self._handle)) if self._handle else -1

    @property
    def size(self) -> int:
        """Workers in the job, as last reported by the server."""
        return int(_lib.psc_size(self._handle)) if self._handle else 0

    @property
    def clock(self) -> int:
        """t: steps this worker has taken. One that joins late without a state begins at the furthest worker's t."""
        return int(_lib.psc_clock(self._handle)) if self._handle else 0

    @property
    def closed(self) -> bool:
        return not self._handle

    # -- Leaving --

    def close(self) -> None:
        """Leaves the job. Unfinished transfers are aborted. May be called twice."""
        if self._handle:
            with self._use("Worker.close"):
                self._end("it is closed")

    def _end_with_ring(self) -> None:
        """The clique is about to be closed."""
        if self._handle:
            with self._use("Ring.close"):
                self._end("its Ring was closed")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
            with contextlib.suppress(Exception):
                self.close()

    def __repr__(self) -> str:
        return f"<psclient.Worker {'closed' if self.closed else f'rank {self.rank}'}>"


__all__ = ["Drained", "Info", "Local", "Role", "Tensor", "Transfer", "Worker"]
