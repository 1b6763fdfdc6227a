"""What the tests of Amazon's side ask for; nothing here can reach the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest

from millpond import logs
from tests.api.sites import running_site
from tests.aws.amazon import ENVIRONMENT, Amazon, running_moto
from tests.aws.system import SystemUnderTest
from tests.doubles.ec2_metadata import Machine, served
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from millpond.engine.engine import Engine
    from tests.factories import Factory


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_moto(tmp_path_factory.mktemp("moto")) as url:
        yield url


@pytest.fixture(scope="session")
def executor(moto: str) -> Iterator[Amazon]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        made = Amazon(moto)
    yield made
    made.close()


@pytest.fixture
def amazon(executor: Amazon) -> Amazon:
    """AWS with nothing in it."""
    executor.reset()
    return executor


@pytest.fixture(autouse=True)
def _made_up_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def metadata_url(machine: Machine) -> Iterator[str]:
    with served(machine) as url:
        yield url


@pytest.fixture
async def system(engine: Engine, make: Factory, amazon: Amazon) -> AsyncIterator[SystemUnderTest]:
    async with running_site(engine) as site:
        key = await site.key(scope="worker", tenant=None, account=None)
        async with httpx2.AsyncClient(base_url=site.url, timeout=PATIENCE) as http:
            yield SystemUnderTest(site, amazon, make, key, http)


@pytest.fixture
def log() -> Iterator[list[dict[str, Any]]]:
    """The lines that are written while the test runs."""
    lines = Lines()
    logs.configure("debug", as_json=True, stream=lines)
    yield lines.read
    logs.silence()


class Lines:
    """A stream that reads its own lines."""

    def __init__(self) -> None:
        self.read: list[dict[str, Any]] = []
        self._rest = ""

    def write(self, text: str) -> int:
        *whole, self._rest = (self._rest + text).split("\n")
        self.read += [msgspec.json.decode(line) for line in whole if line]
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False
