"""The effects blueprint: video effects on a leased ComfyUI fleet."""
