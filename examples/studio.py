"""Makes an ad from the page of a product, as a client of studio: `python examples/studio.py PRODUCT_URL`.

It needs a server (`millpond up --product studio`), its URL in MILLPOND_URL and a client key in MILLPOND_API_KEY.
Without an argument, it uses the sample page of the server.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx2

SERVER = os.environ.get("MILLPOND_URL", "http://127.0.0.1:8686")
ENDED = ("completed", "failed", "canceled", "expired")


def main() -> None:
    product_url = sys.argv[1] if len(sys.argv) > 1 else f"{SERVER}/studio/sample"
    headers = {"Authorization": f"Bearer {os.environ['MILLPOND_API_KEY']}"}
    with httpx2.Client(base_url=f"{SERVER}/studio/api/", headers=headers, timeout=30) as http:
        page = make(http, "scrape", url=product_url)
        print(f"{page['output']['title']}, {page['output']['price']} {page['output']['currency']}")
        copy = make(http, "copy", product_id=page["id"], tone="confident")
        print(f"“{copy['output']['headlines'][0]}”\n{copy['output']['body']}")
        ad = make(http, "static-ad", product_id=page["id"], copy_id=copy["id"], style="bold")
        voice = make(http, "tts", copy_id=copy["id"])
        for job in (ad, voice):
            file = job["output"]["files"][0]
            Path(file["name"]).write_bytes(http.get(file["url"], headers={"Authorization": ""}).content)
            print(f"{file['name']}: {file['size']:,} bytes of {file['content_type']}")
        print(f"{http.get('credits').json()['balance']} credits are left.")


def make(http: httpx2.Client, path: str, **body: Any) -> dict[str, Any]:
    """Start a job, and wait for its end."""
    answer = http.post(f"generate/{path}", json=body)
    if answer.is_error:
        sys.exit(f"{path}: {answer.json()['detail']}")
    while True:
        job = http.get(f"jobs/{answer.json()['job_id']}").json()
        if job["status"] in ENDED:
            break
        time.sleep(0.5)
    if job["status"] != "completed":
        sys.exit(f"{path}: {job['error']}")
    return job


if __name__ == "__main__":
    main()
