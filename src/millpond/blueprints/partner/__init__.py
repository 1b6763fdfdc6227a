"""The partner blueprint: the 202 + poll partner API."""
