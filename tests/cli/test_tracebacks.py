"""``millpond jobs get``: operators see the traceback of a failed job, clients do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tests.cli.ups import up, write_app

if TYPE_CHECKING:
    from tests.acceptance.processes import Shell

BROKEN = """
@app.kind("broken", attempts_max=1)
def broken(job: Job) -> None:
    raise ValueError("there is no such hat")
"""


async def test_a_failed_job_is_shown_with_its_traceback_to_operators_only(sh: Shell) -> None:
    server = await up(sh, write_app(sh.folder, BROKEN))
    job_id = await server.submit("broken")
    await server.until("ended", job_id)
    shown = sh.run("jobs", "get", job_id)
    assert 'raise ValueError("there is no such hat")' in shown.stdout
    as_json = msgspec.json.decode(sh.run("jobs", "get", job_id, "--json").stdout)
    assert (as_json["id"], as_json["traceback"].splitlines()[0]) == (job_id, "Traceback (most recent call last):")
    for words in ((), ("--json",)):
        key = server.ready["client_key"]
        seen = sh.run("jobs", "get", job_id, "--url", server.url, *words, MILLPOND_API_KEY=key)
        assert seen.process.returncode == 0, seen.stderr
        assert "there is no such hat" in seen.stdout
        assert "raceback" not in seen.stdout
