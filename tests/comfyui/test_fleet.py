"""From end to end: a real server, the worker as a process, ComfyUI's double as another."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from PIL import Image

from millpond import cli, logs
from millpond.integrations.comfyui import __main__ as program
from tests.acceptance.processes import Command, Shell, shell, until
from tests.cli.ups import Up, up
from tests.comfyui import recorded
from tests.comfyui.jobs import task
from tests.doubles.comfyui import sample
from tests.doubles.ec2_metadata import Machine
from tests.doubles.ec2_metadata import served as metadata
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

ROOT = Path(__file__).parents[2]
INVERT = recorded.graph(n1={"class_type": "LoadImage", "inputs": {"image": "{{input}}"}})
APP = """
from millpond import Millpond
from millpond.kinds import Kind

app = Millpond()
app.add(Kind(name="invert", price=5, runs="fleet"))
"""

BARE = """
import importlib.metadata
import sys

SDK = {"millpond", "httpx2", "httpcore2", "h11", "msgspec", "anyio", "idna", "truststore", "typing_extensions"}

class Fence:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        is_standard = top in sys.stdlib_module_names or top.startswith("_sysconfigdata")
        if top not in SDK and not is_standard:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Fence())
importlib.metadata.entry_points = lambda **_: ()  # no product is installed either
from millpond.integrations.comfyui.__main__ import main
main()
"""


@dataclass(slots=True)
class SystemUnderTest:
    """All that runs, and how a customer uses it."""

    sh: Shell
    up: Up
    comfyui: str
    hands: Command | None = None

    def worker(self) -> Command:
        """The one that is there, or a new one."""
        if self.hands is None or not self.hands.is_running:
            words = ("--url", self.up.url, "--comfyui", self.comfyui, "--route", "invert", "--grace", "0.2s", "--json")
            secret = self.up.ready["fleet_secret"]
            self.hands = self.sh.start("worker", "comfyui", *words, MILLPOND_FLEET_SECRET=secret)
        return self.hands

    def sdk_worker(self, *words: str) -> Command:
        """As it runs where nothing but the SDK is installed, without websockets."""
        given = ("--url", self.up.url, "--comfyui", self.comfyui, "--route", "invert", *words)
        secret = self.up.ready["fleet_secret"]
        return self.sh.launch(sys.executable, "-c", BARE, *given, MILLPOND_FLEET_SECRET=secret)

    async def submit(self, workflow: Any = INVERT, **asset: Any) -> str:
        body = {"name": "in.png", "content_type": "image/png", "size": len(sample())}
        made = (await self.up.request("POST", "/v1/artifacts", body)).json()
        signed = made["upload"]
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            sent = await http.request(signed["method"], signed["url"], headers=signed["headers"], content=sample())
        assert sent.is_success, sent.text
        return await self.up.submit("invert", task(workflow, asset={"name": made["id"]} | asset))

    async def switch(self, **switches: Any) -> None:
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            assert (await http.post(f"{self.comfyui}/_double/switch", json=switches)).is_success

    async def queue(self) -> int:
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            response = (await http.get(f"{self.comfyui}/prompt")).json()
        return response["exec_info"]["queue_remaining"]

    async def until_queue(self, length: int) -> None:
        async def is_so() -> bool:
            return await self.queue() == length

        await until(is_so)


@pytest.fixture(scope="module")
async def system(
    anyio_backend: str, server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SystemUnderTest]:
    folder = tmp_path_factory.mktemp("system")
    (folder / "app.py").write_text(APP)
    async with server.database() as dsn:
        with shell(folder, dsn) as sh:
            words = ("-m", "tests.doubles.comfyui", "--port", "0", "--dir", "comfyui")
            double = sh.launch(sys.executable, *words, PYTHONPATH=str(ROOT))

            async def is_up() -> bool:
                assert double.is_running, double.stderr
                return "http://" in double.stdout

            running = await up(sh, "app.py")
            await until(is_up)
            address = re.search(r"http://\S+", double.stdout)
            assert address is not None
            yield SystemUnderTest(sh, running, address[0])


@pytest.fixture
async def quiet(system: SystemUnderTest) -> AsyncIterator[SystemUnderTest]:
    """With nothing in its cache; the workers of a test end with it."""
    await system.switch(restart=True, slow={}, hung=False)
    with system.sh.visit():
        yield system


async def test_a_job_goes_all_the_way_and_costs_its_price(quiet: SystemUnderTest) -> None:
    quiet.worker()
    job = await quiet.up.until("ended", await quiet.submit())
    assert job["state"] == "succeeded", job
    assert job["captured"] == 5
    file = job["output"]["file"]
    response = (await quiet.up.request("GET", f"/v1/artifacts/{file['id']}")).json()
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        content = (await http.get(response["download"]["url"])).content
    assert len(content) == file["size"]
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.getpixel((0, 0)) == (55, 225, 195)


async def test_a_bad_workflow_fails_with_its_node_and_costs_nothing(quiet: SystemUnderTest) -> None:
    quiet.worker()
    bad = INVERT | {"2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 1]}}}
    job = await quiet.up.until("ended", await quiet.submit(bad))
    assert (job["state"], job["captured"]) == ("failed", 0)
    assert "node 2 (ImageInvert), input image: Return type mismatch" in job["error"]["message"]
    assert job["error"]["reason"] == "validation"
    missing = await quiet.up.until("ended", await quiet.submit(name="art_00000000000000000000000000"))
    assert missing["state"] == "failed"
    assert "cannot be downloaded" in missing["error"]["message"]


async def test_efx_23_a_cancel_reaches_comfyui_and_costs_nothing(quiet: SystemUnderTest) -> None:
    await quiet.switch(slow={"ImageInvert": 20})
    quiet.worker()
    job_id = await quiet.submit()
    await quiet.until_queue(1)
    await quiet.up.request("POST", f"/v1/jobs/{job_id}/cancel")
    job = await quiet.up.until("ended", job_id)
    assert (job["state"], job["captured"]) == ("canceled", 0)
    await quiet.until_queue(0)


async def test_a_cancel_ends_the_job_as_canceled_although_comfyui_hangs(quiet: SystemUnderTest) -> None:
    """Not by a heartbeat, which the worker sends every half minute, nor by the server after the grace period."""
    await quiet.switch(slow={"ImageInvert": 3600})
    quiet.worker()
    job_id = await quiet.submit()
    await quiet.until_queue(1)
    await quiet.switch(hung=True)
    await quiet.up.request("POST", f"/v1/jobs/{job_id}/cancel")
    job = await quiet.up.until("ended", job_id)
    await quiet.switch(hung=False)
    assert (job["state"], job["captured"]) == ("canceled", 0)
    assert job["error"]["code"] == "canceled"


async def test_a_worker_whose_comfyui_hangs_takes_no_jobs_until_it_responds_again(quiet: SystemUnderTest) -> None:
    """The job keeps all its attempts, and operators see why it waits."""

    async def status() -> Any:
        workers = (await quiet.up.request("GET", "/v1/workers", key="admin_key")).json()["data"]
        worker = max((one for one in workers if one["is_fleet"]), key=lambda one: one["registered_at"])
        return worker["status"], worker["unready_reason"]

    async def is_unready() -> bool:
        return await status() == ("unready", "ComfyUI does not respond.")

    quiet.worker()
    assert (await quiet.up.until("ended", await quiet.submit()))["state"] == "succeeded"
    await quiet.switch(hung=True)
    job_id = await quiet.submit()
    await until(is_unready)
    assert (await quiet.up.until("ready", job_id))["attempts"] == 0
    await quiet.switch(hung=False)
    job = await quiet.up.until("ended", job_id)
    assert (job["state"], job["attempts"]) == ("succeeded", 0), job
    assert await status() in {("idle", None), ("busy", None)}


async def test_efx_22_a_worker_that_must_go_gives_its_job_back_and_another_ends_it(quiet: SystemUnderTest) -> None:
    await quiet.switch(slow={"ImageInvert": 20})
    leaving = quiet.worker()
    job_id = await quiet.submit()
    await quiet.until_queue(1)
    leaving.terminate()
    assert leaving.wait() == 0, leaving.stderr
    assert '"routes":["invert"]' in leaving.stdout.replace(" ", "")
    await quiet.until_queue(0)
    await quiet.switch(slow={})
    other = quiet.sdk_worker("--drain")
    assert other.wait() == 0, other.stderr
    job = await quiet.up.job(job_id)
    assert (job["state"], job["captured"]) == ("succeeded", 5), job


@pytest.mark.slow
async def test_efx_22_a_spot_notice_gives_the_job_back_in_time(quiet: SystemUnderTest) -> None:
    """The instance goes in 16 seconds, and 15 of them are kept for giving back."""
    if quiet.hands is not None:
        quiet.hands.terminate()
        quiet.hands.wait()
    await quiet.switch(slow={"ImageInvert": 3600})
    machine = Machine()
    with metadata(machine) as url:
        words = ("--url", quiet.up.url, "--comfyui", quiet.comfyui, "--route", "invert", "--spot")
        secrets = {"MILLPOND_FLEET_SECRET": quiet.up.ready["fleet_secret"], "MILLPOND_EC2_METADATA": url}
        nowhere = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
        spot = quiet.sh.start("worker", "comfyui", *words, **secrets, **nowhere)
        job_id = await quiet.submit()
        await quiet.until_queue(1)
        machine.interrupt(seconds=16)
        assert spot.wait() == 0, spot.stderr
    await quiet.until_queue(0)
    job = await quiet.up.job(job_id)
    assert (job["phase"], job["attempts"]) == ("ready", 0), job
    assert [line["reason"] for line in spot.log if line["event"] == "worker.leaving"] == ["spot terminate"]
    await quiet.up.request("POST", f"/v1/jobs/{job_id}/cancel")


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (["--url", "http://127.0.0.1:9"], 5, "No route to serve"),
        (["--route", "invert", "--provider", "cloud", "--url", "http://127.0.0.1:9"], 5, "Set COMFY_API_KEY"),
        (["--route", "invert", "--comfyui", "nonsense", "--url", "http://127.0.0.1:9"], 5, "not a URL"),
        (["--route", "invert", "--stall", "soon", "--url", "http://127.0.0.1:9"], 5, "stall"),
        (["--provider", "nobody"], 2, "nobody"),
    ],
    ids=["no route", "no key", "no url", "no duration", "no provider"],
)
@pytest.mark.parametrize("run", [cli.main, program.main], ids=["command line", "program of the SDK"])
def test_what_cannot_work_is_reported(
    run: Any,
    words: list[str],
    status: int,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COMFY_API_KEY", raising=False)
    monkeypatch.setenv("MILLPOND_FLEET_SECRET", "mp_worker_x")
    with pytest.raises(SystemExit) as left:
        run([*(["worker", "comfyui"] if run is cli.main else []), *words])
    logs.silence()
    assert left.value.code == status
    assert expected in capsys.readouterr().err
