"""SIGTERM and SIGHUP as an exception, so that clean-up code runs as it does after Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """perfci was asked to stop by SIGTERM or SIGHUP. Handled wherever Ctrl-C is handled."""


def _raise(number: int, _frame: FrameType | None) -> None:
    # One request is enough: a second one must not interrupt the clean-up that the first has started.
    for other in _SIGNALS:
        if signal.getsignal(other) is _raise:
            signal.signal(other, signal.SIG_IGN)
    raise Terminated(signal.Signals(number).name)


@contextmanager
def clean_up_on_termination() -> Iterator[None]:
    """While inside, SIGTERM and SIGHUP raise ``Terminated`` in the main thread.

    Signals that the program around us already handles or ignores (nohup) are left alone, and so is everything when
    called outside the main thread, where Python allows no handlers. May be nested.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
