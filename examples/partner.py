"""Pictures and a film from a website, as a client of the partner API has them made: `python examples/partner.py URL`.

It needs a server (`millpond up`), its address in MILLPOND_URL and a client key in MILLPOND_API_KEY. Without an argument
it takes the sample page that the server itself has.
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
        project = f"/v1/projects/{asked(http.post('/v1/projects', json={'name': 'Kettles'}))['projectId']}"
        ended(http, started(http, f"{project}/ingest/website", {"url": website}))
        print(asked(http.get(project))["context"]["summary"]["name"])
        changed_mind = started(http, f"{project}/content", {"brief": "For somebody else"})
        print(asked(http.post(f"/v1/jobs/{changed_mind}/cancel")))
        print(f"{changed_mind}: {ended(http, changed_mind)['status']}")
        wanted = {"brief": "Tea for two", "aspectRatio": "1:1", "images": 1, "seed": 7}
        made = ended(http, started(http, f"{project}/content", wanted))
        for asset in made["result"]["assets"]:
            content = http.get(SERVER + asset["url"]).raise_for_status().content
            Path(asset["name"]).write_bytes(content)
            print(f"{asset['name']}: {len(content):,} bytes of {asset['contentType']}")


def started(http: httpx2.Client, path: str, body: dict[str, Any]) -> str:
    """Start a job. With its key the request may be sent again when no answer came: there is one job for it."""
    headers = {"Idempotency-Key": str(uuid4())}
    for _ in range(3):
        try:
            return asked(http.post(path, json=body, headers=headers))["jobId"]
        except httpx2.TransportError as error:
            print(f"Again: {error}")
    sys.exit(f"{path}: no answer")


def ended(http: httpx2.Client, job_id: str) -> dict[str, Any]:
    """Poll until a job has ended, as often as the server says; to be told to slow down is no failure of the job."""
    while True:
        answer = http.get(f"/v1/jobs/{job_id}")
        if answer.status_code != 429 and (job := asked(answer))["status"] != "running":
            return job if job["status"] != "failed" else sys.exit(f"{job_id}: {job['error']}")
        time.sleep(float(answer.headers["Retry-After"]))


def asked(answer: httpx2.Response) -> Any:
    return (
        answer.json() if answer.is_success else sys.exit(f"{answer.request.url}: {answer.json()['error']['message']}")
    )


if __name__ == "__main__":
    main()
