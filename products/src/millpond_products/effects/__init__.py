"""The effects product: video effects on a leased ComfyUI fleet."""
