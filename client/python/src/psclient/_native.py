"""libpsclient through ctypes. Installation needs no compiler and no package besides NumPy, and other threads run while a
call waits. The structures match those of client/psclient.h and psclique.h field by field: tests/python/test_abi.py
compares them with the compiler's."""

from __future__ import annotations

import ctypes as C
import os
import pathlib

MAX_DIMS = 8
MAX_STARTED = 256
SONAME = "libpsclient.so.0"

LOG = C.CFUNCTYPE(None, C.c_void_p, C.c_char_p)
OWN_STEP = C.CFUNCTYPE(None, C.c_void_p, C.c_void_p, C.c_void_p, C.c_double)
GO_ON = C.CFUNCTYPE(C.c_int, C.c_void_p)


class psc_tensor(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("offset", C.c_uint64),
        ("shape", C.c_uint64 * MAX_DIMS),
        ("n_dims", C.c_uint32),
        ("role", C.c_uint32),
        ("decay", C.c_uint32),
        ("rate", C.c_double),
    ]


class psc_local(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("method", C.c_char_p),
        ("learning_rate", C.c_double),
        ("momentum", C.c_double),
        ("averaging_rate", C.c_double),
        ("weight_decay", C.c_double),
        ("schedule", C.c_char_p),
        ("gamma", C.c_double),
        ("step_steps", C.c_uint64),
        ("warmup_steps", C.c_uint64),
        ("pipeline_warmup", C.c_uint64),
        ("codec", C.c_char_p),
        ("total_steps", C.c_uint64),
        ("floor", C.c_double),
        ("milestones", C.c_uint64 * 16),
        ("n_milestones", C.c_uint32),
        ("bucket_floats", C.c_uint64),
        ("pipeline", C.c_uint32),
    ]


class psc_options(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("server", C.c_char_p),
        ("kind", C.c_int32),
        ("rank", C.c_int32),
        ("name", C.c_char_p),
        ("timeout_ms", C.c_uint32),
        ("retry_ms", C.c_uint32),
        ("heartbeat_ms", C.c_uint32),
        ("log", LOG),
        ("log_arg", C.c_void_p),
        ("local", C.POINTER(psc_local)),
        ("clique", C.c_void_p),
        ("key_file", C.c_char_p),
        ("server_key", C.c_char_p),
        ("transport", C.c_char_p),
        ("tensor_size", C.c_size_t),
        ("threads", C.c_uint32),
        ("own_step", OWN_STEP),
        ("own_step_arg", C.c_void_p),
        ("go_on", GO_ON),
        ("go_on_arg", C.c_void_p),
        ("net", C.c_char_p),
        ("data", C.c_char_p),
        ("steps", C.c_uint64),
        ("samples_per_epoch", C.c_uint64),
        ("memory", C.c_char_p),
        ("stream", C.c_void_p),
    ]


class psc_metrics(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("loss", C.c_double),
        ("accuracy", C.c_double),
        ("samples_per_second", C.c_double),
        ("test_loss", C.c_double),
        ("test_accuracy", C.c_double),
        ("center_version", C.c_uint64),
        ("vector", C.c_void_p),
        ("steps", C.c_uint64),
    ]


class psc_info(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("n_floats", C.c_uint64),
        ("center_version", C.c_uint64),
        ("exchanges", C.c_uint64),
        ("retries", C.c_uint64),
        ("reconnects", C.c_uint64),
        ("bytes_sent", C.c_uint64),
        ("bytes_received", C.c_uint64),
        ("exchange_seconds", C.c_double),
        ("update_seconds", C.c_double),
        ("learning_rate", C.c_double),
        ("alpha", C.c_double),
        ("period", C.c_uint32),
        ("generation", C.c_uint32),
        ("method", C.c_char * 32),
        ("optimizer", C.c_char * 32),
        ("transport", C.c_char * 16),
        ("save_version", C.c_uint64),
        ("averaging", C.c_char * 32),
        ("workers", C.c_uint32),
        ("early", C.c_uint32),
        ("bucket_floats", C.c_uint64),
    ]


class psc_ring_options(C.Structure):
    _fields_ = [
        ("size", C.c_size_t),
        ("members", C.c_uint32),
        ("rank", C.c_int32),
        ("rendezvous", C.c_char_p),
        ("name", C.c_char_p),
        ("listen", C.c_char_p),
        ("links", C.c_uint32),
        ("segment_bytes", C.c_uint32),
        ("timeout_ms", C.c_uint32),
        ("key_file", C.c_char_p),
        ("server_key", C.c_char_p),
        ("step_ms", C.c_uint32),
        ("algorithm", C.c_char_p),
        ("on_loss", C.c_char_p),
    ]


class psc_shrunk(C.Structure):
    _fields_ = [
        ("step", C.c_uint64),
        ("source", C.c_uint32),
        ("behind", C.c_uint32),
        ("lost", C.c_uint32),
    ]


STRUCTURES = (psc_tensor, psc_local, psc_options, psc_metrics, psc_info, psc_ring_options, psc_shrunk)

_P, _S, _N = C.c_void_p, C.c_char_p, C.c_size_t
_TICKET = C.POINTER(C.c_uint64)

# name: (result type, argument types). Handles and arrays are addresses.
FUNCTIONS: dict[str, tuple[type | None, tuple[object, ...]]] = {
    "psc_options_init_sized": (None, (C.POINTER(psc_options), _N, _N)),
    "psc_local_init": (None, (C.POINTER(psc_local), _N, _S)),
    "psc_open": (C.c_int, (C.POINTER(psc_options), C.POINTER(_P))),
    "psc_begin": (C.c_int, (_P, C.POINTER(psc_tensor), _N, _P)),
    "psc_alloc": (C.c_int, (_P, _N, C.POINTER(_P))),
    "psc_keep": (C.c_int, (_P, _P, C.POINTER(_P))),
    "psc_memory_free": (None, (_P,)),
    "psc_read": (C.c_int, (_P, _P, _P, _N)),
    "psc_write": (C.c_int, (_P, _P, _P, _N)),
    "psc_step": (C.c_int, (_P, _P, _P, _N)),
    "psc_step_begin": (C.c_int, (_P, _P, _P, _N)),
    "psc_ready": (C.c_int, (_P, C.c_uint64, C.c_uint64)),
    "psc_step_end": (C.c_int, (_P,)),
    "psc_point": (C.c_int, (_P, _P)),
    "psc_init": (C.c_int, (_P, _S, _P)),
    "psc_pull": (C.c_int, (_P, _S, _P)),
    "psc_pull_average": (C.c_int, (_P, _S, _P)),
    "psc_push": (C.c_int, (_P, _S, _P, _N)),
    "psc_pushpull": (C.c_int, (_P, _S, _P, _P, _N)),
    "psc_init_start": (C.c_int, (_P, _S, _P, _TICKET)),
    "psc_pull_start": (C.c_int, (_P, _S, _P, _TICKET)),
    "psc_pull_average_start": (C.c_int, (_P, _S, _P, _TICKET)),
    "psc_push_start": (C.c_int, (_P, _S, _P, _N, _TICKET)),
    "psc_pushpull_start": (C.c_int, (_P, _S, _P, _P, _N, _TICKET)),
    "psc_init_keys": (C.c_int, (_P, _P, _N, _P)),
    "psc_pull_keys": (C.c_int, (_P, _P, _N, _P)),
    "psc_push_keys": (C.c_int, (_P, _P, _N, _P, _N)),
    "psc_pushpull_keys": (C.c_int, (_P, _P, _N, _P, _P, _N)),
    "psc_init_keys_start": (C.c_int, (_P, _P, _N, _P, _TICKET)),
    "psc_pull_keys_start": (C.c_int, (_P, _P, _N, _P, _TICKET)),
    "psc_push_keys_start": (C.c_int, (_P, _P, _N, _P, _N, _TICKET)),
    "psc_pushpull_keys_start": (C.c_int, (_P, _P, _N, _P, _P, _N, _TICKET)),
    "psc_wait": (C.c_int, (_P, C.c_uint64)),
    "psc_test": (C.c_int, (_P, C.c_uint64, C.POINTER(C.c_int))),
    "psc_ended_fd": (C.c_int, (_P, C.POINTER(C.c_int))),
    "psc_workers_barrier": (C.c_int, (_P,)),
    "psc_set_method": (C.c_int, (_P, _S)),
    "psc_save": (C.c_int, (_P, _S, _P, _S, _N)),
    "psc_load": (C.c_int, (_P, _S, _P, _P, _N, C.POINTER(_N))),
    "psc_saved_version": (C.c_int, (_P, _S, _TICKET)),
    "psc_report": (C.c_int, (_P, C.POINTER(psc_metrics))),
    "psc_rank": (C.c_int, (_P,)),
    "psc_size": (C.c_int, (_P,)),
    "psc_clock": (C.c_uint64, (_P,)),
    "psc_info": (C.c_int, (_P, C.POINTER(psc_info))),
    "psc_error": (_S, (_P,)),
    "psc_result_name": (_S, (C.c_int,)),
    "psc_close": (None, (_P,)),
    "psc_ring_options_init": (None, (C.POINTER(psc_ring_options), _N)),
    "psc_ring_open": (C.c_int, (C.POINTER(psc_ring_options), C.POINTER(_P))),
    "psc_clique_rank": (C.c_int, (_P,)),
    "psc_clique_size": (C.c_int, (_P,)),
    "psc_clique_error": (_S, (_P,)),
    "psc_allreduce": (C.c_int, (_P, _P, _N, _S)),
    "psc_broadcast": (C.c_int, (_P, _P, _N, C.c_int)),
    "psc_barrier": (C.c_int, (_P,)),
    "psc_clique_shrink": (C.c_int, (_P, C.c_uint64, C.c_uint32, C.POINTER(psc_shrunk))),
    "psc_clique_close": (None, (_P,)),
}


def candidates() -> list[str]:
    """The paths tried: only $PSCLIENT_LIBRARY if set; otherwise the package's own library, then the system's."""
    chosen = os.environ.get("PSCLIENT_LIBRARY")
    if chosen:
        return [chosen]
    beside = pathlib.Path(__file__).parent / "lib" / SONAME
    return ([str(beside)] if beside.exists() else []) + [SONAME]


def load() -> C.CDLL:
    """Loads the library and sets the types of its functions. ImportError lists the paths tried."""
    failures = []
    for path in candidates():
        try:
            lib = C.CDLL(path)
            for name, (result, arguments) in FUNCTIONS.items():
                function = getattr(lib, name)
                function.restype, function.argtypes = result, arguments
            return lib
        except (OSError, AttributeError) as why:
            failures.append(str(why))
    raise ImportError(
        f"psclient needs libpsclient: {'; '.join(failures)}. Install psd, or set PSCLIENT_LIBRARY to build/client/{SONAME}"
    )


lib = load()
