"""Applies an effect to a picture, as a front end and as a worker: `python examples/effects.py PICTURE`.

It needs a server (`millpond up --product effects`), its URL in MILLPOND_URL, a client key in MILLPOND_API_KEY and, to
be the worker too, the fleet secret in MILLPOND_FLEET_SECRET. Without the secret, start `millpond worker comfyui`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
from PIL import Image, ImageOps

SERVER = os.environ.get("MILLPOND_URL", "http://127.0.0.1:8686")
ENDED = ("completed", "failed", "canceled", "expired")


def main() -> None:
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else "picture.png")
    if not picture.exists():
        Image.linear_gradient("L").save(picture)
    with httpx2.Client(base_url=f"{SERVER}/effects/api/", timeout=30) as http:
        http.headers["Authorization"] = f"Bearer {os.environ['MILLPOND_API_KEY']}"
        file = {"filename": picture.name, "mime_type": "image/png", "size": picture.stat().st_size}
        upload = json_of(http.post("videos/uploads", json=file))
        url, headers = upload["upload_url"], upload["upload_headers"]
        httpx2.put(url, content=picture.read_bytes(), headers=headers).raise_for_status()
        video = json_of(http.post("videos", json={"original_file_id": upload["file"]["id"]}))
        order = {"effect_id": "invert", "video_id": video["id"], "idempotency_key": video["id"]}
        print(f"{picture.name} is ordered: {json_of(http.post('ai-jobs', json=order))['status']}")
        if secret := os.environ.get("MILLPOND_FLEET_SECRET"):
            work(secret)
        while (video := json_of(http.get(f"videos/{video['id']}")))["status"] not in ENDED:
            time.sleep(2)
        if video["status"] != "completed":
            sys.exit(f"{video['status']}: {video['error']}")
        Path("inverted.png").write_bytes(httpx2.get(video["processed_file_url"]).content)
        print(f"inverted.png is saved, and {json_of(http.get('wallet'))['balance']} tokens are left.")


def work(secret: str) -> None:
    """Do one job as a worker does: register, poll, download, edit, upload, complete, deregister."""
    with httpx2.Client(base_url=f"{SERVER}/effects/api/worker/", timeout=30) as http:
        me = {"worker_id": f"example-{os.getpid()}", "workflow_slugs": ["invert"], "max_concurrency": 1}
        known = json_of(http.post("register", json=me, headers={"X-Fleet-Secret": secret}))
        http.headers["Authorization"] = f"Bearer {known['token']}"
        job = json_of(http.post("poll", json={"wait": 10}))["job"]
        Path("work.png").write_bytes(httpx2.get(job["input_url"]).content)
        ImageOps.invert(Image.open("work.png").convert("RGB")).save("work.png")
        made = Path("work.png").read_bytes()
        httpx2.put(job["output_url"], content=made, headers=job["output_headers"]).raise_for_status()
        lease = {"dispatch_id": job["dispatch_id"], "lease_token": job["lease_token"]}
        print(f"worked: {json_of(http.post('complete', json=lease | {'output': {'size': len(made)}}))['status']}")
        http.post("deregister")


def json_of(answer: httpx2.Response) -> Any:
    return answer.json() if answer.is_success else sys.exit(f"{answer.request.url}: {answer.text}")


if __name__ == "__main__":
    main()
