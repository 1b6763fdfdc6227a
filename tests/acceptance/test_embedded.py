"""The embedded server dies under a running ``millpond up``, which starts it again."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from millpond.store.embedded.keeper import RESTARTING
from tests.acceptance.processes import shell, until
from tests.cli.ups import up

if TYPE_CHECKING:
    from pathlib import Path


async def test_an_embedded_server_that_dies_is_restarted_until_that_succeeds(tmp_path: Path) -> None:
    """Until then the server is not ready, and says why."""
    data = tmp_path / "data"
    with shell(tmp_path, None) as sh:
        running = await up(sh, "--data-dir", data)

        async def database() -> Any:
            answer = await running.request("GET", "/readyz")
            state = answer.json()["checks"]["database"]
            assert (answer.status_code == 200) == (state == "ok")
            return state

        async def is_ready() -> bool:
            return await database() == "ok"

        async def is_restarting() -> bool:
            return await database() == RESTARTING

        async def has_failed() -> bool:
            return "db.embedded_failed" in running.command.stderr

        await until(is_ready)
        (data / "postgres.conf").write_text("no_such_setting = 1\n")
        os.kill(int((data / "postgres/postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        await until(has_failed)
        await until(is_restarting)
        refused = await running.request("POST", "/v1/jobs", {"kind": "hello", "input": {"name": "Ada"}})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        (data / "postgres.conf").unlink()
        await until(is_ready)
        await running.until("ended", await running.submit("hello", {"name": "Ada"}))
        running.command.terminate()
        assert running.command.wait() == 0
        assert not (data / "postgres/postmaster.pid").exists()
