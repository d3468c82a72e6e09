"""psclient.Worker with memory="cuda" on CUDA's stand-in, and a real psd: arrays of a device that the host cannot touch."""

from __future__ import annotations

import ctypes as C
import os
import unittest
from typing import Any
from unittest import mock

import numpy as np

import psclient
from psd_fixture import Psd, PsdCase
from standin import UP, Runtime

MODEL = {"w": (3,), "b": (2,)}
PATIENT: dict[str, Any] = {"retry_ms": 60000, "heartbeat_ms": 10000}


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


class OfADevice:
    """An array of a library that says __cuda_array_interface__."""

    def __init__(self, address: int, n: int, **changes: Any) -> None:
        self.address, self.n = address, n
        said = {"shape": (n,), "typestr": "<f4", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = {**said, **changes}


class _DLManagedTensor(C.Structure):
    """dlpack.h"""

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
        ("manager_ctx", C.c_void_p),
        ("deleter", C.c_void_p),
    ]


_new_capsule = C.PYFUNCTYPE(C.py_object, C.c_void_p, C.c_char_p, C.c_void_p)(("PyCapsule_New", C.pythonapi))


class ByDLPack:
    """An array of a library that says __dlpack__. `asked`: the streams that it was asked for."""

    def __init__(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, *, kind: int = 2, device: int = 0,
        code: int = 2, bits: int = 32, lanes: int = 1, byte_offset: int = 0,
    ) -> None:  # fmt: skip
        n = len(shape)
        self._shape = (C.c_int64 * n)(*shape)
        self._strides = (C.c_int64 * n)(*strides) if strides is not None else None
        pointer = C.POINTER(C.c_int64)
        self._tensor = _DLManagedTensor(
            address, kind, device, n, code, bits, lanes, C.cast(self._shape, pointer),
            C.cast(self._strides, pointer) if self._strides is not None else pointer(), byte_offset, None, None,
        )  # fmt: skip
        self.asked: list[int | None] = []

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        self.asked.append(stream)
        return _new_capsule(C.addressof(self._tensor), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.device_type, self._tensor.device_id


class Named:
    """A stream object of another library."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class OnTheDevice(PsdCase):
    def setUp(self) -> None:
        self.cuda = Runtime()

    def open(self, psd: Psd, **options: Any) -> psclient.Worker:
        worker = psclient.Worker(psd.endpoint, **{**PATIENT, "memory": "cuda", **options})
        self.addCleanup(worker.close)
        return worker

    def join(self, psd: Psd, **options: Any) -> tuple[psclient.Worker, Any, Any]:
        """A worker at 1, 2, 3, 4, 5, and a gradient of ones."""
        worker = self.open(psd, **options)
        x, g = OfADevice(self.cuda.malloc(5), 5), OfADevice(self.cuda.malloc(5), 5)
        worker.write(x, floats(1, 2, 3, 4, 5))
        worker.write(g, floats(1, 1, 1, 1, 1))
        worker.begin(MODEL, x)
        return worker, x, g

    def test_a_step_moves_x_where_it_lies(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        worker, x, g = self.join(psd)
        worker.step(x, g)
        self.assertEqual(worker.read(x).tolist(), [0, 1, 2, 3, 4])
        out = np.empty((5, 1), np.float32)
        self.assertIs(worker.read(x, out), out)
        self.assertEqual(out.reshape(-1).tolist(), [0, 1, 2, 3, 4])
        worker.pushpull("b", self.part(g, 0, 2), self.part(x, 3, 2))
        self.assertEqual(worker.read(x).tolist(), [0, 1, 2, 2, 3])
        ticket = worker.pull_start("w", self.part(x, 0, 3))
        ticket.wait()
        worker.point(g)
        self.assertEqual(worker.read(g).tolist(), [0, 1, 2, 2, 3])

    def part(self, array: Any, first: int, n: int) -> OfADevice:
        return OfADevice(array.address + 4 * first, n)

    def test_every_stream_orders_calls(self) -> None:
        """The gradient is put into the stream, and nobody waits for it."""
        psd = self.psd("async-sgd", "learning_rate=1")
        mine = self.cuda.stream()
        ways = (
            (1, 1),
            (mine, mine),
            (Named(cuda_stream=mine), mine),
            (Named(cuda_stream=0), 1),
            (Named(ptr=mine), mine),
            (Named(__cuda_stream__=lambda: (0, mine)), mine),
            (Named(__cuda_stream__=(0, mine)), mine),
        )
        for given, handle in ways:
            with self.subTest(given):
                worker, x, g = self.join(psd, stream=given)
                worker.init(None, x)
                values = self.cuda.pinned(5)
                for round in range(1, 4):
                    values[:] = round
                    self.cuda.copy(g.address, values.ctypes.data, 5, UP, handle)
                    worker.step(x, g)
                    self.cuda.wait(handle)  # before the values change
                self.assertEqual(worker.read(x).tolist(), [-5, -4, -3, -2, -1])
                worker.write(x, floats(1, 2, 3, 4, 5))
                worker.init(None, x)
                worker.close()

    def test_streams_that_are_none_are_refused(self) -> None:
        cases: list[tuple[type[Exception], str, Any]] = [
            (ValueError, "stream is 0; allowed are handles, and 1 for the default stream", 0),
            (TypeError, "stream is a str; allowed are handles", "compute"),
            (TypeError, "stream is a bool", True),
        ]
        for error, sentence, stream in cases:
            with self.subTest(sentence), self.assertRaisesRegex(error, sentence):
                psclient.Worker("tcp://127.0.0.1:1", memory="cuda", stream=stream)
        with self.assertRaisesRegex(psclient.InvalidArgument, "stream is for memory 'cuda'; memory is 'host'"):
            psclient.Worker("tcp://127.0.0.1:1", stream=1)

    def test_arrays_by_dlpack_are_told_the_stream(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        for stream, asked in (None, -1), (1, 1):
            worker, x, g = self.join(psd, stream=stream)
            worker.write(x, floats(1, 2, 3, 4, 5))
            worker.init(None, x)
            gradient = ByDLPack(g.address - 8, (5, 1), (1, 7), byte_offset=8)
            managed = ByDLPack(x.address, (5,), kind=13)
            worker.step(managed, gradient)
            worker.step(managed, gradient)
            self.assertEqual((gradient.asked, managed.asked), ([asked] * 2, [asked] * 2))
            self.assertEqual(worker.read(x).tolist(), [-1, 0, 1, 2, 3])
            worker.close()

    def test_what_does_not_fit_is_refused_by_name(self) -> None:
        psd = self.psd("async-sgd", "learning_rate=1")
        worker, x, g = self.join(psd, stream=1)
        at = g.address
        host = floats(1, 2, 3, 4, 5)

        def interface(**changes: Any) -> OfADevice:
            return OfADevice(at, 5, **changes)

        cases: list[tuple[type[Exception], str, Any]] = [
            (TypeError, "g is in memory of the host, and the worker's memory is 'cuda': pass an array of the GPU", host),
            (TypeError, "g is in memory of the host", ByDLPack(host.ctypes.data, (5,), kind=1)),
            (TypeError, "g is in memory of the host", ByDLPack(host.ctypes.data, (5,), kind=3)),
            (TypeError, r"g is on a device \(DLPack type 10\); allowed with memory 'cuda' is", ByDLPack(at, (5,), kind=10)),
            (TypeError, "g is a list; allowed with memory 'cuda' are arrays of the GPU with __dlpack__ or", [0.0] * 5),
            (TypeError, "g has type float64; psd needs float32: convert it", interface(typestr="<f8")),
            (TypeError, "g has type float32 of the other byte order", interface(typestr=">f4")),
            (TypeError, "g has type bfloat16", ByDLPack(at, (5,), code=4, bits=16)),
            (TypeError, "g has type float32 x 4", ByDLPack(at, (5,), lanes=4)),
            (TypeError, "g has a mask", interface(mask=x)),
            (ValueError, r"g, of shape \(5,\), is not contiguous", interface(strides=(8,))),
            (ValueError, r"g, of shape \(5,\), is not contiguous", interface(strides=(6,))),
            (ValueError, r"g, of shape \(1, 5\), is not contiguous", ByDLPack(at, (1, 5), (5, 2))),
            (ValueError, r"g has 4 values, in shape \(2, 2\); allowed here are 5", ByDLPack(at, (2, 2), (2, 1))),
            (ValueError, "g is not aligned to 4 bytes", interface(data=(at + 2, False))),
            (ValueError, "g is ordered by stream 0x2, and the worker's stream is 0x1: .*stream=0x2", interface(stream=2)),
        ]
        for error, sentence, bad in cases:
            with self.subTest(sentence), self.assertRaisesRegex(error, sentence):
                worker.step(x, bad)
        with self.assertRaisesRegex(ValueError, "x is read-only, and the call writes it"):
            worker.step(interface(data=(at, True)), g)
        with self.assertRaisesRegex(TypeError, "x of 'w' is in memory of the host"):
            worker.pull("w", floats(1, 2, 3))
        with self.assertRaisesRegex(ValueError, "values has 4 values.*allowed here are 5"):
            worker.write(x, floats(1, 2, 3, 4))
        with self.assertRaisesRegex(psclient.InvalidArgument, "a vector is not memory of the device"):
            worker.step(x, OfADevice(host.ctypes.data, 5))  # which says that it is
        worker.step(x, interface(stream=1, data=(at, True)))
        self.assertEqual(worker.read(x).tolist(), [0, 1, 2, 3, 4])

    def test_a_worker_has_one_gpu(self) -> None:
        worker, x, g = self.join(self.psd("async-sgd"))
        worker.close()
        worker = self.open(self.psd("async-sgd"))
        worker.write(x, floats(1, 2, 3, 4, 5))
        worker.begin(MODEL, ByDLPack(x.address, (5,)))
        with self.assertRaisesRegex(ValueError, "g is on GPU 1, and x of begin on GPU 0: a worker has one"):
            worker.step(x, ByDLPack(g.address, (5,), device=1))

    def test_arrays_of_a_device_are_refused_on_the_host(self) -> None:
        psd = self.psd("async-sgd")
        with psclient.Worker(psd.endpoint) as worker:
            x = floats(1, 2, 3, 4, 5)
            worker.begin(MODEL, x)
            for there in OfADevice(self.cuda.malloc(5), 5), ByDLPack(self.cuda.malloc(5), (5,)):
                with self.assertRaisesRegex(
                    TypeError, "g is (in memory of a GPU|on a device).*or open the worker with memory='cuda'"
                ):
                    worker.step(x, there)
            worker.write(x, floats(5, 4, 3, 2, 1))
            self.assertEqual(worker.read(x).tolist(), [5, 4, 3, 2, 1])

    def test_what_it_cannot_do_says_so(self) -> None:
        psd = self.psd("async-sgd")
        worker = self.open(psd)
        with self.assertRaisesRegex(psclient.Unsupported, "Worker.alloc: with memory 'cuda' any array of the GPU serves"):
            worker.alloc(5)
        with self.assertRaisesRegex(psclient.Unsupported, "KVStore: memory 'cuda'; its values are arrays of the host"):
            psclient.KVStore(psd.endpoint, memory="cuda")
        with self.assertRaisesRegex(psclient.Unsupported, "memory 'cuda' is for workers"):
            psclient.Worker(psd.endpoint, memory="cuda", observer=True)
        with self.assertRaisesRegex(psclient.InvalidArgument, "memory 'opencl'; allowed are host and cuda"):
            psclient.Worker(psd.endpoint, memory="opencl")
        with (
            mock.patch.dict(os.environ, {"STANDIN_DEVICES": "0"}),
            self.assertRaisesRegex(psclient.Unsupported, "no CUDA device: no CUDA-capable device is detected"),
        ):
            psclient.Worker(psd.endpoint, memory="cuda")

    def test_values_that_are_not_finite_are_not_sent(self) -> None:
        worker, x, g = self.join(self.psd("async-sgd", "learning_rate=1"))
        worker.write(g, floats(0, float("nan"), 0, 0, 0))
        with self.assertRaisesRegex(psclient.NotFinite, r"\[1\], in tensor 'w', is not finite: nothing was sent"):
            worker.step(x, g)
        worker.pull(None, x)
        self.assertEqual(worker.read(x).tolist(), [1, 2, 3, 4, 5])

    def test_a_failure_of_the_device_is_an_exception(self) -> None:
        worker, x, g = self.join(self.psd("async-sgd"))
        with mock.patch.dict(os.environ, {"STANDIN_FAULT": "device"}):
            with self.assertRaisesRegex(psclient.DeviceError, "CUDA: an illegal memory access") as raised:
                worker.step(x, g)
            self.assertEqual((raised.exception.result, raised.exception.name), (-15, "PSC_EDEVICE"))
            with self.assertRaises(psclient.DeviceError):
                worker.read(x)

    def test_the_own_step_gets_addresses_of_the_device(self) -> None:
        """In the order of the worker's stream, or complete if there is none."""
        stream = self.cuda.stream()
        for order in (None, stream):
            with self.subTest(order):
                psd = self.psd("async-easgd", "optimizer=external", "alpha=0.5", "period=1")
                calls: list[tuple[int, int]] = []
                values = self.cuda.pinned(1)
                values[:] = 8

                def own_step(x: int, g: int, _rate: float, calls: Any = calls, values: Any = values, order: Any = order) -> None:
                    calls.append((x, g))
                    self.cuda.copy(x + 4, values.ctypes.data, 1, UP, stream)
                    if order is None:
                        self.cuda.wait(stream)

                worker, x, g = self.join(psd, stream=order, own_step=own_step)
                worker.step(x, g)
                self.assertEqual(calls, [(x.address, g.address)])
                worker.step(x, g)
                self.assertEqual(worker.read(x).tolist(), [1, 8, 3, 4, 5])
                worker.pull(None, x)
                self.assertEqual(worker.read(x).tolist(), [1, 5, 3, 4, 5])  # towards the first step's 8
                worker.close()

    def test_a_saved_worker_goes_on(self) -> None:
        psd = self.psd("downpour", "period=4", "learning_rate=1")
        worker, x, g = self.join(psd)
        worker.step(x, g)
        path = psd.folder / "worker"
        worker.save(path, x, extra=b"the place in the data")
        worker.close()
        worker, x, g = self.join(psd)
        self.assertEqual(worker.load(path, x), b"the place in the data")
        self.assertEqual((worker.read(x).tolist(), worker.clock), ([0, 1, 2, 3, 4], 1))


if __name__ == "__main__":
    unittest.main()
