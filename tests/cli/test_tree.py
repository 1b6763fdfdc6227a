"""The whole command tree: every leaf explains itself, speaks JSON, and is tried."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import millpond
from millpond.cli import COMMANDS, load, main
from millpond.cli.command import summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.acceptance.processes import Shell
    from tests.cli.ups import Up

NOBODY = "job_00000000000000000000000000"
NO_OPERATION = "bulk_00000000000000000000000000"
NO_KEY = "key_00000000000000000000000000"
NO_FILE = "art_00000000000000000000000000"
NO_WORKER = "worker_00000000000000000000000000"
NO_ENDPOINT = "ep_00000000000000000000000000"
NO_BATCH = "batch_00000000000000000000000000"
NO_SCHEDULE = "sched_00000000000000000000000000"
NO_DELIVERY = "msg_00000000000000000000000000"
GOOD_SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"

TRIED: dict[str, list[tuple[list[str], int]]] = {
    "artifacts download": [([NO_FILE], 3)],
    "artifacts get": [([NO_FILE], 3), (["nonsense"], 3)],
    "artifacts list": [(["--job", NOBODY], 3), ([], 2)],
    "artifacts upload": [([__file__], 0), (["nowhere.png"], 5)],
    "autoscale": [([], 2), (["--route", "a"], 2), (["--route", "a", "--group", "b", "--interval", "soon"], 5)],
    "batches cancel": [([NO_BATCH], 3)],
    "batches create": [(["nowhere.jsonl"], 2), ([], 2)],
    "batches get": [([NO_BATCH], 3), (["nonsense"], 3)],
    "batches jobs": [([NO_BATCH], 3), ([NO_BATCH, "--outcome", "lost"], 2)],
    "batches list": [([], 0), (["--tenant", "nobody"], 0), (["--state", "lost"], 2)],
    "bulk abort": [([NO_OPERATION, "--yes"], 3), ([NO_OPERATION], 2)],
    "bulk cancel": [(["--kind", "hello"], 2), (["--yes"], 5), (["--all", "--dry-run"], 0)],
    "bulk export": [(["--tenant", "nobody", "--format", "csv"], 0), (["--format", "pdf"], 2)],
    "bulk get": [([NO_OPERATION], 3), (["nonsense"], 3)],
    "bulk list": [([], 0), (["--tenant", "nobody"], 0), (["--state", "done"], 0), (["--state", "nonsense"], 2)],
    "bulk priority": [(["--kind", "nonsense", "--yes"], 5), (["--kind", "hello", "--yes"], 5)],
    "bulk refund": [(["--kind", "hello", "--yes"], 5), (["--job", NOBODY, "--reason", "x", "--yes"], 0)],
    "bulk retry": [
        (["--tenant", "nobody", "--yes", "--watch"], 0),
        (["--since", "soon", "--yes"], 5),
        (["--state", "nonsense", "--yes"], 5),
        (["--outcome", "nonsense", "--yes"], 2),
    ],
    "bulk watch": [([NO_OPERATION], 3)],
    "config get": [(["slots"], 0), (["MILLPOND_SLOTS"], 0), (["nonsense"], 3)],
    "config list": [([], 0)],
    "credits adjust": [(["--amount", "-1", "--reason", "a test"], 0), (["--amount", "-1000000", "--reason", "x"], 6)],
    "credits get": [([], 0), (["--tenant", "acme", "--account", "nobody"], 0)],
    "credits grant": [(["--amount", "1", "--tenant", "acme", "--account", "mary"], 0), (["--amount", "0"], 2)],
    "credits ledger": [([], 0), (["--tenant", "acme", "--account", "nobody"], 0)],
    "credits holds": [([], 0), (["--tenant", "nobody"], 0), (["--cursor", "nonsense"], 5)],
    "credits verify": [([], 0)],
    "credits list": [([], 0), (["--prefix", "de"], 0), (["--prefix", "not a name"], 5)],
    "db migrate": [([], 0), (["--check"], 0)],
    "db recount": [([], 0)],
    "doctor": [([], 0)],
    "search": [(["dev"], 0), (["nothing-of-this-name"], 0), ([" "], 5)],
    "jobs answer": [([NOBODY, "yes"], 3), ([NOBODY, "yes", "--question", ""], 5)],
    "jobs cancel": [([NOBODY, "--yes"], 3), ([NOBODY], 2)],
    "jobs children": [([NOBODY], 3), (["nonsense"], 3), ([NOBODY, "--limit", "0"], 2)],
    "jobs events": [([NOBODY], 3)],
    "jobs get": [([NOBODY], 3), (["nonsense"], 3)],
    "jobs list": [
        (["--tenant", "nobody"], 0),
        (["--phase", "nonsense"], 2),
        (["--outcome", "nonsense"], 2),
        (["--state", "nonsense"], 5),
        (["--since", "24h", "--outcome", "failed", "--kind", "he*"], 0),
    ],
    "jobs logs": [([NOBODY], 3)],
    "jobs priority": [([NOBODY, "--priority", "-5"], 3), ([NOBODY, "--priority", "101"], 2)],
    "jobs questions": [([NOBODY], 3), (["nonsense"], 3)],
    "jobs refund": [([NOBODY, "--reason", "x", "--yes"], 3), ([NOBODY, "--reason", "x"], 2), ([NOBODY], 2)],
    "jobs retry": [([NOBODY], 3)],
    "jobs tree": [([NOBODY], 3), (["nonsense"], 3)],
    "jobs text": [([NOBODY], 3)],
    "jobs wait": [([NOBODY], 3), ([NOBODY, "--timeout", "soon"], 5)],
    "jobs watch": [([NOBODY], 3)],
    "keys create": [
        (["--scope", "client", "--tenant", "acme", "--account", "mary"], 0),
        (["--scope", "client"], 5),
        (["--scope", "king"], 2),
    ],
    "keys get": [([NO_KEY], 3), (["nonsense"], 3)],
    "keys list": [([], 0), (["--tenant", "nobody"], 0)],
    "keys revoke": [([NO_KEY, "--yes"], 3), ([NO_KEY], 2)],
    "keys rotate": [([NO_KEY], 3)],
    "kinds get": [(["hello"], 0), (["nonsense"], 3)],
    "kinds list": [([], 0)],
    "kinds schema": [(["hello"], 0)],
    "limits change": [(["nonsense", "--at-once", "2"], 3), (["nonsense"], 5)],
    "limits close": [(["nonsense", "5m"], 3), (["nonsense", "often"], 5), (["nonsense"], 2)],
    "limits get": [(["nonsense"], 3)],
    "limits keys": [(["nonsense"], 3)],
    "limits list": [([], 0)],
    "limits open": [(["nonsense"], 3)],
    "limits reset": [(["nonsense"], 3)],
    "queues get": [(["hello"], 0), (["nonsense"], 3)],
    "queues list": [([], 0)],
    "queues pause": [(["hello"], 0)],
    "queues resume": [(["hello"], 0)],
    "run": [
        (["hello", "--detach"], 0),
        (["nonsense"], 5),
        (["hello", "--input", "x=1"], 5),
        (["hello", "--input", "@nowhere.json"], 2),
        (["hello", "--wait", "--detach"], 2),
        (["hello", "--tenant", "acme", "--account", "poor"], 6),
    ],
    "schedules backfill": [([NO_SCHEDULE, "--since", "1h"], 3), ([NO_SCHEDULE], 2)],
    "schedules create": [
        (["other", "hello", "--cron", "61 * * * *", "--input", "name=Ada"], 5),
        (["other", "nonsense", "--every", "1h"], 5),
        (["other", "hello", "--every", "1h", "--overlap", "wait"], 2),
    ],
    "schedules delete": [([NO_SCHEDULE, "--yes"], 3), ([NO_SCHEDULE], 2)],
    "schedules fires": [([NO_SCHEDULE], 3), ([NO_SCHEDULE, "--outcome", "lost"], 2)],
    "schedules get": [([NO_SCHEDULE], 3), (["nonsense"], 3)],
    "schedules list": [([], 0), (["--tenant", "nobody"], 0), (["--state", "paused"], 0), (["--state", "lost"], 2)],
    "schedules pause": [([NO_SCHEDULE], 3)],
    "schedules preview": [(["--cron", "0 3 * * *", "--zone", "Europe/Berlin"], 0), ([], 5), (["--every", "often"], 5)],
    "schedules resume": [([NO_SCHEDULE], 3)],
    "schedules run": [([NO_SCHEDULE], 3)],
    "schedules update": [([NO_SCHEDULE, "--cron", "@daily"], 3), ([NO_SCHEDULE], 2)],
    "system": [([], 0)],
    "tenants accounts": [(["dev"], 0)],
    "tenants create": [(["acme"], 0), (["not a name"], 5)],
    "tenants get": [(["dev"], 0), (["nobody"], 3)],
    "tenants limits": [(["dev", "dev"], 0)],
    "tenants list": [([], 0)],
    "verify": [([], 0), (["--newest", "soon"], 5)],
    "webhooks deliveries get": [([NO_DELIVERY], 3)],
    "webhooks deliveries list": [([], 0), (["--state", "lost"], 2)],
    "webhooks endpoints change": [([NO_ENDPOINT], 2), ([NO_ENDPOINT, "--description", "new"], 3)],
    "webhooks endpoints create": [
        (["http://127.0.0.1:9/", "--kind", "nothing"], 0),
        (["http://127.0.0.1:9/", "--event", "job.nothing"], 5),
        (["http://10.0.0.1/"], 5),
    ],
    "webhooks endpoints delete": [([NO_ENDPOINT, "--yes"], 3), ([NO_ENDPOINT], 2)],
    "webhooks endpoints disable": [([NO_ENDPOINT], 3)],
    "webhooks endpoints enable": [([NO_ENDPOINT], 3)],
    "webhooks endpoints get": [([NO_ENDPOINT], 3), (["nonsense"], 3)],
    "webhooks endpoints list": [([], 0), (["--tenant", "nobody"], 0)],
    "webhooks endpoints stats": [([NO_ENDPOINT], 3), ([NO_ENDPOINT, "--since", "soon"], 5)],
    "webhooks listen": [([], 2), (["--forward-to", "ftp://here"], 2)],
    "webhooks resend": [([NO_DELIVERY], 3), ([], 2), (["--since", "1h"], 2)],
    "webhooks rotate": [([NO_ENDPOINT], 3)],
    "webhooks trigger": [(["job.failed", "--endpoint", NO_ENDPOINT], 3), (["job.failed", "--tenant", "nobody"], 3)],
    "webhooks verify": [([__file__], 2), ([__file__, "--secret", "x"], 5), ([__file__, "--secret", GOOD_SECRET], 1)],
    "workers list": [([], 0)],
    "workers get": [([NO_WORKER], 3)],
    "workers approve": [([NO_WORKER], 3)],
    "workers revoke": [([NO_WORKER, "--yes"], 3), ([NO_WORKER], 2)],
    "workers drain": [([NO_WORKER], 3)],
    "workers resume": [([NO_WORKER], 3)],
    "workers rotate": [([NO_WORKER], 3)],
    "workers assign": [([NO_WORKER, "nowhere"], 3)],
    "routes get": [(["nonsense"], 3)],
    "routes list": [([], 0)],
    "routes scaling": [(["--target-wait", "10"], 0)],
}
"""Words that each command is tried with, and the exit status that they lead to."""
LASTING = {"serve", "up", "worker", "worker comfyui"}
"""Commands that go on until they are told to stop; they are tried as processes."""


def leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from leaves(f"{path} {name}", child)


def groups(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        yield path, command
        for name, child in command.commands.items():
            yield from groups(f"{path} {name}", child)


LEAVES = [leaf for name in COMMANDS for leaf in leaves(name, load(name))]


def outcome(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(words)
    return left.value.code, *capsys.readouterr()  # pyright: ignore[reportReturnType]


@pytest.fixture
def here(system: tuple[Shell, Up], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if in the folder of a running ``millpond up``."""
    sh, _ = system
    monkeypatch.chdir(sh.folder)
    for name in os.environ:
        if name.startswith("MILLPOND_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DATABASE_URL", sh.dsn or "")


def test_the_help_names_every_command_in_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = outcome(capsys, "--help")
    assert (status, err) == (0, "")
    for name, described in COMMANDS.items():
        assert f"  {name} " in out
        assert described in _joined(out)
    nouns = {name: load(name).help for name in COMMANDS if hasattr(load(name), "commands")}
    assert nouns == {name: COMMANDS[name] for name in nouns}


def _joined(text: str) -> str:
    """Help as it reads, wherever its lines break."""
    return " ".join(text.split())


GROUPS = [branch for name in COMMANDS for branch in groups(name, load(name))]


@pytest.mark.parametrize(("path", "group"), GROUPS, ids=lambda value: value if isinstance(value, str) else "")
def test_the_help_of_a_group_reports_each_summary_whole_within_80_columns(
    path: str, group: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, out, err = outcome(capsys, *path.split(), "--help")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    for name, command in group.commands.items():
        assert f"{name} {summary(command)}" in _joined(out)
        assert len(summary(command)) <= 100, f"The summary of {path} {name} belongs on one or two lines."


def test_no_command_has_an_older_spelling_of_list_or_get() -> None:
    words = {path.split()[-1] for path, _ in LEAVES}
    assert not words & {"show", "read", "status", "describe", "info", "check", "version", "ls"}
    nouns = {path.rpartition(" ")[0] for path, _ in LEAVES if path.endswith(" list")}
    assert nouns == {path.rpartition(" ")[0] for path, _ in LEAVES if path.endswith(" get")}


def test_there_is_one_doctor() -> None:
    assert [path for path, _ in LEAVES if "doctor" in path] == ["doctor"]


def test_lists_and_bulk_operations_have_the_same_filters_with_the_same_help() -> None:
    helps: dict[str, dict[str, str]] = {}
    for path, leaf in LEAVES:
        if path.startswith("bulk ") or path.endswith(" list"):
            helps[path] = {name: parameter.help for parameter in leaf.params for name in parameter.opts}
    of_jobs = set(helps["jobs list"]) - {"--cursor", "--limit"}
    for action in ("retry", "cancel", "refund", "priority", "export"):
        assert of_jobs <= helps[f"bulk {action}"].keys()
    for name in (
        "--tenant",
        "--account",
        "--kind",
        "--phase",
        "--outcome",
        "--since",
        "--until",
        "--limit",
        "--cursor",
    ):
        assert len({described[name] for described in helps.values() if name in described}) == 1, name
    for path, described in helps.items():
        if path.endswith(" list") and "--cursor" in described:
            assert "--limit" in described


@pytest.mark.parametrize(("path", "leaf"), LEAVES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_leaf_states_defaults_and_environment_variables_in_one_way(path: str, leaf: Any) -> None:
    for parameter in (each for each in leaf.params if not each.hidden):
        text = parameter.help or ""
        assert "[env:" not in text
        assert text.partition("  [")[0].endswith((".", "…")), (path, text)
        assert text.count("  [") == text.count("[env var: ") + text.count("  [default: "), (path, text)


@pytest.mark.parametrize(("path", "leaf"), LEAVES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_value_of_an_option_is_not_named_after_a_variable(path: str, leaf: Any) -> None:
    options = [each for each in leaf.params if each.param_type_name == "option" and not (each.is_flag or each.hidden)]
    leaking = [
        each.name for each in options if not each.metavar and f"--{each.name.replace('_', '-')}" not in each.opts
    ]
    assert leaking == [], path


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "valid"),
    [
        (("jobs", "list", "--phase", "x"), ("waiting", "ready", "leased", "parked", "delivering", "ended")),
        (("jobs", "list", "--outcome", "x"), ("succeeded", "failed", "canceled", "expired", "blocked")),
        (("jobs", "list", "--state", "x"), ("queued", "running", "succeeded", "failed")),
        (("bulk", "cancel", "--state", "x", "--yes"), ("queued", "running", "succeeded", "failed")),
        (("bulk", "export", "--format", "x"), ("ndjson", "csv")),
        (("keys", "create", "--scope", "x"), ("client", "worker", "viewer", "operator", "admin")),
        (("webhooks", "deliveries", "list", "--state", "x"), ("pending", "delivered", "failed", "withdrawn")),
        (("worker", "comfyui", "--provider", "x"), ("self_hosted", "cloud")),
        (("serve", "--role", "x", "--database-url", "postgresql://nobody@/x"), ("api", "services", "worker", "files")),
    ],
    ids=" ".join,
)
def test_an_invalid_value_is_refused_with_the_valid_ones(
    words: tuple[str, ...], valid: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = outcome(capsys, *words)
    assert status in {2, 5}
    assert out == ""
    for each in valid:
        assert each in err


def test_the_version_is_printed_without_loading_the_command_line() -> None:
    code = "import sys; from millpond.__main__ import main; main(); print(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"millpond {version('millpond')}\n"
    assert not {"typer", "asyncpg", "msgspec", "asyncio", "starlette"} & set(ran.stderr.split())


def test_the_version_is_an_option_of_the_command_line_and_an_attribute(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = outcome(capsys, "--version")
    assert (status, out, err) == (0, f"millpond {millpond.__version__}\n", "")
    assert millpond.__version__ == version("millpond")


def test_every_leaf_is_tried() -> None:
    assert {path for path, _ in LEAVES} == {*TRIED, *LASTING}


@pytest.mark.parametrize(("path", "leaf"), LEAVES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_leaf_explains_itself_and_all_its_options(path: str, leaf: Any, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = outcome(capsys, *path.split(), "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: millpond {path} ")
    assert leaf.help.partition("\n")[0].endswith(".")
    options = {name: parameter for parameter in leaf.params for name in parameter.opts}
    assert "--json" in options
    assert [name for name, option in options.items() if not option.help and not option.hidden] == []


@pytest.mark.parametrize(("path", "leaf"), LEAVES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_leaf_reports_what_it_does_not_understand_as_json_too(
    path: str, leaf: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = outcome(capsys, *path.split(), "--json", "--nonsense")
    assert status == 2
    assert msgspec.json.decode(out)["code"] == "usage"
    assert "--nonsense" in err or "Missing" in err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("path", "words", "status"),
    [(path, words, status) for path, tries in TRIED.items() for words, status in tries],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_leaf_answers_in_json_and_with_the_status_of_its_outcome(
    path: str, words: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = outcome(capsys, *path.split(), *words, "--json")
    assert found == status, err
    answers = [msgspec.json.decode(line) for line in out.splitlines()]
    assert len(answers) == 1
    if status:
        assert {"type", "title", "status", "code", "detail"} <= answers[0].keys()
        assert answers[0]["detail"] in err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("path", "words"), [(p, w) for p, tries in TRIED.items() for w, status in tries if not status])
def test_a_leaf_speaks_to_people_without_colour_where_there_is_no_terminal(
    path: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = outcome(capsys, *path.split(), *words)
    assert status == 0, err
    assert out + err
    assert "\x1b" not in out + err
