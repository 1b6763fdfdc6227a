"""AWS as the tests see it: moto's server, behind a proxy that counts calls and can refuse them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import botocore.session
import httpx2

from millpond.integrations.aws.groups import Groups
from tests.checks import until
from tests.children import running_other
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "eu-central-1"
IMAGE = "ami-0123456789abcdef0"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # nothing is there: a call that names no endpoint goes nowhere
}
"""Made-up credentials, and no way out of this machine."""

_ERROR = "<ErrorResponse><Error><Type>Sender</Type><Code>{0}</Code><Message>{0}</Message></Error></ErrorResponse>"

# moto_server, which ends when whoever started it is gone.
_MOTO = """
import sys
from moto.server import main
main(sys.argv[1:])
"""


class Amazon:
    """The proxy, and how a test sets the scene behind it."""

    def __init__(self, moto: str) -> None:
        self.moto = moto
        self.http = httpx2.Client(timeout=PATIENCE)
        self.calls: list[dict[str, str]] = []
        self.refusals: deque[tuple[int, str]] = deque()
        """The next answers: a status and a code of Amazon's."""
        self.is_down = False
        self.may_answer = threading.Event()
        """While it is not set, nobody is answered."""
        self.may_answer.set()
        self._server = _serve(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        # The scene is set behind the proxy, so that a test counts only what it calls.
        self.client: Any = botocore.session.Session().create_client(
            "autoscaling", region_name=REGION, endpoint_url=moto
        )
        self._shared = Groups(region=REGION, endpoint_url=self.url)._made()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.http.close()

    def reset(self) -> None:
        self.http.post(f"{self.moto}/moto-api/reset").raise_for_status()
        self.calls.clear()
        self.refusals.clear()
        self.is_down = False
        self.may_answer.set()

    def groups(self) -> Groups:
        """To speak through the proxy; the client below is made once, for that takes a while."""
        made = Groups(region=REGION, endpoint_url=self.url)
        made._client = self._shared
        return made

    def make_group(self, name: str = "gpus", *, min: int = 0, max: int = 10, desired: int = 1) -> list[str]:  # noqa: A002
        """A group with so many instances in service; tells their ids."""
        self.client.create_launch_configuration(
            LaunchConfigurationName=f"of-{name}", ImageId=IMAGE, InstanceType="t3.micro"
        )
        self.client.create_auto_scaling_group(
            AutoScalingGroupName=name,
            LaunchConfigurationName=f"of-{name}",
            MinSize=min,
            MaxSize=max,
            DesiredCapacity=desired,
            AvailabilityZones=[f"{REGION}a"],
        )
        return self.members(name)

    def members(self, group: str = "gpus") -> list[str]:
        return [each["InstanceId"] for each in self.described(group)["Instances"]]

    def protected(self, group: str = "gpus") -> set[str]:
        return {each["InstanceId"] for each in self.described(group)["Instances"] if each["ProtectedFromScaleIn"]}

    def capacity(self, group: str = "gpus") -> int:
        return self.described(group)["DesiredCapacity"]

    def protect(self, instance_id: str, group: str = "gpus") -> None:
        self.client.set_instance_protection(
            InstanceIds=[instance_id], AutoScalingGroupName=group, ProtectedFromScaleIn=True
        )

    def described(self, group: str) -> dict[str, Any]:
        return self.client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]

    def called(self, action: str) -> list[dict[str, str]]:
        return [call for call in self.calls if call["Action"] == action]


def _serve(amazon: Amazon) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            amazon.calls.append({name: value[0] for name, value in parse_qs(body.decode()).items()})
            amazon.may_answer.wait()
            if amazon.is_down:
                self.close_connection = True
            elif amazon.refusals:
                status, code = amazon.refusals.popleft()
                self._reply(status, _ERROR.format(code).encode())
            else:
                names = ("Authorization", "Content-Type", "X-Amz-Date")
                kept = {name: self.headers[name] for name in names if name in self.headers}
                answer = amazon.http.post(amazon.moto, content=body, headers=kept)
                self._reply(answer.status_code, answer.content)

        def _reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the name is the library's

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    return server


async def until_protected(amazon: Amazon, *instances: str) -> None:
    async def is_so() -> bool:
        return amazon.protected() == set(instances)

    await until(is_so)


@contextlib.contextmanager
def running_moto(folder: Path) -> Iterator[str]:
    """The address of a moto server; told of one machine image alone, it need not read thousands."""
    images = folder / "images.json"
    images.write_text(json.dumps([_image()]), "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-c", _MOTO, "-H", "127.0.0.1", "-p", str(port)]
    fields = {"MOTO_AMIS_PATH": str(images), "MOTO_EC2_LOAD_DEFAULT_AMIS": "true"}
    with (
        (folder / "moto.log").open("wb") as log,
        running_other(words, env=os.environ | ENVIRONMENT | fields, stdout=log, stderr=log) as process,
    ):
        _await(url, process, folder / "moto.log")
        yield url


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/moto-api/data.json").status_code == 200:
                return
        assert process.poll() is None, log.read_text("utf-8")
        assert time.monotonic() < deadline, "moto does not answer"
        time.sleep(0.05)


def _image() -> dict[str, Any]:
    return {
        "ami_id": IMAGE,
        "name": "gpu",
        "description": "A machine image",
        "owner_id": "099720109477",
        "public": True,
        "virtualization_type": "hvm",
        "architecture": "x86_64",
        "state": "available",
        "platform": None,
        "image_type": "machine",
        "hypervisor": "xen",
        "root_device_name": "/dev/sda1",
        "root_device_type": "ebs",
        "sriov": "simple",
        "image_location": "amazon/gpu",
    }
