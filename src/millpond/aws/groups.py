"""Auto Scaling Groups, through botocore. Its calls block, so each runs in a thread.

Region and credentials are found as every tool of Amazon's finds them: environment, configuration files, the role of
the machine. A call that AWS cannot take now raises :class:`UnavailableError`, however it says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import threading
import time
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from millpond import logs
from millpond.errors import (
    BusyError,
    ForbiddenError,
    InvalidError,
    MillpondError,
    NotFoundError,
    SettingsError,
    UnauthorizedError,
    UnavailableError,
)
from millpond.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_IDS_MAX: Final = 50  # in one call
_CACHED_MAX: Final = 10_000
_CONNECT_SECONDS: Final = 3
_READ_SECONDS: Final = 10
_ATTEMPTS: Final = 3
_SERVER_ERROR: Final = 500
_BACKOFF: Final = Backoff()
_INSTANCE_ID: Final = re.compile(r"i-[0-9a-f]{8,17}")

_BUSY: Final = {"ResourceContention", "ResourceContentionFault", "ScalingActivityInProgress", "ResourceInUse"}
_DENIED: Final = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "OptInRequired"}
_UNKNOWN: Final = {
    "AuthFailure",
    "ExpiredToken",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_THROTTLED: Final = {"RequestLimitExceeded", "ServiceUnavailable", "Throttling", "ThrottlingException"}


@dataclass(frozen=True, slots=True)
class Instance:
    """A member of a group."""

    instance_id: str
    state: str
    """Where it stands in its life: ``InService``, ``Pending:Wait``, ``Terminating``, ``Standby``, …"""
    is_protected: bool
    group: str
    is_healthy: bool = True

    @property
    def is_in_service(self) -> bool:
        return self.state == "InService"


@dataclass(frozen=True, slots=True)
class Group:
    """An Auto Scaling Group, with its members."""

    name: str
    min: int
    max: int
    desired: int
    instances: tuple[Instance, ...] = ()
    is_weighted: bool = False
    """Whether its capacity is counted in other units than instances."""


class Groups:
    """The calls that are needed, and no more: an operator must allow just these."""

    def __init__(self, *, region: str | None = None, endpoint_url: str | None = None) -> None:
        self._region = region
        self._endpoint_url = endpoint_url
        self._client: Any = None
        self._making = threading.Lock()

    async def close(self) -> None:
        """Close the connections that no call uses."""
        if self._client is not None:
            self._client.close()

    async def group(self, name: str) -> Group:
        told = await self._call("describe_auto_scaling_groups", AutoScalingGroupNames=[name])
        found = told["AutoScalingGroups"]
        if not found:
            raise NotFoundError(f"There is no Auto Scaling Group {name!r} in this region.", field="group")
        return _group(found[0])

    async def instances(self, instance_ids: Iterable[str]) -> dict[str, Instance]:
        """Those of the instances that belong to a group."""
        wanted = list(instance_ids)
        found: dict[str, Instance] = {}
        for start in range(0, len(wanted), _IDS_MAX):
            some = wanted[start : start + _IDS_MAX]
            told = await self._call("describe_auto_scaling_instances", InstanceIds=some)
            for each in told["AutoScalingInstances"]:
                found[each["InstanceId"]] = _instance(each, each["AutoScalingGroupName"])
        return found

    async def protect(self, group: str, instance_id: str, *, is_protected: bool) -> None:
        """Let the group's own scale-in pass over an instance, or no longer; Spot takes it back all the same."""
        await self._call(
            "set_instance_protection",
            AutoScalingGroupName=group,
            InstanceIds=[instance_id],
            ProtectedFromScaleIn=is_protected,
        )

    async def set_desired(self, group: str, desired: int) -> None:
        await self._call("set_desired_capacity", AutoScalingGroupName=group, DesiredCapacity=desired)

    async def terminate(self, instance_id: str, *, is_shrinking: bool) -> None:
        """End an instance; its group shrinks with it, or puts another one in its place."""
        await self._call(
            "terminate_instance_in_auto_scaling_group",
            InstanceId=instance_id,
            ShouldDecrementDesiredCapacity=is_shrinking,
        )

    async def _call(self, verb: str, **given: Any) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Not one of a pool, which would be waited for: a call that hangs must not keep the process from ending.
        threading.Thread(target=self._run, args=(done, verb, given), name="millpond-aws", daemon=True).start()
        return await done

    def _run(self, done: asyncio.Future[Any], verb: str, given: Mapping[str, Any]) -> None:
        tell: Callable[[Any], None]
        try:
            outcome, tell = self._do(verb, given), done.set_result
        except Exception as error:  # noqa: BLE001 - it is raised to whoever asked
            outcome, tell = error, done.set_exception
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            done.get_loop().call_soon_threadsafe(lambda: None if done.done() else tell(outcome))

    def _do(self, verb: str, given: Mapping[str, Any]) -> Any:
        exceptions = _botocore("exceptions")
        try:
            return getattr(self._made(), verb)(**given)
        except exceptions.ClientError as error:
            raise _refused(error, verb) from error
        except exceptions.BotoCoreError as error:
            raise _unreached(error, verb) from error

    def _made(self) -> Any:
        """The client; it is made in a thread too, for it reads files and may ask the metadata service."""
        with self._making:
            if self._client is None:
                self._client = _client(self._region, self._endpoint_url)
        return self._client


def _botocore(module: str) -> Any:
    try:
        return import_module(f"botocore.{module}")
    except ImportError as error:
        raise SettingsError("Auto Scaling Groups need botocore.", hint="pip install 'millpond[aws]'") from error


def _client(region: str | None, endpoint_url: str | None) -> Any:
    config = _botocore("config").Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        user_agent_extra="millpond",
    )
    session = _botocore("session").Session()
    return session.create_client(
        "autoscaling", region_name=region or os.environ.get("AWS_REGION"), endpoint_url=endpoint_url, config=config
    )


def _group(told: Mapping[str, Any]) -> Group:
    instances = tuple(_instance(each, told["AutoScalingGroupName"]) for each in told.get("Instances", ()))
    return Group(
        told["AutoScalingGroupName"],
        told["MinSize"],
        told["MaxSize"],
        told["DesiredCapacity"],
        instances,
        any("WeightedCapacity" in each for each in told.get("Instances", ())),
    )


def _instance(told: Mapping[str, Any], group: str) -> Instance:
    # "Healthy" in one call's answer, "HEALTHY" in the other's.
    is_healthy = str(told.get("HealthStatus", "healthy")).lower() == "healthy"
    is_protected = bool(told.get("ProtectedFromScaleIn"))
    return Instance(told["InstanceId"], told["LifecycleState"], is_protected, group, is_healthy)


def _refused(error: Any, verb: str) -> MillpondError:
    """AWS answered, and said no."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    told = f"AWS refused {verb}: {error.response.get('Error', {}).get('Message') or code}"
    if code in _BUSY:
        return BusyError(told)
    if code in _DENIED:
        return ForbiddenError(told, hint="The role or user needs this permission.")
    if code in _UNKNOWN:
        return UnauthorizedError(told, hint="The AWS credentials are not good.")
    if code in _THROTTLED or status >= _SERVER_ERROR:
        return UnavailableError(told)
    return InvalidError(told)


def _unreached(error: Any, verb: str) -> MillpondError:
    """AWS could not be asked."""
    known = _botocore("exceptions")
    match error:
        case known.NoCredentialsError() | known.PartialCredentialsError():
            return UnauthorizedError(f"There are no AWS credentials for {verb}.", hint="Give the machine a role.")
        case known.NoRegionError():
            return SettingsError("The AWS region is not known.", hint="Set AWS_REGION.")
        case known.ParamValidationError():
            return InvalidError(f"AWS does not take this for {verb}: {error}")
        case _:
            return UnavailableError(f"AWS could not be reached for {verb}: {error}")


# A worker's own instance


class Protection:
    """Scale-in protection of the instance that a worker runs on: on while it is busy, off when it is idle.

    No job waits for it: a change is noted, and applied in the background, the last wish first. A worker that is idle
    for a moment between two jobs stays protected. What goes wrong is logged and tried again.
    """

    def __init__(
        self,
        groups: Groups,
        instance_id: str,
        *,
        group: str | None = None,
        linger: float = 5.0,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self._groups = groups
        self._instance_id = instance_id
        self._group = group
        self._linger = linger
        self._wanted = False
        self._applied: bool | None = None  # nobody knows what it was before
        self._is_leaving = False
        self._changed = asyncio.Event()
        self._backoff = backoff
        self._task: asyncio.Task[None] | None = None

    def on_busy(self, is_busy: bool) -> None:  # noqa: FBT001 - the worker's hook
        """Note whether there is work; comes back at once."""
        self._wanted = is_busy
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self, seconds: float = 5.0) -> None:
        """Lift the protection at once, for the worker is leaving; give up after so many seconds."""
        self._is_leaving = True
        self.on_busy(is_busy=False)
        if self._task is None:
            return
        # A call that is under way is waited for: cut off, it might yet arrive, after the one that lifts it.
        await asyncio.wait([self._task], timeout=seconds)
        self._task.cancel()
        self._task = None

    async def _run(self) -> None:
        failures = 0
        while not (self._is_leaving and self._applied is False):
            await self._changed.wait()
            self._changed.clear()
            if not self._wanted and self._applied and not self._is_leaving and await self._changes_within(self._linger):
                continue
            try:
                await self._apply()
                failures = 0
            except MillpondError as error:
                logs.emit("protection.failed", instance=self._instance_id, wanted=self._wanted, error=str(error))
                failures += 1
                await self._changes_within(self._pause(failures))
                self._changed.set()

    async def _changes_within(self, seconds: float) -> bool:
        """Whether another wish comes within this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _pause(self, failures: int) -> float:
        return self._backoff.delay(failures, random.random()).total_seconds()  # noqa: S311 - spreads the tries

    async def _apply(self) -> None:
        wanted = self._wanted
        if wanted == self._applied:
            return
        if self._group is None:
            found = (await self._groups.instances([self._instance_id])).get(self._instance_id)
            self._group = found.group if found else ""
        if self._group:  # an instance outside every group needs no protection
            await self._groups.protect(self._group, self._instance_id, is_protected=wanted)
            logs.emit("protection.changed", instance=self._instance_id, is_protected=wanted)
        self._applied = wanted


# The server's question


class InstanceCheck:
    """Whether an instance belongs to an Auto Scaling Group: one of those named, or any.

    The answer is kept for a minute. Where AWS cannot be asked there is none, and that is kept for some seconds only.
    """

    def __init__(
        self,
        groups: Groups | None = None,
        *,
        known: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        lifetime: float = 60.0,
        doubt: float = 10.0,
        patience: float = 5.0,
    ) -> None:
        self._groups = groups or Groups()
        self._known = frozenset(known)
        self._clock = clock
        self._lifetime = lifetime
        self._doubt = doubt
        self._patience = patience
        self._answers: dict[str, tuple[float, bool | None]] = {}
        self._asking: dict[str, asyncio.Task[bool | None]] = {}

    async def belongs(self, instance_id: str) -> bool | None:
        """None where AWS cannot be asked: the caller lets the worker in."""
        if not _INSTANCE_ID.fullmatch(instance_id):
            return False
        until, answer = self._answers.get(instance_id, (0.0, None))
        if self._clock() < until:
            return answer
        asking = self._asking.get(instance_id)
        if asking is None:
            asking = self._asking[instance_id] = asyncio.create_task(self._ask(instance_id))
            asking.add_done_callback(lambda _: self._asking.pop(instance_id, None))
        return await asyncio.shield(asking)  # one caller that goes away takes nothing from the others

    async def _ask(self, instance_id: str) -> bool | None:
        try:
            async with asyncio.timeout(self._patience):  # a worker waits for it
                found = (await self._groups.instances([instance_id])).get(instance_id)
        except (MillpondError, TimeoutError) as error:
            logs.emit("check.skipped", instance=instance_id, error=str(error) or "AWS did not answer in time.")
            return self._keep(instance_id, None, self._doubt)
        is_known = found is not None and (not self._known or found.group in self._known)
        return self._keep(instance_id, is_known, self._lifetime)

    def _keep(self, instance_id: str, answer: bool | None, seconds: float) -> bool | None:  # noqa: FBT001 - an answer
        while len(self._answers) >= _CACHED_MAX:
            self._answers.pop(next(iter(self._answers)))
        self._answers[instance_id] = (self._clock() + seconds, answer)
        return answer
