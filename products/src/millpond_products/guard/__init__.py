"""The guard product: the two-hook message filter."""
