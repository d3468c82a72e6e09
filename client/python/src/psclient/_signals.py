"""Signals while a call waits in the C library.

Python runs signal handlers between two bytecode instructions of its main thread, so not during a call in C. The library
calls options.go_on periodically to ask whether to continue waiting. That runs a little Python code, where handlers can
run; a handler that raises (Ctrl-C: KeyboardInterrupt) ends the wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from types import CodeType
from typing import Any

from psclient import _native


class Asker:
    """`callback` is for options.go_on; `raised` is the exception of a handler, or None. Belongs to one Worker."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        # A handler may run at a function's first instruction, before any `try` in it. Its exception would go to ctypes,
        # which prints and drops it. A generator resumes inside its `try`.
        generator = self._answers()
        next(generator)
        send: Callable[[int | None], int] = generator.send
        self.callback = _native.GO_ON(send)

    def _answers(self) -> Generator[int, int | None, None]:
        answer = 1
        while True:
            try:
                while True:
                    yield answer
            except GeneratorExit:
                return
            except BaseException as raised:
                self.raised = raised
                answer = 0


class Catcher:
    """A context manager. An exception of a handler at the first instruction of a callback, which ctypes would print and
    drop, is passed to `tell` instead. `code` is the callback's code object."""

    def __init__(self, code: CodeType, tell: Callable[[BaseException], None]) -> None:
        self._code, self._tell = code, tell
        self._before = sys.unraisablehook

    def _hook(self, unraisable: Any) -> None:
        frame = unraisable.exc_traceback
        while frame is not None and frame.tb_frame.f_code is not self._code:
            frame = frame.tb_next
        if frame is not None and unraisable.exc_value is not None:
            self._tell(unraisable.exc_value)
        else:
            self._before(unraisable)

    def __enter__(self) -> None:
        self._before, sys.unraisablehook = sys.unraisablehook, self._hook

    def __exit__(self, *why: object) -> None:
        sys.unraisablehook = self._before
