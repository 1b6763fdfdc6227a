"""The resources that a process has created: each once, however many jobs need it at the same time."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millpond import values
from millpond.errors import ResourceFailedError
from millpond.redaction import redact
from millpond.worker import job_logging
from millpond.worker.calls import contained

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable

    from millpond.resources import DeclaredResource

    InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
    Close = Callable[[], Awaitable[Any]]

_MESSAGE_MAX: Final = 500
_END: Final = object()


@dataclass(frozen=True, slots=True)
class Created:
    """A resource, and how it is closed."""

    value: Any
    close: Close | None


class Resources:
    """The resources of this process. Plain functions that create them are called by ``in_thread``.

    ``on_change`` is called after one was created; ``on_failure`` with the name of one that could not be closed.
    """

    def __init__(
        self, in_thread: InThread, on_change: Callable[[], object], on_failure: Callable[[str, Exception], object]
    ) -> None:
        self._in_thread = in_thread
        self._on_change = on_change
        self._on_failure = on_failure
        self._created: dict[str, Created] = {}
        self._creating: dict[str, asyncio.Task[Any]] = {}

    @property
    def loaded(self) -> list[str]:
        """The names of those that are created, in that order."""
        return list(self._created)

    async def get(self, resources: Iterable[DeclaredResource]) -> dict[str, Any]:
        """These resources by name; those that are missing are created."""
        return {resource.name: await self._get(resource) for resource in resources}

    async def close(self) -> None:
        """Close all resources, in reverse order. One that fails does not keep the others open."""
        for task in self._creating.values():
            task.cancel()
        while self._created:
            name, created = self._created.popitem()
            if created.close is not None:
                try:
                    await contained(created.close())
                except Exception as error:  # noqa: BLE001 - the code of a resource may raise anything
                    self._on_failure(name, error)

    async def _get(self, resource: DeclaredResource) -> Any:
        if resource.name in self._created:
            return self._created[resource.name].value
        task = self._creating.get(resource.name)
        if task is None:
            with job_logging.outside():  # it is for all jobs, whichever needs it first
                task = self._creating[resource.name] = asyncio.create_task(self._create(resource))
            task.add_done_callback(_seen)
        return await asyncio.shield(task)  # a job may be canceled; others wait for the resource too

    async def _create(self, resource: DeclaredResource) -> Any:
        try:
            needs = await self.get(resource.needs)
            created = await self._call(resource, needs)
        except ResourceFailedError:
            raise
        except Exception as error:
            text = redact(values.printable(f"{type(error).__name__}: {error}", _MESSAGE_MAX))
            raise ResourceFailedError(
                f"The resource {resource.name!r} could not be created: {text}", resource=resource.name
            ) from error
        finally:
            del self._creating[resource.name]
        self._created[resource.name] = created
        self._on_change()
        return created.value

    async def _call(self, resource: DeclaredResource, needs: dict[str, Any]) -> Created:
        create = resource.create
        if inspect.isasyncgenfunction(create):
            generating = create(**needs)
            return Created(await contained(_first(generating)), lambda: _end(generating))
        if inspect.isgeneratorfunction(create):
            generator = create(**needs)
            value = await contained(self._in_thread(lambda: _first_of(generator)))
            return Created(value, lambda: self._in_thread(lambda: _end_of(generator)))
        if inspect.iscoroutinefunction(create):
            return Created(await contained(create(**needs)), None)
        return Created(await contained(self._in_thread(lambda: create(**needs))), None)


def _seen(task: asyncio.Task[Any]) -> None:
    """Note the error of a task: those that wait for it may have been canceled."""
    if not task.cancelled():
        task.exception()


async def _first(generator: AsyncGenerator[Any]) -> Any:
    async for value in generator:
        return value
    raise RuntimeError("It does not yield.")


async def _end(generator: AsyncGenerator[Any]) -> None:
    async for _ in generator:
        await generator.aclose()
        raise RuntimeError("It yields more than once.")


def _first_of(generator: Generator[Any]) -> Any:
    value = next(generator, _END)
    if value is _END:
        raise RuntimeError("It does not yield.")
    return value


def _end_of(generator: Generator[Any]) -> None:
    if next(generator, _END) is not _END:
        generator.close()
        raise RuntimeError("It yields more than once.")
