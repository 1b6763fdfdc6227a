"""Runs jobs on ComfyUI: one of your own, or Comfy Cloud.

It stands on the SDK alone: an HTTP client and msgspec. Where ``websockets`` is installed, progress is live.
"""
