"""Makes pictures and a film from a website, as a client of the partner API: `python examples/partner.py URL`.

It needs a server (`millpond up --product partner`), its URL in MILLPOND_URL and a client key in MILLPOND_API_KEY.
Without an argument, it uses the sample page of the server.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

SERVER = os.environ.get("MILLPOND_URL", "http://127.0.0.1:8686")


def main() -> None:
    website = sys.argv[1] if len(sys.argv) > 1 else f"{SERVER}/studio/sample"
    headers = {"Authorization": f"Bearer {os.environ['MILLPOND_API_KEY']}"}
    with httpx2.Client(base_url=f"{SERVER}/partner", headers=headers, timeout=60, follow_redirects=True) as http:
        project = f"/v1/projects/{json_of(http.post('/v1/projects', json={'name': 'Kettles'}))['projectId']}"
        wait(http, start(http, f"{project}/ingest/website", {"url": website}))
        print(json_of(http.get(project))["context"]["summary"]["name"])
        changed_mind = start(http, f"{project}/content", {"brief": "For somebody else"})
        print(json_of(http.post(f"/v1/jobs/{changed_mind}/cancel")))
        print(f"{changed_mind}: {wait(http, changed_mind)['status']}")
        wanted = {"brief": "Tea for two", "aspectRatio": "1:1", "images": 1, "seed": 7}
        made = wait(http, start(http, f"{project}/content", wanted))
        for asset in made["result"]["assets"]:
            content = http.get(SERVER + asset["url"]).raise_for_status().content
            Path(asset["name"]).write_bytes(content)
            print(f"{asset['name']}: {len(content):,} bytes of {asset['contentType']}")


def start(http: httpx2.Client, path: str, body: dict[str, Any]) -> str:
    """Start a job. With an idempotency key, the request can be repeated if no response came: it creates one job."""
    headers = {"Idempotency-Key": str(uuid4())}
    for _ in range(3):
        try:
            return json_of(http.post(path, json=body, headers=headers))["jobId"]
        except httpx2.TransportError as error:
            print(f"Retrying after {error}")
    sys.exit(f"{path}: no answer")


def wait(http: httpx2.Client, job_id: str) -> dict[str, Any]:
    """Poll until a job has ended, at the interval that the server states; a 429 is not a failure of the job."""
    while True:
        answer = http.get(f"/v1/jobs/{job_id}")
        if answer.status_code != 429 and (job := json_of(answer))["status"] != "running":
            return job if job["status"] != "failed" else sys.exit(f"{job_id}: {job['error']}")
        time.sleep(float(answer.headers["Retry-After"]))


def json_of(answer: httpx2.Response) -> Any:
    return (
        answer.json() if answer.is_success else sys.exit(f"{answer.request.url}: {answer.json()['error']['message']}")
    )


if __name__ == "__main__":
    main()
