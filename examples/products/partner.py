"""Partner in the demo: a project that is read from a website and a git repository; then a picture and a film of it.

The website is the sample page of the server. The repository is created here, and served over HTTP by git itself.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any, ClassVar

from examples.products.part import Part
from products.tests.doubles.git import GitServer
from tests.doubles.comfyui import served

REPOSITORY: dict[str | bytes, bytes | str] = {
    "README.md": "# Fell Kettle\n\nThe firmware of a kettle that sings when the water boils.\n",
    "pyproject.toml": '[project]\nname = "fell-kettle"\nversion = "1.2.0"\ndependencies = ["pyserial>=3"]\n',
    "kettle/boil.py": "def boil(litres: float) -> float:\n    return litres * 336 / 2.2  # seconds\n",
}


logging.getLogger("uvicorn").addHandler(logging.NullHandler())  # silences the shutdown message of the git server


@dataclass(slots=True, kw_only=True)
class Partner(Part):
    name: ClassVar[str] = "partner"

    def play(self) -> tuple[str, ...]:
        project = f"/v1/projects/{self.call('POST', '/v1/projects', {'name': 'Kettles'})['projectId']}"
        self.make("the website", f"{project}/ingest/website", {"url": f"{self.stage.ready['url']}/studio/sample"})
        git = GitServer(self.stage.folder / "data")
        git.repository("fell-kettle", REPOSITORY)
        with served(git) as server:
            source = {"repoUrl": f"{server.url}/fell-kettle.git"}
            learned = self.make("a git repository", f"{project}/ingest/github", source)
        order = {"brief": "Tea for two, before dawn", "style": "elegant", "aspectRatio": "1:1", "images": 1, "seed": 7}
        made = self.make("pictures and a film", f"{project}/content", order)
        context = self.call("GET", project)["context"]
        assets = [*learned["assets"], *made["assets"]]
        kept = [self.keep(asset["name"], self.fetch(asset["url"])) for asset in assets]
        kept.append(self.keep("context.json", json.dumps(context, indent=2)))
        return (
            f"partner learned what the {context['summary']['name']} is, from its website and its git repository",
            f"and made “{made['headline']}”: a picture and a film. A patch adds an SDK to the repository.",
            self.kept(*kept),
        )

    def make(self, what: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        job_id = self.call("POST", path, body)["jobId"]

        def read() -> tuple[Any, str, str]:
            job = self.call("GET", f"/v1/jobs/{job_id}")
            note = f"{job['stage']} {job['progress']:.0%}" if job["status"] == "running" else ""
            return job, job["status"], note

        return self.end_of(what, read)["result"]

    def fetch(self, url: str) -> bytes:
        answer = self.stage.http.get(self.stage.ready["url"] + url, follow_redirects=True)
        return answer.raise_for_status().content
