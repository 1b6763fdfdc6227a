"""Auto Scaling Groups, through botocore. Its calls block, so each runs in a thread.

Region and credentials are found as by all AWS tools: environment, configuration files, the role of the instance. A call
that AWS cannot accept now raises :class:`UnavailableError`, whatever the error code.
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
    """Its lifecycle state: ``InService``, ``Pending:Wait``, ``Terminating``, ``Standby``, …"""
    is_protected: bool
    group: str
    is_healthy: bool = True

    @property
    def is_in_service(self) -> bool:
        return self.state == "InService"


@dataclass(frozen=True, slots=True)
class AutoScalingGroup:
    """An Auto Scaling Group, with its members."""

    name: str
    min: int
    max: int
    desired: int
    instances: tuple[Instance, ...] = ()
    is_weighted: bool = False
    """Whether its capacity is not measured in instances."""


class Groups:
    """The API calls that are needed. An operator must permit exactly these."""

    def __init__(self, *, region: str | None = None, endpoint_url: str | None = None) -> None:
        self._region = region
        self._endpoint_url = endpoint_url
        self._client: Any = None
        self._making = threading.Lock()

    async def close(self) -> None:
        """Close the connections that no call uses."""
        if self._client is not None:
            self._client.close()

    async def group(self, name: str) -> AutoScalingGroup:
        answer = await self._call("describe_auto_scaling_groups", AutoScalingGroupNames=[name])
        found = answer["AutoScalingGroups"]
        if not found:
            raise NotFoundError(f"The Auto Scaling Group {name!r} does not exist in this region.", field="group")
        return _group(found[0])

    async def instances(self, instance_ids: Iterable[str]) -> dict[str, Instance]:
        """Those of the instances that belong to a group."""
        wanted = list(instance_ids)
        found: dict[str, Instance] = {}
        for start in range(0, len(wanted), _IDS_MAX):
            some = wanted[start : start + _IDS_MAX]
            answer = await self._call("describe_auto_scaling_instances", InstanceIds=some)
            for each in answer["AutoScalingInstances"]:
                found[each["InstanceId"]] = _instance(each, each["AutoScalingGroupName"])
        return found

    async def protect(self, group: str, instance_id: str, *, is_protected: bool) -> None:
        """Protect an instance from scale-in by its group, or no longer. Spot interruptions are not prevented."""
        await self._call(
            "set_instance_protection",
            AutoScalingGroupName=group,
            InstanceIds=[instance_id],
            ProtectedFromScaleIn=is_protected,
        )

    async def set_desired(self, group: str, desired: int) -> None:
        await self._call("set_desired_capacity", AutoScalingGroupName=group, DesiredCapacity=desired)

    async def terminate(self, instance_id: str, *, is_shrinking: bool) -> None:
        """Terminate an instance; its group shrinks with it, or replaces it."""
        await self._call(
            "terminate_instance_in_auto_scaling_group",
            InstanceId=instance_id,
            ShouldDecrementDesiredCapacity=is_shrinking,
        )

    async def _call(self, verb: str, **given: Any) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Not in a pool, whose threads are joined at exit: a call that hangs must not keep the process alive.
        threading.Thread(target=self._run, args=(done, verb, given), name="millpond-aws", daemon=True).start()
        return await done

    def _run(self, done: asyncio.Future[Any], verb: str, given: Mapping[str, Any]) -> None:
        settle: Callable[[Any], None]
        try:
            outcome, settle = self._do(verb, given), done.set_result
        except Exception as error:  # noqa: BLE001 - it is raised to the caller
            outcome, settle = error, done.set_exception
        with contextlib.suppress(RuntimeError):  # the loop is closed
            done.get_loop().call_soon_threadsafe(lambda: None if done.done() else settle(outcome))

    def _do(self, verb: str, given: Mapping[str, Any]) -> Any:
        exceptions = _botocore("exceptions")
        try:
            return getattr(self._made(), verb)(**given)
        except exceptions.ClientError as error:
            raise _refused(error, verb) from error
        except exceptions.BotoCoreError as error:
            raise _unreached(error, verb) from error

    def _made(self) -> Any:
        """The client. It is created in a thread too, because that reads files and may call the metadata service."""
        with self._making:
            if self._client is None:
                self._client = _client(self._region, self._endpoint_url)
        return self._client


def _botocore(module: str) -> Any:
    try:
        return import_module(f"botocore.{module}")
    except ImportError as error:
        raise SettingsError("Auto Scaling Groups require botocore.", hint="Run pip install 'millpond[aws]'.") from error


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


def _group(data: Mapping[str, Any]) -> AutoScalingGroup:
    instances = tuple(_instance(each, data["AutoScalingGroupName"]) for each in data.get("Instances", ()))
    return AutoScalingGroup(
        data["AutoScalingGroupName"],
        data["MinSize"],
        data["MaxSize"],
        data["DesiredCapacity"],
        instances,
        any("WeightedCapacity" in each for each in data.get("Instances", ())),
    )


def _instance(data: Mapping[str, Any], group: str) -> Instance:
    # "Healthy" in the response of one call, "HEALTHY" in that of the other.
    is_healthy = str(data.get("HealthStatus", "healthy")).lower() == "healthy"
    is_protected = bool(data.get("ProtectedFromScaleIn"))
    return Instance(data["InstanceId"], data["LifecycleState"], is_protected, group, is_healthy)


def _refused(error: Any, verb: str) -> MillpondError:
    """The error for a call that AWS rejected."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = f"AWS rejected {verb}: {error.response.get('Error', {}).get('Message') or code}"
    if code in _BUSY:
        return BusyError(message)
    if code in _DENIED:
        return ForbiddenError(message, hint="Grant this permission to the role or user.")
    if code in _UNKNOWN:
        return UnauthorizedError(message, hint="Check the AWS credentials; they are invalid or expired.")
    if code in _THROTTLED or status >= _SERVER_ERROR:
        return UnavailableError(message)
    return InvalidError(message)


def _unreached(error: Any, verb: str) -> MillpondError:
    """The error for a call that did not reach AWS."""
    known = _botocore("exceptions")
    match error:
        case known.NoCredentialsError() | known.PartialCredentialsError():
            return UnauthorizedError(f"{verb} requires AWS credentials.", hint="Assign a role to the machine.")
        case known.NoRegionError():
            return SettingsError("The AWS region is not set.", hint="Set AWS_REGION.")
        case known.ParamValidationError():
            return InvalidError(f"AWS rejected the arguments of {verb}: {error}")
        case _:
            return UnavailableError(f"AWS could not be reached for {verb}: {error}")


# A worker's own instance


class Protection:
    """Scale-in protection of the instance that a worker runs on: on while it is busy, off when it is idle.

    Jobs do not wait for it: changes are applied in the background, and only the last one counts. A worker that is idle
    for a moment between two jobs stays protected. Failures are logged and retried.
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
        self._applied: bool | None = None  # the protection before is not known
        self._is_leaving = False
        self._changed = asyncio.Event()
        self._backoff = backoff
        self._task: asyncio.Task[None] | None = None

    def on_busy(self, is_busy: bool) -> None:  # noqa: FBT001 - the worker's hook
        """Note whether there is work. Returns immediately."""
        self._wanted = is_busy
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self, seconds: float = 5.0) -> None:
        """Remove the protection at once, because the worker leaves; give up after the given seconds."""
        self._is_leaving = True
        self.on_busy(is_busy=False)
        if self._task is None:
            return
        # Wait for a running call: if abandoned, it could still arrive, after the call that removes the protection.
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
        """Whether another change comes within this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _pause(self, failures: int) -> float:
        return self._backoff.delay(failures, random.random()).total_seconds()  # noqa: S311 - jitter

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


# The server's check of workers


class InstanceCheck:
    """Whether an instance belongs to an Auto Scaling Group: one of ``known``, or any.

    The answer is cached for a minute. If AWS cannot be reached there is none, which is cached for some seconds only.
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
        """Whether it belongs; None if AWS cannot be reached. The caller then admits the worker."""
        if not _INSTANCE_ID.fullmatch(instance_id):
            return False
        until, answer = self._answers.get(instance_id, (0.0, None))
        if self._clock() < until:
            return answer
        asking = self._asking.get(instance_id)
        if asking is None:
            asking = self._asking[instance_id] = asyncio.create_task(self._ask(instance_id))
            asking.add_done_callback(lambda _: self._asking.pop(instance_id, None))
        return await asyncio.shield(asking)  # a caller that is canceled does not cancel the others

    async def _ask(self, instance_id: str) -> bool | None:
        try:
            async with asyncio.timeout(self._patience):  # a worker waits for it
                found = (await self._groups.instances([instance_id])).get(instance_id)
        except (MillpondError, TimeoutError) as error:
            logs.emit("check.skipped", instance=instance_id, error=str(error) or "AWS did not respond in time.")
            return self._keep(instance_id, None, self._doubt)
        is_known = found is not None and (not self._known or found.group in self._known)
        return self._keep(instance_id, is_known, self._lifetime)

    def _keep(self, instance_id: str, answer: bool | None, seconds: float) -> bool | None:  # noqa: FBT001 - an answer
        while len(self._answers) >= _CACHED_MAX:
            self._answers.pop(next(iter(self._answers)))
        self._answers[instance_id] = (self._clock() + seconds, answer)
        return answer
