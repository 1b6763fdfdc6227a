"""Every sentence has a check, every check a sentence; and each check passes.

The checks run beside each other, for most of them wait most of the time. Each is a test of its own here all the same,
which waits for its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from products.tests.conformance.table import CHECKS, CONTRACTS, SENTENCES, read

if TYPE_CHECKING:
    from products.tests.conformance.running import Running


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_numbers_of_a_contract_are_consecutive(contract: str) -> None:
    numbers = [sentence.number for sentence in read(contract)]
    prefix = numbers[0].partition("-")[0]
    assert numbers == [f"{prefix}-{n}" for n in range(1, len(numbers) + 1)]


def test_every_check_has_a_sentence() -> None:
    assert set(CHECKS) <= set(SENTENCES)


@pytest.mark.busy
@pytest.mark.parametrize("number", SENTENCES)
async def test_it_holds(number: str, running: Running) -> None:
    assert number in CHECKS, f"nothing checks {number}: {SENTENCES[number].text}"
    await running.end_of(number)
