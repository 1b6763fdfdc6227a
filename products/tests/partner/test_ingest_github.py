"""Repositories as they are: well kept, odd, huge, hostile, gone; and what is made of them, once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from products.tests.doubles.git import git as run_git
from products.tests.doubles.github import TOKEN, Refusal
from products.tests.partner.sources import APP, Sources

from millpond.engine.jobs import folders
from millpond.errors import InvalidError, TransientError
from millpond.outbound import Outbound
from millpond.outbound.proxy import Proxy
from millpond_products.partner import cloning, git, pull_requests, repositories
from tests.outbound.test_tls import Authority
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from products.tests.partner.deployments import Deployment, Partner

NAME = "project_ingest_github"
STAGES = ("cloning", "analyzing", "generating_sdk_patch", "opening_pr", "finalizing")


@pytest.fixture
def sources(sources: Sources, deployment: Deployment) -> Sources:
    sources.forge.reset()
    sources.use(github_token=None)
    return sources


@pytest.fixture
def lumen(sources: Sources) -> str:
    return f"{sources.forge_url}/ada/lumen.git"


async def test_what_a_repository_says_is_found_and_merged(sources: Sources, partner: Partner, lumen: str) -> None:
    project = await partner.project()
    job = await partner.ended((await partner.start(NAME, project, repoUrl=lumen))["jobId"])
    assert job["status"] == "completed", job
    facts = job["result"]["facts"]
    assert (facts["name"], facts["version"], facts["license"]) == ("lumen", "2.1.0", "MIT")
    assert (facts["title"], facts["description"]) == ("Lumen Lamp", "A lamp for the web.")
    assert facts["readme"] == "Lumen puts a lamp on your page. It dims by itself."
    assert (facts["mainLanguage"], list(facts["languages"])) == ("TypeScript", ["CSS", "TypeScript"])
    assert facts["frameworks"] == ["Next.js", "React", "FastAPI"]
    assert [each["path"] for each in facts["manifests"]] == ["package.json", "api/requirements.txt"]
    assert facts["branch"] == "main"
    assert facts["headCommit"] == head(sources.forge.git.folder / "ada/lumen.git")
    assert facts["files"] == len(APP)
    response = (await partner.get(f"/v1/projects/{project}"))["context"]
    assert response["github"] == facts
    assert response["summary"]["description"] == "A lamp for the web."


async def test_without_a_token_the_patch_is_a_file_that_git_takes(
    sources: Sources, partner: Partner, lumen: str, tmp_path: Path
) -> None:
    result = await sources.read(partner, NAME, repoUrl=lumen)
    assert (result["delivery"], result["sdkFiles"]) == ("artifact", ["millpond/README.md", "millpond/events.ts"])
    (asset,) = result["assets"]
    assert (asset["type"], asset["name"], asset["contentType"]) == ("patch", "millpond.patch", "text/x-patch")
    answer = await partner.send("GET", f"{sources.deployment.url}{asset['url']}", follow_redirects=True)
    assert (answer.status_code, len(answer.content)) == (200, asset["bytes"])
    run_git(tmp_path, "clone", "--quiet", str(sources.forge.git.folder / "ada/lumen.git"), "here")
    run_git(tmp_path / "here", "am", "--quiet", given=answer.content)
    assert result["projectId"] in (tmp_path / "here/millpond/events.ts").read_text()
    assert sources.forge.asked == []


async def test_the_client_of_a_python_project_sends_its_events(
    sources: Sources, partner: Partner, deployment: Deployment, tmp_path: Path
) -> None:
    sources.forge.git.repository("ada/snake", {"snake/__init__.py": "x = 1\n" * 50, "millpond/mine.txt": "taken"})
    branches = tmp_path / "branches"
    sources.use(github_token=None, branches=str(branches))
    result = await sources.read(partner, NAME, repoUrl=f"{sources.forge_url}/ada/snake.git")
    assert result["sdkFiles"] == ["millpond-2/README.md", "millpond-2/events.py"]
    text = run_git(branches / result["repository"], "show", f"{result['branch']}:millpond-2/events.py")
    (tmp_path / "events.py").write_bytes(text)
    said = "import events; print(events.track('sign-up', plan='pro'))"
    for url, expected in (("", "False"), (f"{sources.itunes_url}/events", "True"), ("http://127.0.0.1:9/", "False")):
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", said],
            cwd=tmp_path,
            env={"MILLPOND_EVENTS_URL": url},
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode().strip() == expected


async def test_without_a_token_a_branch_is_pushed_once(
    sources: Sources, partner: Partner, deployment: Deployment, lumen: str, tmp_path: Path
) -> None:
    sources.use(github_token=None, branches=str(tmp_path))
    twice(sources, deployment)
    result = await sources.read(partner, NAME, repoUrl=lumen)
    assert (result["delivery"], result["assets"]) == ("branch", [])
    bare = tmp_path / result["repository"]
    refs = run_git(bare, "for-each-ref", "--format=%(refname:short) %(objectname)").decode().splitlines()
    assert refs == [f"{result['branch']} {result['commit']}"]
    changed = run_git(bare, "show", "--name-status", "--format=%an", result["branch"]).decode().split()
    assert changed == ["Millpond", "A", "millpond/README.md", "A", "millpond/events.ts"]


async def test_branches_are_pushed_past_stale_locks_and_at_the_same_time(
    sources: Sources, partner: Partner, lumen: str, tmp_path: Path
) -> None:
    """A machine that went down leaves git's locks and half a repository; none of them is in the way."""
    sources.use(github_token=None, branches=str(tmp_path))
    target = sources.deployment.engine.outbound.check(lumen)
    bare = pull_requests.place(str(tmp_path), "acme", target)
    bare.with_suffix(".draft").mkdir(parents=True)
    (bare.with_suffix(".draft") / "config.lock").touch()
    attempts: list[int] = []
    code = sources.deployment.scripts[NAME]

    async def run(job: Any, given: dict[str, Any]) -> Any:
        attempts.append(job.attempt)
        return await code(job, given)

    sources.deployment.scripts[NAME] = run
    results = await asyncio.gather(*(sources.read(partner, NAME, repoUrl=lumen) for _ in range(4)))
    (bare / "config.lock").touch()
    results.append(await sources.read(partner, NAME, repoUrl=lumen))
    assert attempts == [1] * 5
    refs = run_git(bare, "for-each-ref", "--format=%(refname:short)").decode().split()
    assert sorted(refs) == sorted(result["branch"] for result in results)
    assert "shallowUpdate" not in (bare / "config").read_text()


# Pull requests


async def test_with_a_token_a_pull_request_is_opened(sources: Sources, partner: Partner, lumen: str) -> None:
    sources.use()
    result = await sources.read(partner, NAME, repoUrl=lumen)
    (pull,) = sources.forge.pulls
    assert (result["delivery"], result["pullRequestUrl"]) == ("pull_request", pull["html_url"])
    assert (pull["base"]["ref"], pull["head"]["ref"]) == ("main", result["branch"])
    bare = sources.forge.git.folder / "ada/lumen.git"
    assert run_git(bare, "diff", "--name-only", "main", result["branch"]).decode().split() == result["sdkFiles"]
    assert "sends nothing until" in pull["body"]
    assert TOKEN not in str(result)


@pytest.mark.parametrize("torn", ["/git/trees", "/git/commits", "/git/refs", "/pulls"])
async def test_an_answer_that_is_lost_makes_no_second_pull_request(
    sources: Sources, partner: Partner, lumen: str, torn: str
) -> None:
    sources.use()
    sources.forge.torn.append(torn)
    before = branches_of(sources)
    result = await sources.read(partner, NAME, repoUrl=lumen)
    assert [pull["html_url"] for pull in sources.forge.pulls] == [result["pullRequestUrl"]]
    assert branches_of(sources) - before == {result["branch"]}


async def test_a_second_attempt_finds_the_pull_request(
    sources: Sources, partner: Partner, deployment: Deployment, lumen: str
) -> None:
    sources.use()
    twice(sources, deployment)
    result = await sources.read(partner, NAME, repoUrl=lumen)
    assert [pull["html_url"] for pull in sources.forge.pulls] == [result["pullRequestUrl"]]


async def test_a_repository_that_is_not_on_the_operators_list_gets_no_pull_request(
    sources: Sources, partner: Partner, lumen: str
) -> None:
    sources.use(repositories="ada/other, octo/*")
    result = await sources.read(partner, NAME, repoUrl=lumen)
    assert (result["delivery"], len(result["assets"])) == ("artifact", 1)
    assert "MILLPOND_REPOSITORIES" in result["deliveryNote"]
    assert not sources.forge.pulls


async def test_where_the_token_may_not_write_the_patch_is_a_file(
    sources: Sources, partner: Partner, lumen: str
) -> None:
    sources.use()
    sources.forge.closed.add("ada/lumen")
    result = await sources.read(partner, NAME, repoUrl=lumen)
    assert (result["delivery"], len(result["assets"])) == ("artifact", 1)
    assert result["deliveryNote"].startswith("No pull request could be opened. GitHub answered 404")


async def test_the_token_is_used_for_no_repository_that_the_operator_has_not_named(
    sources: Sources, partner: Partner, lumen: str
) -> None:
    sources.use(repositories="bob/*, ada/other")
    result = await sources.read(partner, NAME, repoUrl=lumen)
    assert (result["delivery"], sources.forge.asked) == ("artifact", [])
    assert "MILLPOND_REPOSITORIES" in result["deliveryNote"]


async def test_a_token_that_is_not_good_is_reported_without_it(sources: Sources, partner: Partner, lumen: str) -> None:
    sources.use(github_token="ghp_wrongwrongwrong")
    error = await sources.failed(partner, NAME, repoUrl=lumen)
    assert error["code"] == "PLATFORM_ERROR"
    assert (error["details"]["platform"], error["details"]["platformCode"]) == ("github", "401")
    assert "ghp_" not in str(error)


async def test_a_github_that_wants_to_be_left_alone_is_asked_again(
    sources: Sources, partner: Partner, lumen: str
) -> None:
    sources.use()
    sources.forge.refusals.append(Refusal(403, "You have exceeded a secondary rate limit.", {"retry-after": "1"}))
    assert (await sources.read(partner, NAME, repoUrl=lumen))["delivery"] == "pull_request"


async def test_a_client_that_is_there_is_not_added_again(sources: Sources, partner: Partner, lumen: str) -> None:
    sources.use()
    project = await partner.project()
    bare = sources.forge.git.repository("ada/again", {"main.go": "package main\n" * 9})
    url = f"{sources.forge_url}/ada/again"
    first = await partner.ended((await partner.start(NAME, project, repoUrl=url))["jobId"])
    run_git(bare, "update-ref", "refs/heads/main", f"refs/heads/{first['result']['branch']}")
    second = await partner.ended((await partner.start(NAME, project, repoUrl=url))["jobId"])
    assert (second["result"]["delivery"], second["result"]["sdkFiles"]) == ("none", [])
    assert len(sources.forge.pulls) == 1


async def test_a_repository_that_is_read_again_gets_no_second_pull_request(sources: Sources, partner: Partner) -> None:
    sources.use()
    bare = sources.forge.git.repository("ada/often", {"main.go": "package main\n" * 9})
    project, other = await partner.project(), await partner.project()

    async def read(project: str) -> str:
        started = await partner.start(NAME, project, repoUrl=f"{sources.forge_url}/ada/often")
        result = (await partner.ended(started["jobId"]))["result"]
        assert result["delivery"] == "pull_request"
        assert run_git(bare, "rev-parse", "--verify", f"refs/heads/{result['branch']}")
        return result["pullRequestUrl"]

    first = await read(project)
    assert [await read(project), await read(project)] == [first, first]
    assert await read(other) != first
    sources.forge.pulls[0]["head"]["repo"]["full_name"] = "mallory/often"
    assert await read(project) != first
    sources.forge.pulls[-1]["state"] = "closed"
    await read(project)
    assert len(sources.forge.pulls) == 4


async def test_a_repository_that_says_very_much_is_cut_before_anything_is_opened(
    sources: Sources, partner: Partner
) -> None:
    sources.use()
    wanted = {f"{'d' * 110}-{n}": "1" for n in range(60)}
    said = {"name": "x", "description": "y" * 500, "keywords": [f"{'k' * 100}{n}" for n in range(20)]}
    manifest = json.dumps(said | {"dependencies": wanted})
    sources.forge.git.repository("ada/mono", {f"packages/p{n}/package.json": manifest for n in range(40)})
    project = await partner.project()
    started = await partner.start(NAME, project, repoUrl=f"{sources.forge_url}/ada/mono")
    job = await partner.ended(started["jobId"])
    assert (job["status"], job["result"]["delivery"]) == ("completed", "pull_request")
    assert len(json.dumps(job["result"]["facts"]).encode()) < 80_000
    assert len(job["result"]["facts"]["manifests"][0]["dependencies"]) > 10


# What is not a valid repository for us


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc",
        "/etc/passwd",
        "../../etc",
        "ssh://git@github.com/a/b",
        "git@github.com:a/b.git",
        "git://github.com/a/b",
        "ext::sh -c 'touch owned'",
        "--upload-pack=touch owned",
        "-u",
        "",
        "https://",
        "https://user:pass@github.com/a/b",
        "https://github.com",
        "https://github.com/",
        "https://github.com/a/b?x=1",
        "https://github.com/a/b#x",
        "https://github.com/a b",
        "https://github.com\\@10.0.0.1/a",
        "http://10.0.0.1/a/b",
        "http://169.254.169.254/a/b",
        "http://192.168.1.1:3000/a/b",
        "http://[::ffff:10.0.0.1]/a",
        "http://[fd00::1]/a",
        "http://0x7f.1/a",
        "http://2130706433/a",
        "http://0177.0.0.1/a",
        "http://git.internal/a/b",
        "http://localhost.localdomain./a/b",
        "http://①②⑦.⓪.⓪.①/a",
    ],
)
async def test_what_can_be_seen_to_be_none_is_refused_at_once(
    partner: Partner, deployment: Deployment, url: str
) -> None:
    project = await partner.project()
    before = await deployment.balance(partner)
    error = await partner.refused(
        "POST", f"/v1/projects/{project}/ingest/github", {"repoUrl": url}, status=400, code="VALIDATION"
    )
    assert error["details"]["field"] == "repoUrl"
    assert await deployment.balance(partner) == before


@pytest.mark.parametrize("url", ["http://127.0.0.1/a/b", "http://[::1]/a/b", "http://localhost/a/b"])
def test_in_production_this_machine_is_not_cloned(url: str) -> None:
    with pytest.raises(InvalidError):
        cloning.check(Outbound(), url)


@pytest.mark.parametrize(
    "branch",
    ["--help", "-x", "a..b", "a b", "a\n", "/a", "a/", "a.lock", "a~1", "a^", "a:b", "a@{1}", ".a", "", "é" * 201],
)
async def test_names_that_no_branch_has_are_refused_at_once(partner: Partner, branch: str) -> None:
    project = await partner.project()
    body = {"repoUrl": "http://127.0.0.1:9/a/b", "branch": branch}
    error = await partner.refused("POST", f"/v1/projects/{project}/ingest/github", body, status=400, code="VALIDATION")
    assert error["details"]["field"] == "branch"


@pytest.mark.parametrize(
    ("path", "code", "expected"),
    [
        ("/ada/empty.git", "VALIDATION", "has no commit"),
        ("/ada/nobody.git", "NOT_FOUND", "there is no repository at the URL"),
        ("/bad/status-404/x", "NOT_FOUND", "there is no repository at the URL"),
        ("/bad/secret/x", "NOT_FOUND", "it is not public"),
        ("/bad/html/x", "VALIDATION", "is not a git repository"),
        ("/bad/inside/x", "VALIDATION", "cannot be cloned"),
        ("/bad/endless/x", "VALIDATION", "larger than"),
    ],
)
async def test_what_will_not_get_better_fails_at_once(
    sources: Sources, partner: Partner, monkeypatch: pytest.MonkeyPatch, path: str, code: str, expected: str
) -> None:
    monkeypatch.setattr("millpond_products.partner.ingest_github.SIZE_MAX", 4 * 1024**2)
    error = await sources.failed(partner, NAME, repoUrl=f"{sources.forge_url}{path}")
    assert (error["code"], error["details"]["field"]) == (code, "repoUrl")
    assert expected in error["message"]


async def test_a_branch_is_read_where_it_is_there(sources: Sources, partner: Partner, lumen: str) -> None:
    bare = sources.forge.git.folder / "ada/lumen.git"
    sources.forge.git.commit(bare, {"only.rb": "puts 1\n" * 9}, "release/1.0")
    result = await sources.read(partner, NAME, repoUrl=lumen, branch="release/1.0")
    assert (result["facts"]["branch"], result["facts"]["mainLanguage"]) == ("release/1.0", "Ruby")
    run_git(bare, "tag", "v1", "release/1.0")
    for missing in ("nobody", "v1"):
        error = await sources.failed(partner, NAME, repoUrl=lumen, branch=missing)
        assert (error["code"], error["message"]) == ("NOT_FOUND", f"The repository has no branch '{missing}'.")


async def test_one_that_has_moved_is_followed(sources: Sources, partner: Partner) -> None:
    result = await sources.read(partner, NAME, repoUrl=f"{sources.forge_url}/bad/moved/ada/lumen.git")
    assert result["facts"]["name"] == "lumen"


@pytest.mark.parametrize(
    ("path", "code"), [("/bad/hangs/x", "timeout"), ("/bad/dribbles/x", "timeout"), ("/bad/status-503/x", "503")]
)
async def test_what_may_get_better_is_tried_again(
    sources: Sources, partner: Partner, monkeypatch: pytest.MonkeyPatch, path: str, code: str
) -> None:
    attempts: list[int] = []
    handler = sources.deployment.scripts[NAME]

    async def counted(job: Any, given: dict[str, Any]) -> Any:
        attempts.append(job.attempt)
        if job.attempt == 2:
            given = {**given, "repo_url": f"{sources.forge_url}/ada/lumen.git"}
            return await handler(job, given)
        with monkeypatch.context() as patch:
            if code == "timeout":
                patch.setattr(cloning, "SECONDS_MAX", 1.0)
            with pytest.raises(TransientError) as raised:
                await handler(job, given)
        details = raised.value.details
        assert (details["platform"], details["platformCode"]) == ("git", code)
        assert "127.0.0.1" not in raised.value.message
        raise raised.value

    sources.deployment.scripts[NAME] = counted
    await sources.read(partner, NAME, repoUrl=f"{sources.forge_url}{path}")
    assert attempts == [1, 2]


# Sizes and shapes


async def test_odd_names_broken_manifests_links_and_large_files_do_no_harm(sources: Sources, partner: Partner) -> None:
    files: dict[str | bytes, bytes | str] = {
        b"odd \xff\xfe\n\t\"'.py": "x = 1\n",
        "über/naïve.py": "x = 2\n",
        "package.json": '{"name": ["no"], "dependencies": 7, "keywords": [1, "k\\u0000"]}',
        "pyproject.toml": "[project\nname=",
        "Cargo.toml": b"\xff\xfe\x00",
        "big/package.json": "[" * 200_000,
        "README": "\x00" * 10 + "<!--" * 10_000,
        "pom.xml": "<parent>" * 10_000,
        "build.gradle": "\n" * 100_000,
        "data.bin": bytes(32 * 1024**2),
    }
    sources.forge.git.repository("ada/odd", files)
    result = await sources.read(partner, NAME, repoUrl=f"{sources.forge_url}/ada/odd")
    facts = result["facts"]
    assert facts["languages"] == {"Python": 12}
    assert facts["bytes"] > 32 * 1024**2
    assert [each["path"] for each in facts["manifests"]] == [
        "Cargo.toml",
        "build.gradle",
        "package.json",
        "pom.xml",
        "pyproject.toml",
    ]
    assert facts["name"] == "odd"


async def test_a_repository_of_two_hundred_thousand_files_is_listed(sources: Sources, partner: Partner) -> None:
    bare = sources.forge.git.repository("ada/many")
    blob = b"blob\nmark :1\ndata 2\nx\n\ncommit refs/heads/main\ncommitter A <a@x.example> 1 +0000\ndata 1\nx\n"
    lines = b"".join(b"M 100644 :1 d%d/f%d.go\n" % (n % 500, n) for n in range(200_000))
    run_git(bare, "fast-import", "--quiet", given=blob + lines)
    facts = (await sources.read(partner, NAME, repoUrl=f"{sources.forge_url}/ada/many"))["facts"]
    assert (facts["files"], facts["isCut"], facts["languages"]) == (200_000, False, {"Go": 400_000})


async def test_a_repository_that_grows_without_end_when_it_is_listed_is_cut(
    sources: Sources, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten folders that are ten times the same folder, and so on: a hundred million files in eight small trees."""
    monkeypatch.setattr(repositories, "_LISTING_MAX", 1024**2)
    bare = sources.forge.git.repository("ada/bomb")
    at = run_git(bare, "hash-object", "-w", "--stdin", given=b"x").decode().strip()
    for depth in range(8):
        kind = "100644 blob" if depth == 0 else "040000 tree"
        listing = "".join(f"{kind} {at}\tn{n}\n" for n in range(10))
        at = run_git(bare, "mktree", given=listing.encode()).decode().strip()
    commit = run_git(bare, "commit-tree", at, given=b"x").decode().strip()
    run_git(bare, "update-ref", "refs/heads/main", commit)
    result = await sources.read(partner, NAME, repoUrl=f"{sources.forge_url}/ada/bomb")
    assert (result["facts"]["isCut"], result["delivery"]) == (True, "artifact")


# The program itself


async def test_nothing_of_this_machine_is_used_by_git(
    sources: Sources, partner: Partner, lumen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    (tmp_path / ".gitconfig").write_text(
        f'[url "file:///nowhere/"]\n insteadOf = http://\n[credential]\n helper = "!touch {mark}"\n'
        f"[http]\n extraHeader = X-Secret: s\n[core]\n fsmonitor = touch {mark}\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    await sources.read(partner, NAME, repoUrl=lumen)
    await sources.failed(partner, NAME, repoUrl=f"{sources.forge_url}/bad/secret/x")
    assert not mark.exists()


@pytest.mark.parametrize("url", ["ext::sh -c 'touch {mark}'", "file://{bare}", "{bare}"])
async def test_git_itself_speaks_nothing_but_http(sources: Sources, tmp_path: Path, url: str) -> None:
    """Were such a URL to come through, git would not take it."""
    bare, mark = sources.forge.git.folder / "ada/lumen.git", tmp_path / "mark"
    async with Proxy(sources.deployment.engine.outbound, size_max=10**6, seconds=PATIENCE) as proxy:
        program = git.Git(tmp_path, proxy)
        with pytest.raises(git.GitError, match=r"not allowed|not a valid remote"):
            await program.run("clone", "--", url.format(bare=bare, mark=mark), "x", protocols="http:https")
    assert not mark.exists()


async def test_https_is_cloned_as_far_as_its_certificate_is_good(
    sources: Sources, partner: Partner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    port = int(sources.forge_url.rpartition(":")[2])

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    context = authority.server(x509.IPAddress(ip_address("127.0.0.1")))
    async with await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/ada/lumen.git"
        (tmp_path / "ca.crt").write_bytes(authority.certificate.public_bytes(Encoding.PEM))
        monkeypatch.setenv("GIT_SSL_CAINFO", str(tmp_path / "ca.crt"))
        assert (await sources.read(partner, NAME, repoUrl=url))["facts"]["name"] == "lumen"
        monkeypatch.delenv("GIT_SSL_CAINFO")
        async with Proxy(sources.deployment.engine.outbound, size_max=10**6, seconds=PATIENCE) as proxy:
            with pytest.raises(git.GitError, match="certificate"):
                await git.Git(tmp_path, proxy).run("ls-remote", "--", url, protocols="https")


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def test_a_machine_without_git_is_reported(
    sources: Sources, partner: Partner, lumen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    error = await sources.failed(partner, NAME, repoUrl=lumen)
    assert (error["code"], error["message"]) == ("INTERNAL", "git is not installed on the worker.")


async def test_a_command_is_bounded_and_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    program = git.Git(tmp_path)
    limits = (await program.run("-c", "alias.l=!ulimit -t; ulimit -f; ulimit -c", "l")).line.split()
    assert limits == ["90", str(2 * 200 * 1024**2 // 512), "0"]
    with pytest.raises(TimeoutError):
        await program.run("-c", "alias.s=!sleep 4321 & sleep 4321", "s", seconds=0.5)
    assert not running("sleep\0004321")
    described = await program.run("-c", "alias.y=!yes", "y", output_max=1_000)
    assert (len(described.output), described.is_cut) == (1_000, True)


# Canceling


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "opening_pr"])
async def test_it_is_canceled_in_every_stage_that_is_not_firm(
    sources: Sources, partner: Partner, lumen: str, stage: str
) -> None:
    sources.use()
    held = sources.hold(NAME, stage)
    job_id = (await partner.start(NAME, repoUrl=lumen))["jobId"]
    await sources.canceled(partner, job_id, held)
    assert len(sources.forge.pulls) == (stage == "finalizing")


async def test_while_the_pull_request_is_opened_a_cancel_is_refused(
    sources: Sources, partner: Partner, lumen: str
) -> None:
    sources.use()
    sources.forge.gate.clear()
    job_id = (await partner.start(NAME, repoUrl=lumen))["jobId"]
    await partner.until(job_id, "opening_pr")
    error = await partner.refused("POST", f"/v1/jobs/{job_id}/cancel", status=409, code="CONFLICT")
    assert error["details"]["subcode"] == "JOB_CANCEL_UNAVAILABLE"
    sources.forge.gate.set()
    assert (await partner.ended(job_id))["status"] == "completed"


async def test_the_clone_of_a_worker_that_was_killed_is_removed(
    sources: Sources, partner: Partner, lumen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(folders, "YOUNG", -1.0)
    (tmp_path / "millpond-clone-left" / "repository.git").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    await sources.read(partner, NAME, repoUrl=lumen)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


async def test_a_clone_that_is_canceled_leaves_no_process_behind(sources: Sources, partner: Partner) -> None:
    path = "/bad/hangs/until-canceled"
    job_id = (await partner.start(NAME, repoUrl=f"{sources.forge_url}{path}"))["jobId"]
    async with asyncio.timeout(PATIENCE):
        while not running(path):
            await asyncio.sleep(0.05)
    await partner.post(f"/v1/jobs/{job_id}/cancel", status=202)
    assert (await partner.ended(job_id))["status"] == "canceled"
    async with asyncio.timeout(PATIENCE):
        while running(path):
            await asyncio.sleep(0.05)


def head(bare: Path) -> str:
    return run_git(bare, "rev-parse", "refs/heads/main").decode().strip()


def branches_of(sources: Sources) -> set[str]:
    bare = sources.forge.git.folder / "ada/lumen.git"
    return set(run_git(bare, "for-each-ref", "--format=%(refname:short)").decode().split())


def running(words: str) -> bool:
    """Whether there is a process whose command line has these words."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words.encode() in file.read_bytes():
                return True
        except OSError:
            continue
    return False


def twice(sources: Sources, deployment: Deployment) -> None:
    """Have the first attempt do all there is to do, and fail then."""
    handler = deployment.scripts[NAME]

    async def run(job: Any, given: dict[str, Any]) -> Any:
        result = await handler(job, given)
        if job.attempt == 1:
            raise TransientError("The worker stumbled.")
        return result

    deployment.scripts[NAME] = run
