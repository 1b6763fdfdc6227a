"""Runs jobs on ComfyUI: a self-hosted one, or Comfy Cloud.

It needs only the SDK: an HTTP client and msgspec. If ``websockets`` is installed, progress is live.
"""
