"""Calls handlers, on the event loop or in a thread, and interrupts them there."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import threading
from typing import TYPE_CHECKING, Any

from millpond import values
from millpond.errors import HandlerError, InterruptedJobError, InvalidError, MillpondError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def contained(call: Awaitable[Any]) -> Any:
    """Await a handler. One that tries to exit the process only fails its job."""
    try:
        return await call
    except (KeyboardInterrupt, SystemExit) as error:
        raise RuntimeError(repr(error)) from error


def arranged(
    handler: Callable[..., Any], positional: tuple[Any, ...], named: dict[str, Any], resources: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a handler with its resources, which may stand before an input that is passed by position."""
    if not resources:
        return positional, named
    rest, whole, ordered = dict(resources), list(positional), list[Any]()
    for name in list(inspect.signature(handler).parameters)[1:]:
        if not whole:
            break
        ordered.append(rest.pop(name) if name in rest else whole.pop(0))
    return (*ordered, *whole), named | rest


def in_thread(name: str, call: Callable[[], Any], began: Callable[[int | None], None]) -> asyncio.Future[Any]:
    """Run a plain handler in its own thread. ``began`` is called with the thread's id, and with None at the end.

    Not in a pool: a handler that never returns would occupy one of its threads for ever, and an interrupt could
    hit the next job in that thread. The thread is a daemon, so it does not keep the process alive either.
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the result
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
    """Raise InterruptedJobError in a thread at its next Python instruction; C code runs on until it returns."""
    if thread is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(InterruptedJobError))


def describe(error: BaseException) -> dict[str, Any]:
    """An error as stored with the job: short, encodable as JSON, without a stack trace."""
    if isinstance(error, MillpondError):
        detail = error.as_dict()
    else:
        detail = {"code": HandlerError.code, "message": f"{type(error).__name__}: {error}"}
    detail["message"] = values.printable(str(detail["message"]), 2_000)
    try:
        values.encode(detail, field="error")
    except InvalidError:
        return {"code": detail["code"], "message": detail["message"]}
    return detail
