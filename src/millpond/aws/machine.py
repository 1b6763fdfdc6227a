"""The EC2 instance that a worker runs on, with all that the worker needs of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec

from millpond.aws.groups import Groups, Protection
from millpond.aws.metadata import Metadata
from millpond.aws.notices import Notices
from millpond.errors import UnavailableError


@dataclass
class Machine:
    """Its id (the worker's name), its notices, and its protection from scale-in, where botocore is installed."""

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
        """The proof of who this is, for the registration; None where the service does not give it."""
        try:
            return asdict(await self.metadata.identity())
        except UnavailableError:
            return None

    async def close(self) -> None:
        """Lift the protection and let go of all."""
        if self.protection is not None:
            await self.protection.close()
        if self.groups is not None:
            await self.groups.close()
        await self.metadata.close()


async def this_machine(metadata_url: str | None = None, *, endpoint_url: str | None = None) -> Machine:
    """The instance we run on; elsewhere than on EC2 it raises :class:`UnavailableError`, within some seconds.

    The loop that asks need not be the one in which the machine is used later.
    """
    async with Metadata(metadata_url) as asked:
        instance_id = await asked.instance_id()
        region = await asked.region()
    metadata = Metadata(metadata_url)
    machine = Machine(instance_id, metadata, Notices(metadata))
    if find_spec("botocore") is not None:
        machine.groups = Groups(region=region, endpoint_url=endpoint_url)
        machine.protection = Protection(machine.groups, instance_id)
    return machine
