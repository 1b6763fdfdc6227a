"""Mutants: each of them can be tried at any time, and the program that tries them tells their fates apart."""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.catalog import ROOT, Mutant, mutants
from tests.mutants.trials import TestRun, copied

ALL = mutants()
LEAST = 60
SENTENCE = re.compile(r"[A-Z0-9`].*\.", re.DOTALL)
HALF = "def half(number):\n    return number // 2\n"
TEST = "from half import half\n\n\ndef test_half():\n    assert half(4) == 2\n"


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len(ALL) >= LEAST
    assert len({mutant.name for mutant in ALL}) == len({(mutant.file, mutant.old, mutant.new) for mutant in ALL})
    assert len({mutant.name for mutant in ALL}) == len(ALL)


def test_each_applies_to_the_code_as_it_is() -> None:
    """Where one does not, the code has changed: write the mutant anew, or remove it if it has become impossible."""
    texts = {file: (ROOT / file).read_text("utf-8") for file in {mutant.file for mutant in ALL}}
    found = {mutant.name: texts[mutant.file].count(mutant.old) for mutant in ALL}
    assert {name: number for name, number in found.items() if number != 1} == {}
    for mutant in ALL:
        assert mutant.old != mutant.new, mutant.name
        assert SENTENCE.fullmatch(mutant.breaks), mutant.name
        if mutant.file.endswith(".py"):
            ast.parse(texts[mutant.file].replace(mutant.old, mutant.new))


def test_each_names_tests_that_there_are() -> None:
    assert [mutant.name for mutant in ALL if not mutant.tests] == []
    missing = [(mutant.name, test) for mutant in ALL for test in mutant.tests if not _is_there(test)]
    assert missing == []


@cache
def _is_there(test: str) -> bool:
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.is_file() and (not name or f"def {name.partition('[')[0]}(" in file.read_text("utf-8"))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one module and its test, which needs no plugin of pytest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, text in {"src/half.py": HALF, "test_half.py": TEST}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def test_the_fates_of_mutants_are_distinguished_and_the_tree_is_left_alone(tree: Path) -> None:
    bug = Mutant(
        name="half", file="src/half.py", old="// 2", new="// 3", tests=("test_half.py",), breaks="It is no half."
    )
    trials = {
        "caught": bug,
        "survived": replace(bug, new=">> 1"),
        "did not apply": replace(bug, old="/ 5"),
        "did not run": replace(bug, new="// 2 +"),
    }
    with copied(tree) as copy:
        assert copy.check(bug.tests).passed == 1
        found = {fate: copy.attempt(mutant) for fate, mutant in trials.items()}
        assert copy.check(bug.tests).failed == []  # the copy is as it was, too
    assert {fate: trial.fate for fate, trial in found.items()} == {fate: fate for fate in trials}
    assert found["caught"].detail == "test_half::test_half"
    assert (tree / "src/half.py").read_text() == HALF


def test_tests_that_hang_do_not_count_as_a_catch(tree: Path) -> None:
    bug = Mutant(
        name="half",
        file="src/half.py",
        old="    return",
        new="    while True:\n        pass\n    return",
        tests=("test_half.py",),
        breaks="It never ends.",
    )
    with copied(tree, seconds=3) as copy:
        trial = copy.attempt(bug)
    assert (trial.fate, trial.detail) == ("did not run", "no result within 3 s")


def test_tests_that_hang_without_a_mutant_are_ended_too(tree: Path) -> None:
    (tree / "src/half.py").write_text("while True:\n    pass\n")
    with copied(tree) as copy:
        assert copy.check(["test_half.py"], seconds=3) == TestRun(error="no result within 3 s")
