"""Calling a handler: on the loop or in a thread, and how it is interrupted there."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
from typing import TYPE_CHECKING, Any

from millpond import values
from millpond.errors import HandlerError, InterruptedJobError, InvalidError, MillpondError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def contained(call: Awaitable[Any]) -> Any:
    """A handler that wants to end the process ends its job instead."""
    try:
        return await call
    except (KeyboardInterrupt, SystemExit) as error:
        raise RuntimeError(repr(error)) from error


def in_thread(name: str, call: Callable[[], Any], began: Callable[[int | None], None]) -> asyncio.Future[Any]:
    """Run a plain handler in a thread of its own; ``began`` hears which one, and None when it is over.

    Not in a pool: a handler that never comes back would keep one of its threads for ever, and an interrupt could
    hit the next job in it. The thread is a daemon, so it does not keep the process either.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def work() -> None:
        began(threading.get_ident())
        try:
            outcome: tuple[Any, BaseException | None] = call(), None
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            outcome = None, error
        finally:
            began(None)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(_deliver, future, *outcome)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


def _deliver(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        # A StopIteration cannot be set on a future.
        future.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)


def interrupt(thread: int | None) -> None:
    """Raise in a thread at its next step of Python; code that is inside C notices when it comes back."""
    if thread is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(InterruptedJobError))


def told(error: BaseException) -> dict[str, Any]:
    """An error as it is kept on the job: short, storable, without a stack."""
    if isinstance(error, MillpondError):
        said = error.as_dict()
    else:
        said = {"code": HandlerError.code, "message": f"{type(error).__name__}: {error}"}
    said["message"] = values.printable(str(said["message"]), 2_000)
    try:
        values.encode(said, field="error")
    except InvalidError:
        return {"code": said["code"], "message": said["message"]}
    return said
