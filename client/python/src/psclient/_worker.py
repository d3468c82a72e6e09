"""Worker: one session with a psd, the C interface of client/psclient.h."""

from __future__ import annotations

import atexit
import contextlib
import ctypes as C
import dataclasses
import enum
import itertools
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, Union, overload

from psclient import _native
from psclient._arrays import Floats, take
from psclient._errors import Drained, InvalidArgument, error_of
from psclient._memory import array_at
from psclient._ring import Ring
from psclient._signals import Asker, Catcher

_lib = _native.lib
_log = logging.getLogger("psclient")
_T = TypeVar("_T")

_OK, _DRAINED, _INTERRUPTED = 0, 1, -14
_ALL = 0  # PSC_ALL


class Role(enum.IntEnum):
    """What becomes of a tensor."""

    PARAM = 0
    """Moved by the method."""
    BUFFER = 1
    """Statistics, such as batch normalisation's: averaged over the workers, never stepped."""
    FROZEN = 2
    """Never moved."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One named tensor of the flat vector. They lie in it one after the other, in the order they are given in.

    name: unique, 1 to 127 bytes of UTF-8. shape: 1 to 8 sizes. decays: the method's weight decay applies."""

    name: str
    shape: tuple[int, ...]
    role: Role = Role.PARAM
    decays: bool = True

    @property
    def size(self) -> int:
        """Floats."""
        n = 1
        for d in self.shape:
            n *= d
        return n


Tensors = Union[Sequence[Tensor], Mapping[str, "tuple[int, ...]"]]


@dataclasses.dataclass(frozen=True)
class Local:
    """A method that needs no server, of one worker or one clique: struct psc_local."""

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


@dataclasses.dataclass(frozen=True)
class Info:
    """struct psc_info: seconds, bytes of payload and counts are this handle's."""

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
    """Values that move in the background. Their arrays are the library's until wait() has returned; the worker holds
    them till then, whoever else lets go of them."""

    def __init__(self, worker: Worker, ticket: int) -> None:
        self._worker, self._ticket = worker, ticket

    def wait(self) -> None:
        """Waits until the transfer has ended; raises as the call without _start does."""
        self._worker._wait(self._ticket)


def _text(value: str | os.PathLike[str] | None) -> bytes | None:
    return None if value is None else os.fspath(value).encode()


def _tensors_of(given: Tensors) -> list[Tensor]:
    if isinstance(given, Mapping):
        return [Tensor(name, tuple(shape)) for name, shape in given.items()]
    return list(given)


def _manifest_of(tensors: list[Tensor]) -> C.Array[_native.psc_tensor]:
    out = (_native.psc_tensor * max(len(tensors), 1))()
    offset = 0
    for i, t in enumerate(tensors):
        if not 1 <= len(t.shape) <= _native.MAX_DIMS:
            raise InvalidArgument(f"tensor '{t.name}' has {len(t.shape)} dimensions; allowed are 1 to {_native.MAX_DIMS}")
        shape = (C.c_uint64 * _native.MAX_DIMS)(*t.shape)
        out[i] = _native.psc_tensor(t.name.encode(), offset, shape, len(t.shape), int(t.role), int(not t.decays))
        offset += t.size
    return out


_open_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


def _close_all() -> None:
    """The library's threads must not call into a Python that ends."""
    for worker in list(_open_workers):
        with contextlib.suppress(InvalidArgument):  # a thread is in it still
            worker.close()


atexit.register(_close_all)

OwnStep = Callable[[int, int, float], None]


class Worker:
    """A worker, or an observer, of a psd's job.

    server: "tcp://HOST:PORT", "ipc://PATH" or "@FILE", an endpoint file that psd wrote. rank: wanted, -1: the
    lowest that is free. name: shown by psctl workers. observer: only pulls the center. timeout_ms: the longest
    silence of the server that a call bears, reconnecting included. key_file, server_key, transport: as in
    client/psclient.h. log: takes a sentence worth logging, in a thread of the library's; None: the logger
    "psclient". own_step(x, g, learning_rate): this worker's step where the job's optimizer is external; x and g
    are addresses. net, data: names of what is trained, and steps: how many this worker means to take, for people
    who look at the job. local: instead of a server. clique: the Ring that this worker is a member of.

    Connects at once; raises psclient.Error. A `with` statement closes it. It is used from one thread at a time,
    and in the process that made it: a child of fork is refused every call. A Ctrl-C in a wait closes it and
    raises KeyboardInterrupt."""

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
        local: Local | None = None,
        clique: Ring | None = None,
    ) -> None:
        self._handle = C.c_void_p()
        self._lock = threading.Lock()
        self._user = ("", "")
        self._sizes: dict[str | None, int] = {}
        self._draining = False
        self._asker = Asker()
        self._step_raised: BaseException | None = None
        self._catcher: Catcher | None = None  # of an own step
        self._x: object = None
        self._g: object = None
        self._x_at = self._g_at = 0
        self._stepped: tuple[object, ...] = ()  # what lies there
        self._started: dict[int, tuple[object, ...]] = {}  # by ticket
        self._clique = clique  # the library's until close
        self._why_closed = "it is closed"
        options = _native.psc_options()
        _lib.psc_options_init_sized(C.byref(options), C.sizeof(options), C.sizeof(_native.psc_tensor))
        options.server, options.name = _text(server), _text(name)
        options.kind, options.rank = int(observer), rank
        options.timeout_ms, options.retry_ms, options.heartbeat_ms = timeout_ms, retry_ms, heartbeat_ms
        options.key_file, options.server_key = _text(key_file), _text(server_key)
        options.transport = _text(transport)
        options.net, options.data, options.steps = _text(net), _text(data), steps
        options.go_on = self._asker.callback
        self._callbacks: list[object] = [self._asker.callback]  # the library's until close
        self._listen(options, log)
        if own_step is not None:
            options.own_step = self._step_of(own_step)
        if local is not None:
            options.local = C.pointer(self._local_of(local))
        if clique is not None:
            options.clique = clique._handle
        _open_workers.add(self)
        with self._use("Worker"):
            rc = _lib.psc_open(C.byref(options), C.byref(self._handle))
            if rc != _OK:
                why = self._error(rc)
                self._end("it never opened")
                raise why

    def _listen(self, options: _native.psc_options, log: Callable[[str], object] | None) -> None:
        listener = log if log is not None else _log.info

        def say(_arg: int | None, sentence: bytes) -> None:
            listener(sentence.decode(errors="replace"))

        options.log = _native.LOG(say)
        self._callbacks.append(options.log)

    def _local_of(self, local: Local) -> _native.psc_local:
        out = _native.psc_local()
        _lib.psc_local_init(C.byref(out), C.sizeof(out), local.method.encode())
        for field in dataclasses.fields(local):
            value = getattr(local, field.name)
            if field.name == "milestones":
                out.n_milestones = len(value)
                out.milestones[: len(value)] = value
                continue
            setattr(out, field.name, value.encode() if isinstance(value, str) else value)
        return out

    def _step_of(self, own_step: OwnStep) -> C._FuncPointer:
        """own_step, whose exception is step()'s."""

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

    # -- What every call does --

    def _use(self, call: str) -> threading.Lock:
        """`with` what this returns, the worker is the call's."""
        me = threading.current_thread().name
        if self._lock.locked():
            user, thread = self._user
            raise InvalidArgument(
                f"{call}: thread '{thread}' is in {user} of this worker"
                + ("; it cannot be called from there" if thread == me else f", and this is '{me}'")
                + ": a worker is used from one thread at a time"
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
        """PSC_OK and a drain are no failures. What a signal's handler has raised is told in any case."""
        if self._asker.raised is not None:
            raise self._error(_INTERRUPTED)
        if rc == _DRAINED:
            self._draining = True
        elif rc != _OK:
            raise self._error(rc)

    def _end(self, why: str) -> None:
        handle, self._handle = self._handle, C.c_void_p()
        self._why_closed = why
        self._x = self._g = None
        _lib.psc_close(handle)
        self._started, self._stepped = {}, ()
        _open_workers.discard(self)

    def _size_of(self, call: str, tensor: str | None) -> int:
        if tensor not in self._sizes:
            raise InvalidArgument(
                f"{call}: begin comes first" if not self._sizes else f"{call}: no tensor of the manifest is named '{tensor}'"
            )
        return self._sizes[tensor]

    # -- Joining --

    def alloc(self, n_floats: int) -> Floats:
        """[n_floats] zeros that a psd on this machine can reach: an elastic exchange of them copies nothing. Before
        begin, whose x they may be; at most 3. They stay after close, until their last view is gone. A child of
        fork does not have them: to touch them there is SIGSEGV."""
        address, memory = C.c_void_p(), C.c_void_p()
        with self._use("Worker.alloc"):
            self._check(_lib.psc_alloc(self._handle, n_floats, C.byref(address)))
            self._check(_lib.psc_keep(self._handle, address, C.byref(memory)))
        assert address.value is not None
        return array_at(address.value, n_floats, memory)

    def begin(self, tensors: Tensors, x: Any) -> None:
        """Joins the job with a model of these tensors, names to shapes or Tensor.

        x: [all floats] in: the initial point, which should depend on the seed alone; out: the point to start from,
        the center unless this worker was the first. Raises ManifestMismatch, NotFinite and others."""
        listed = _tensors_of(tensors)
        sizes: dict[str | None, int] = {t.name: t.size for t in listed}
        sizes[None] = sum(t.size for t in listed)
        array = take("x", x, sizes[None], writes=True)
        with self._use("Worker.begin"):
            self._check(_lib.psc_begin(self._handle, _manifest_of(listed), len(listed), array.ctypes.data))
            self._sizes, self._stepped = sizes, (x, array)

    # -- Training --

    def step(self, x: Any, g: Any, n_samples: int = 1) -> None:
        """One training step, all that the method says: the optimizer's step, and an exchange when it is due.

        x: [all floats], moved; g: [all floats], the gradient at x, averaged over n_samples samples. A drain is no
        exception: see steps. NotFinite: what was to be sent is not finite; pull takes the center anew."""
        if x is not self._x or g is not self._g:
            self._bind(x, g)
        with self._use("Worker.step"):
            if self._catcher is None:
                rc = _lib.psc_step(self._handle, self._x_at, self._g_at, n_samples)
            else:
                with self._catcher:
                    rc = _lib.psc_step(self._handle, self._x_at, self._g_at, n_samples)
            if rc != _OK or self._step_raised is not None or self._asker.raised is not None:
                self._after_step(rc)

    def _bind(self, x: Any, g: Any) -> None:
        n = self._size_of("Worker.step", None)
        x_taken, g_taken = take("x", x, n, writes=True), take("g", g, n, writes=False)
        self._x_at, self._g_at = x_taken.ctypes.data, g_taken.ctypes.data
        self._stepped = (x, g, x_taken, g_taken)
        # NumPy does not move what is held; others' tensors may get other memory, and are looked at every time.
        still = x_taken is x and g_taken is g
        self._x, self._g = (x, g) if still else (None, None)

    def _after_step(self, rc: int) -> None:
        raised, self._step_raised = self._step_raised, None
        if raised is not None:
            raise raised
        self._check(rc)

    @property
    def draining(self) -> bool:
        """Whether the server has said that it ends the job in good order: the loop should stop."""
        return self._draining

    @overload
    def steps(self) -> Iterator[int]: ...
    @overload
    def steps(self, of: Iterable[_T]) -> Iterator[_T]: ...

    def steps(self, of: Iterable[Any] | None = None) -> Iterator[Any]:
        """What to loop over: the items of `of`, such as a DataLoader, or t = clock, clock + 1, … without; in either
        case until the server drains."""
        for item in of if of is not None else itertools.count(self.clock):
            if self._draining:
                return
            yield item

    def point(self, x: Any) -> None:
        """x: [all floats] becomes the worker's own point, from which Nesterov's momentum looks ahead."""
        array = take("x", x, self._size_of("Worker.point", None), writes=True)
        with self._use("Worker.point"):
            self._check(_lib.psc_point(self._handle, array.ctypes.data))

    # -- Moving values by hand: `tensor` is a name of the manifest, None the whole vector --

    def _move(self, call: str, tensor: str | None, *arrays: tuple[str, Any, bool], n: int | None = None) -> None:
        size = self._size_of(f"Worker.{call}", tensor)
        taken = [take(name, array, size, writes=writes) for name, array, writes in arrays]
        numbers = () if n is None else (n,)
        with self._use(f"Worker.{call}"):
            function = getattr(_lib, f"psc_{call}")
            self._check(function(self._handle, _text(tensor), *(a.ctypes.data for a in taken), *numbers))

    def _start(self, call: str, tensor: str | None, *arrays: tuple[str, Any, bool], n: int | None = None) -> Transfer:
        size = self._size_of(f"Worker.{call}_start", tensor)
        taken = [take(name, array, size, writes=writes) for name, array, writes in arrays]
        numbers = () if n is None else (n,)
        ticket = C.c_uint64()
        with self._use(f"Worker.{call}_start"):
            function = getattr(_lib, f"psc_{call}_start")
            self._check(function(self._handle, _text(tensor), *(a.ctypes.data for a in taken), *numbers, C.byref(ticket)))
            self._started[ticket.value] = (*taken, *(given for _, given, _ in arrays))
            self._started.pop(ticket.value - _native.MAX_STARTED, None)  # the library has waited for that one
        return Transfer(self, ticket.value)

    def init(self, tensor: str | None, x: Any) -> None:
        """Sets the center's values to x; the rule's state stays."""
        self._move("init", tensor, ("x", x, False))

    def pull(self, tensor: str | None, x: Any) -> None:
        """Copies the center's values into x. The whole vector into the array that step moves: the next step starts
        over from there, without momentum."""
        self._move("pull", tensor, ("x", x, True))

    def pull_average(self, tensor: str | None, z: Any) -> None:
        """The same of the average that follows the center. InvalidArgument for a job that has none."""
        self._move("pull_average", tensor, ("z", z, True))

    def push(self, tensor: str | None, message: Any, n_samples: int = 1) -> None:
        """Moves the center by the job's rule with what the rule takes: x under elastic, the gradient over n_samples
        samples under sgd, the move itself under add."""
        self._move("push", tensor, ("message", message, False), n=n_samples)

    def pushpull(self, tensor: str | None, message: Any, answer: Any, n_samples: int = 1) -> None:
        """The same; `answer` becomes what the rule answers: the center before under elastic, after under sgd. The
        arrays must not overlap."""
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
            if ticket == _ALL:
                self._started.clear()
            else:
                self._started.pop(ticket, None)
            self._check(rc)

    def wait(self) -> None:
        """Waits for everything started, and for what the last step has left on its way."""
        self._wait(_ALL)

    # -- Saving, and looking --

    def save(self, path: str | os.PathLike[str], x: Any, extra: bytes = b"") -> None:
        """Saves the worker's own part of the job: x as step last returned it, what the library keeps beside it, t,
        and `extra`, the caller's own. Replaces the file atomically."""
        array = take("x", x, self._size_of("Worker.save", None), writes=False)
        with self._use("Worker.save"):
            self._check(_lib.psc_save(self._handle, _text(path), array.ctypes.data, extra, len(extra)))

    def load(self, path: str | os.PathLike[str], x: Any) -> bytes:
        """Takes up a saved state, after begin and before the first step; returns `extra`."""
        array = take("x", x, self._size_of("Worker.load", None), writes=True)
        room = C.create_string_buffer(max(os.path.getsize(path), 1))
        n = C.c_size_t()
        with self._use("Worker.load"):
            self._check(_lib.psc_load(self._handle, _text(path), array.ctypes.data, room, len(room), C.byref(n)))
        return room.raw[: n.value]

    def saved_version(self, path: str | os.PathLike[str]) -> int:
        """The version of the center that a saved state goes with."""
        version = C.c_uint64()
        with self._use("Worker.saved_version"):
            self._check(_lib.psc_saved_version(self._handle, _text(path), C.byref(version)))
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
        """Tells the server how training goes, for psctl workers and the metrics; does not wait. NaN: not known.

        test_loss and test_accuracy are of observers, after begin: InvalidArgument from others. vector, [all floats]:
        what an observer has scored. Where the server keeps the best center, the call waits until it has this one."""
        given = None if vector is None else take("vector", vector, self._size_of("Worker.report", None), writes=False)
        metrics = _native.psc_metrics(
            C.sizeof(_native.psc_metrics),
            loss,
            accuracy,
            samples_per_second,
            test_loss,
            test_accuracy,
            center_version,
            None if given is None else given.ctypes.data,
        )
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

    @property
    def save_version(self) -> int:
        """The center's version when the server last asked the workers to save; 0: it has not."""
        out = _native.psc_info(C.sizeof(_native.psc_info))
        with self._use("Worker.save_version"):
            self._check(_lib.psc_info(self._handle, C.byref(out)))
        return int(out.save_version)

    @property
    def rank(self) -> int:
        """-1 for observers, and in a child of fork."""
        return int(_lib.psc_rank(self._handle)) if self._handle else -1

    @property
    def size(self) -> int:
        """Workers in the job, as the server last said."""
        return int(_lib.psc_size(self._handle)) if self._handle else 0

    @property
    def clock(self) -> int:
        """t: steps this worker has taken."""
        return int(_lib.psc_clock(self._handle)) if self._handle else 0

    @property
    def closed(self) -> bool:
        return not self._handle

    # -- Leaving --

    def close(self) -> None:
        """Says goodbye to the server. What was started and has not ended is given up. Twice is fine."""
        if self._handle:
            with self._use("Worker.close"):
                self._end("it is closed")

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
