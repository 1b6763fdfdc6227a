"""What a user may read of an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import PermanentError, TransientError
from millpond.integrations.comfyui.disclosure import MESSAGE_MAX, Disclosure, notes

DISCLOSURE = Disclosure(
    "http://gpu-7.internal:8188", {"millpond-ab12.png": "cat.png", "millpond-ab12 (1).png": "dog.png"}
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot open /srv/ComfyUI/input/millpond-ab12.png", "cannot open cat.png"),
        ("'/srv/My Models/a b.ckpt' is broken", "'a b.ckpt' is broken"),
        ("open(/a/b/c.py), then ~/x/y.", "open(c.py), then y."),
        ("error:/srv/comfy/custom_nodes/x/", "error:x"),
        (r"C:\\ComfyUI\\models\\vae.pt and \\\\nas\\share\\b.bin".replace("\\\\", "\\"), "vae.pt and b.bin"),
        ("no millpond-ab12 (1).png here", "no dog.png here"),
        ("http://10.0.0.5:8188/view?x=1, please", "(address), please"),
        ("ask gpu-7.internal:8188 or gpu-7.internal", "ask (address) or (address)"),
        ("10.0.0.5:8188. 10.0.0.5.", "(address). (address)."),
        ("Connect call failed ('fd00::1:2', 8188, 0, 0)", "Connect call failed ('(address)', 8188, 0, 0)"),
        ("at localhost:8188", "at (address)"),
        ("one\ntwo\r\n\tthree\x1b[0m \x00", "one two three [0m \N{REPLACEMENT CHARACTER}"),
        ("image/png, 1/2 and and/or at 12:30:45 in std::vector", None),
        ("Value not in list (sampler: 'x' not in ['a', 'b'])", None),
        ("torch 2.9.1 and CUDA 12.4, shape [1, 3, 64, 64], ratio 16:9", None),
    ],
    ids=lambda text: None if text is None else text[:20],
)
def test_a_line_has_no_addresses_and_no_paths(text: str, shown: str | None) -> None:
    assert DISCLOSURE.line(text) == (text if shown is None else shown)


@given(st.text(max_size=2_000))
def test_a_line_is_short_and_one(text: str) -> None:
    line = DISCLOSURE.line(text)
    assert len(line) <= MESSAGE_MAX
    assert len(line.splitlines()) <= 1


def test_a_long_path_of_nothing_is_read_quickly() -> None:
    for text in ("/" * 8_000, "/a" * 4_000, "a:" * 4_000, "'/" * 4_000, "http://" * 1_000):
        assert len(DISCLOSURE.line(text)) <= MESSAGE_MAX


def test_the_class_and_the_reason_stay_and_the_original_is_a_note() -> None:
    error = PermanentError("no /a/b/c", hint="see /a/b/d", reason="execution", flaws=[{"message": "x /a/b/e\ny"}])
    shown = DISCLOSURE.apply(error)
    assert shown is error
    assert error.as_dict() == {
        "code": "permanent",
        "message": "no c",
        "hint": "see d",
        "reason": "execution",
        "flaws": [{"message": "x e y"}],
    }
    assert notes(error) == "no /a/b/c"


def test_an_error_of_any_other_class_may_pass_by_itself() -> None:
    shown = DISCLOSURE.apply(OSError("no /a/b/c"))
    assert isinstance(shown, TransientError)
    assert shown.message == "OSError: no c"
    assert notes(shown) == "OSError: no /a/b/c"
