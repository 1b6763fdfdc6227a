"""A test that leaves a process behind fails, and names it."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

PLUGIN = """
from tests.children import Nursery

def pytest_configure(config):
    config.pluginmanager.register(Nursery())
"""
TESTS = """
import subprocess

import pytest

left = []

def sleeper():
    left.append(subprocess.Popen(["sleep", "600"]))
    return left[-1]

@pytest.fixture(scope="module")
def wide():
    process = sleeper()
    yield
    process.kill()
    process.wait()

@pytest.fixture(scope="module")
def careless():
    sleeper()

def test_of_a_wider_fixture(wide): ...

def test_ended():
    process = sleeper()
    process.kill()
    process.wait()

def test_left(wide):
    sleeper()

def test_not_waited_for():
    sleeper().kill()

def test_asks_a_careless_fixture(careless): ...

def test_is_the_last(careless): ...
"""
BUSY = """
import subprocess

import pytest

@pytest.fixture(scope="module")
def at_work():
    started = []
    yield started
    for process in started:
        process.kill()
        process.wait()

@pytest.mark.busy
def test_has_one_started(at_work):
    at_work.append(subprocess.Popen(["sleep", "600"]))

@pytest.mark.busy
def test_shares_it(at_work):
    assert at_work[0].poll() is None

@pytest.mark.busy
def test_leaves_another():
    subprocess.Popen(["sleep", "600"])
"""


def test_who_leaves_a_process_behind_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.children.PATIENCE", 0.1)
    pytester.makeconftest(PLUGIN)
    pytester.makeini("[pytest]\nmarkers = busy")
    pytester.makepyfile(test_each=TESTS, test_together=BUSY)
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", "-W", "ignore")
    result.assert_outcomes(passed=9, errors=4)
    failed = [line.split("::")[1].split(" ")[0] for line in result.outlines if line.startswith("ERROR")]
    assert failed == ["test_left", "test_not_waited_for", "test_is_the_last", "test_leaves_another"]
    result.stdout.fnmatch_lines(["*left processes behind*", "*sleep 600*"])
