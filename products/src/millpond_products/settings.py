"""The settings of the products, in addition to those of Millpond."""

from __future__ import annotations

from dataclasses import dataclass

from millpond import settings
from millpond.settings import setting
from millpond_products import allowed


def _names(commands: str) -> str:
    """The names of the commands, without their arguments, which may be secret."""
    return ", ".join(allowed.commands(commands))


@dataclass(frozen=True)
class ProductSettings(settings.Settings):
    """Each field is an environment variable: ``MILLPOND_`` and its name in capitals."""

    renderer_token: str | None = setting(None, is_secret=True, group="renderer")
    """The token that a renderer started by hand requires and signs with. Default: a new one at each start."""
    chat_url: str | None = setting(None, group="studio")
    """An OpenAI-compatible endpoint that writes ad copy (https://…/v1). Default: a built-in grammar writes it."""
    chat_key: str | None = setting(None, is_secret=True, group="studio")
    """The API key for that endpoint."""
    chat_model: str = setting("gpt-4o-mini", group="studio")
    """The model to use at that endpoint."""
    models: str = setting("", group="studio and partner")
    """The models at Replicate: static_ad=OWNER/NAME, ugc_video=…, persona=…, tts=…; else the renderer's."""
    github_url: str = setting("https://api.github.com", group="GitHub (actions and partner)")
    """The URL of GitHub's REST API."""
    github_token: str | None = setting(None, is_secret=True, group="GitHub (actions and partner)")
    """The token with which workflows are dispatched and pull requests opened. Without one, neither is done."""
    repositories: str = setting("", check=allowed.Repositories.read, group="GitHub (actions and partner)")
    """The repositories in which every tenant may dispatch workflows and open pull requests, separated by commas:
    OWNER/NAME, or OWNER/* for all of an owner. Default: none."""
    itunes_url: str = setting("https://itunes.apple.com", group="partner")
    """The URL of the App Store's lookup API."""
    branches: str | None = setting(None, group="partner")
    """A folder of bare git repositories, to which a branch is pushed if no pull request can be opened for it."""
    commands: str = setting("", check=allowed.commands, show=_names, group="actions")
    """The commands that run-command may run, as JSON: {"NAME": ["program", "first argument", …]}."""
    poll_limit: int = setting(50, bounds=(1, 1_000_000), group="partner")
    """The number of status requests per second that a key may send to the partner API."""
