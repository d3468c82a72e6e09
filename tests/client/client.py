"""A client of psd in Python: the library's ABI by ctypes, with this program's options, and with an older one's.

usage: client.py LIBPSCLIENT ENDPOINT, where psd runs rule sgd at learning_rate 1."""
import ctypes as C
import sys

lib = C.CDLL(sys.argv[1])
lib.psc_error.restype = C.c_char_p
Floats = C.c_float * 5

class Tensor(C.Structure):
    _fields_ = [("name", C.c_char_p), ("offset", C.c_uint64), ("shape", C.c_uint64 * 8), ("n_dims", C.c_uint32),
                ("role", C.c_uint32), ("decay", C.c_uint32)]

class Options(C.Structure):
    _fields_ = [("size", C.c_size_t), ("server", C.c_char_p), ("kind", C.c_int32), ("rank", C.c_int32),
                ("name", C.c_char_p), ("timeout_ms", C.c_uint32), ("retry_ms", C.c_uint32),
                ("heartbeat_ms", C.c_uint32), ("log", C.c_void_p), ("log_arg", C.c_void_p)]

def check(c, rc):
    if rc != 0:
        sys.exit(f"result {rc}: {lib.psc_error(c).decode()}")

for size in C.sizeof(Options), Options.timeout_ms.offset:  # the second: a program built before there was timeout_ms
    options, c, x, answer = Options(), C.c_void_p(), Floats(1, 2, 3, 4, 5), (C.c_float * 2)()
    lib.psc_options_init(C.byref(options), C.c_size_t(size))
    options.server = sys.argv[2].encode()
    check(c, lib.psc_open(C.byref(options), C.byref(c)))
    model = (Tensor * 2)(Tensor(b"w", 0, (3,), 1), Tensor(b"b", 3, (2,), 1))
    check(c, lib.psc_begin(c, model, C.c_size_t(2), x))
    check(c, lib.psc_init(c, None, Floats(1, 2, 3, 4, 5)))
    check(c, lib.psc_step(c, x, Floats(1, 1, 1, 1, 1), C.c_size_t(1)))
    check(c, lib.psc_pushpull(c, b"b", (C.c_float * 2)(0.5, 2), answer, C.c_size_t(1)))
    assert list(x) == [0, 1, 2, 3, 4] and list(answer) == [2.5, 2], (list(x), list(answer))
    lib.psc_close(c)
print("ok")
