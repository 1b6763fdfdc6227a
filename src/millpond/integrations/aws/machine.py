"""The EC2 instance that a worker runs on."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from importlib.util import find_spec

from millpond.errors import UnavailableError
from millpond.integrations.aws.groups import Groups, Protection
from millpond.integrations.aws.metadata import Metadata
from millpond.integrations.aws.notices import Notices


@dataclass
class Ec2Machine:
    """Its id (the worker's name), its notices, and its protection from scale-in, if botocore is installed."""

    instance_id: str
    metadata: Metadata
    notices: Notices
    protection: Protection | None = None
    groups: Groups | None = None

    def on_busy(self, is_busy: bool) -> None:  # noqa: FBT001 - the worker's hook
        """Protect the instance while there is work."""
        if self.protection is not None:
            self.protection.on_busy(is_busy)

    async def identify(self) -> dict[str, str] | None:
        """The proof of identity for the registration; None if the metadata service does not provide it."""
        try:
            return asdict(await self.metadata.identity())
        except UnavailableError:
            return None

    async def close(self) -> None:
        """Remove the protection and close all connections."""
        if self.protection is not None:
            await self.protection.close()
        if self.groups is not None:
            await self.groups.close()
        await self.metadata.close()


def find_machine() -> Ec2Machine:
    """The instance that this process runs on, for a program whose event loop does not run yet."""
    return asyncio.run(this_machine())


async def this_machine(metadata_url: str | None = None, *, endpoint_url: str | None = None) -> Ec2Machine:
    """The instance that this process runs on. Outside of EC2, it raises :class:`UnavailableError` after some seconds.

    The returned machine may be used in another event loop.
    """
    async with Metadata(metadata_url) as asked:
        instance_id = await asked.instance_id()
        region = await asked.region()
    metadata = Metadata(metadata_url)
    machine = Ec2Machine(instance_id, metadata, Notices(metadata))
    if find_spec("botocore") is not None:
        machine.groups = Groups(region=region, endpoint_url=endpoint_url)
        machine.protection = Protection(machine.groups, instance_id)
    return machine
