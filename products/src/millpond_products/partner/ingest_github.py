"""The ingest of a repository: facts about the project, and a pull request that adds the SDK."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.errors import InvalidError, PermanentError
from millpond.product import Folders, Proxy
from millpond_products import allowed
from millpond_products.github import GitHub
from millpond_products.partner import cloning, findings, identifiers, patches, projects, pull_requests, repositories
from millpond_products.partner.git import SECONDS_MAX, SIZE_MAX, Git, GitError
from millpond_products.partner.orders import GithubOrder

if TYPE_CHECKING:
    from millpond.kinds import Handler
    from millpond.product import Engine, Target
    from millpond_products.partner.patches import Patch
    from millpond_products.partner.repositories import Repository
    from millpond_products.settings import ProductSettings

_CLOSED: Final = "The repository is not on the operator's list: MILLPOND_REPOSITORIES."


def handler(engine: Engine, settings: ProductSettings) -> Handler:
    github = GitHub(engine.outbound, settings.github_url, settings.github_token)
    folders = Folders("millpond-clone-")

    async def run(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        order = msgspec.convert(given, GithubOrder)
        async with (
            folders.new() as folder,
            Proxy(engine.outbound, size_max=SIZE_MAX, seconds=SECONDS_MAX) as proxy,
        ):
            return await _Ingest(engine, settings, github, job, order, Git(folder, proxy), proxy).run()

    return run


@dataclass(frozen=True, slots=True)
class _Ingest:
    """One attempt, in a folder of its own."""

    engine: Engine
    settings: ProductSettings
    github: GitHub
    job: Any
    order: GithubOrder
    git: Git
    proxy: Proxy

    async def run(self) -> dict[str, Any]:
        job, order = self.job, self.order
        target = self._target()
        hosted = pull_requests.repository_at(self.github, target)
        await job.stage("cloning")
        platform = "git" if hosted is None else "github"
        await cloning.clone(job, self.git, self.proxy, order.repo_url, order.branch, platform=platform)
        try:
            repository, facts = await self._analyze()
            patch = await self._patch(repository, facts)
        except (GitError, TimeoutError) as error:
            raise PermanentError("The repository was cloned, but git could not read it.", code="VALIDATION") from error
        await job.stage("opening_pr")
        await job.progress(0.7)
        delivered = await self._deliver(target, hosted, repository, patch)
        await job.stage("finalizing")
        await job.progress(0.9)
        await projects.merge(self.engine, job, order.project_id, "github", facts)
        return {
            "projectId": identifiers.text("prj", order.project_id),
            "source": "github",
            "facts": facts,
            "sdkFiles": [] if patch is None else sorted(patch.files),
            "assets": [],
            **delivered,
        }

    def _target(self) -> Target:
        """Check the URL again: the operator may have closed it since the job was submitted."""
        try:
            return cloning.check(self.engine.outbound, self.order.repo_url)
        except InvalidError as error:
            raise PermanentError(error.message, code="VALIDATION", field="repoUrl") from error

    async def _analyze(self) -> tuple[Repository, dict[str, Any]]:
        await self.job.stage("analyzing")
        await self.job.progress(0.35)
        repository = await repositories.look(self.git)
        await self.job.progress(0.5)
        facts = await asyncio.to_thread(repositories.facts, repository, self.order.repo_url)
        return repository, findings.bounded(facts, field="github")  # before anything visible to others is made

    async def _patch(self, repository: Repository, facts: dict[str, Any]) -> Patch | None:
        await self.job.stage("generating_sdk_patch")
        await self.job.progress(0.6)
        added = patches.files(repository, facts.get("mainLanguage"), self.order.project_id)
        return await patches.make(self.git, repository, added) if added else None

    async def _deliver(
        self, target: Target, hosted: str | None, repository: Repository, patch: Patch | None
    ) -> dict[str, Any]:
        """Deliver the patch in the best possible way, with a note why no better one was possible."""
        if patch is None:
            return {"delivery": "none", "deliveryNote": "The repository already contains the client."}
        branch = pull_requests.branch_name(self.job)
        noted: dict[str, Any] = {}
        if hosted is not None and self.github.has_token:
            opened = await self._open(hosted, branch, repository, patch)
            if "refused" not in opened:
                return opened
            noted = {"deliveryNote": f"No pull request could be opened. {opened['refused']}"}
        if self.settings.branches:
            place = pull_requests.place(self.settings.branches, self.job.tenant, target)
            return await pull_requests.push(self.git, place, branch, patch) | noted
        return await pull_requests.save(self.job, patch) | noted

    async def _open(self, hosted: str, branch: str, repository: Repository, patch: Patch) -> dict[str, Any]:
        """The operator's token serves all tenants, so it is used only for the repositories that the operator lists."""
        if not allowed.Repositories.read(self.settings.repositories).has(hosted):
            return {"refused": _CLOSED}
        return await pull_requests.open_one(
            self.github, hosted, branch, repository.branch, patch, project_id=self.order.project_id
        )
