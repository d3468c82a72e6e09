"""Signals while a call waits in the C library.

Python handles a signal between two instructions of its main thread, and a call in C has none. The library asks
options.go_on now and then whether to go on waiting; that runs a little Python, where handlers run too, and one
that raises (Ctrl-C: KeyboardInterrupt) ends the wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from types import CodeType
from typing import Any

from psclient import _native


class Asker:
    """`callback` is for options.go_on; `raised` what a handler has raised, or None. One Worker's own."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        # A handler may run at a function's first instruction, before any `try` in it: an exception would be
        # ctypes', which prints it and forgets it. A generator goes on inside its `try`.
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
    """`with` it, what a handler raises at the first instruction of a callback, which ctypes would print and forget, goes to
    `tell` instead. `code` is the callback's."""

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
