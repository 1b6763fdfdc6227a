"""Try the mutants: ``python -m tests.mutants [--jobs N] [NAME …]``. It fails unless all of them are caught.

A NAME selects one mutant, or, as a pattern such as ``leases.*``, several.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from fnmatch import fnmatchcase
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tests.mutants.catalog import ROOT, Mutant, mutants
from tests.mutants.trials import Copy, Trial, copied

if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> int:
    options = _options()
    chosen = _chosen(options.names)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up, as after Ctrl-C
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name}: {mutant.breaks}")  # noqa: T201
        return 0
    with ExitStack() as stack:
        copies = [stack.enter_context(copied(ROOT)) for _ in range(options.jobs)]
        if not _is_sound(copies[0], chosen):
            return 2
        trials = _try_all(copies, chosen)
    counts = Counter(trial.fate for trial in trials)
    print(", ".join(f"{number} {fate}" for fate, number in counts.most_common()))  # noqa: T201
    for trial in trials:
        if trial.fate != "caught":
            print(f"{trial.fate}: {trial.mutant.name}: {trial.mutant.breaks} {trial.detail}".rstrip())  # noqa: T201
    return 0 if counts["caught"] == len(trials) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the mutants to try")
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at once, each in a copy of its own")
    parser.add_argument("--list", action="store_true", help="list them, and try none")
    return parser.parse_args()


def _chosen(names: Sequence[str]) -> list[Mutant]:
    """The mutants with these names, or all."""
    for name in names:
        if not any(fnmatchcase(mutant.name, name) for mutant in mutants()):
            sys.exit(f"No mutant is named {name!r}; `make mutants ARGS=--list` shows them all.")
    return [mutant for mutant in mutants() if any(fnmatchcase(mutant.name, name) for name in names or ["*"])]


def _is_sound(copy: Copy, chosen: Sequence[Mutant]) -> bool:
    """Whether the tests pass without a mutant: otherwise their failures would mean nothing."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    run = copy.check(tests)
    if run.failed or run.error or not run.passed:
        print(f"The tests fail without any mutant: {', '.join(run.failed) or run.error}")  # noqa: T201
        return False
    print(f"{run.passed} tests pass without a mutant; {len(chosen)} mutants are tried.", flush=True)  # noqa: T201
    return True


def _try_all(copies: Sequence[Copy], chosen: Sequence[Mutant]) -> list[Trial]:
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def attempt(mutant: Mutant) -> Trial:
        copy = free.get()
        try:
            trial = copy.attempt(mutant)
        finally:
            free.put(copy)
        print(f"{trial.fate:>13}  {mutant.name}  {trial.seconds:.0f} s  {trial.detail}".rstrip(), flush=True)  # noqa: T201
        return trial

    with ThreadPoolExecutor(len(copies)) as pool:
        try:
            return list(pool.map(attempt, chosen))
        except BaseException:
            for copy in copies:
                copy.stop()
            raise


if __name__ == "__main__":
    sys.exit(main())
