"""Processes that do everything: the API, a worker and the services. Each dies by kill -9 at the step it is told.

    python -m tests.providers.processes DSN FILES PORT REPLICATE

It reads steps, a line each (an empty one: none), and starts a process for each that has all it needs in memory already.
It tells the process's id when it begins, and how it ended.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from millpond import lifeline
from millpond.api.app import create_app
from millpond.api.jobs.callbacks import callbacks_url
from millpond.api.jobs.streams import Hub
from millpond.api.product import bound
from millpond.api.server import listen, serve
from millpond.engine.engine import Engine
from millpond.engine.jobs import jobs
from millpond.engine.providers import callbacks, outputs, predictions
from millpond.engine.queue import leases
from millpond.integrations.replicate import Replicate
from millpond.services.notifier import Notifier
from millpond.services.service import run_services
from millpond.settings import Settings
from millpond.storage.local import Local
from millpond.worker.worker import Worker
from tests.doubles.replicate import TOKEN
from tests.providers.deployments import PRODUCT, make_app, services

STEPS: dict[str, tuple[Any, str]] = {
    "begin": (predictions, "begin"),  # the row is written
    "submit": (Replicate, "submit"),  # the provider is asked
    "sent": (predictions, "sent"),  # its name for it is written
    "park": (leases, "park"),
    "verify": (Replicate, "verify"),  # a callback is checked
    "hear": (callbacks, "hear"),  # and written
    "take": (predictions, "take"),  # the reconciler takes what is due
    "status": (Replicate, "status"),  # and asks
    "over": (predictions, "over"),
    "answer": (jobs, "answer"),  # the job is woken
    "fetch": (outputs, "_fetch"),  # a file is brought
    "collect": (outputs, "collect"),  # and is in storage
    "keep": (predictions, "keep"),  # what came of a part is written
    "finish": (leases, "finish"),
    "cancel": (Replicate, "cancel"),  # what nobody wants is stopped
    "close": (predictions, "close"),
}


def rig(step: str) -> None:
    """Die right after the step is done, which is before the next one; and not where nothing was there to be taken."""
    owner, attribute = STEPS[step]
    real = getattr(owner, attribute)
    assert inspect.iscoroutinefunction(real)

    async def rigged(*arguments: Any, **options: Any) -> Any:
        answer = await real(*arguments, **options)
        if step != "take" or answer:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, attribute, rigged)


async def main(arguments: list[str], step: str) -> None:
    dsn, files, port, replicate = arguments
    if step:
        rig(step)
    provider = Replicate(replicate, TOKEN)
    engine = await Engine.open(dsn, make_app(), storage=Local(Path(files), "http://files.test"), providers=[provider])
    engine.providers.callbacks_url = callbacks_url(f"http://127.0.0.1:{port}")
    notifier, stop, settings = Notifier(engine), asyncio.Event(), Settings()
    hub = Hub(engine, notifier)
    source = engine.source(lease=timedelta(seconds=1.5), heartbeat=timedelta(seconds=0.4))
    app = create_app(engine, settings=settings, hub=hub)
    sock = listen("127.0.0.1", int(port))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await asyncio.gather(
        notifier.run(stop),
        hub.run(stop),
        serve(app, host="", port=0, sock=sock, stop=stop, drain=1),
        Worker(source, bound(engine, settings, (PRODUCT,)), grace=timedelta(seconds=1)).run(stop),
        run_services(services(engine), stop),
    )
    await engine.close()


def start_each(arguments: list[str]) -> None:
    lifeline.stop_with_parent()
    reader, mine = os.pipe()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os.close(mine)
            threading.Thread(target=lambda: (os.read(reader, 1), os._exit(1)), daemon=True).start()
            sys.stdin.close()
            asyncio.run(main(arguments, line.strip()))
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    start_each(sys.argv[1:])
