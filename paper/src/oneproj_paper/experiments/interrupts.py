"""Ctrl-C ends a run at once: what ``solve`` would return for it is half a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _PressedError(BaseException):
    """Ctrl-C, under a name that ``solve`` does not wait for."""


@contextmanager
def abandoning() -> Iterator[None]:
    """Let Ctrl-C end the block at once, as it would without ``solve`` in it.

    Only the main thread may set a handler; elsewhere there is no Ctrl-C to heed.

    Example:
        >>> with abandoning():
        ...     1 + 1
        2
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: object) -> None:
        del number, frame
        raise _PressedError

    signal.signal(signal.SIGINT, press)
    try:
        yield
    except _PressedError as error:
        raise KeyboardInterrupt from error
    finally:
        signal.signal(signal.SIGINT, before)
