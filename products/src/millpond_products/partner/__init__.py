"""The partner product: the 202 + poll partner API."""
