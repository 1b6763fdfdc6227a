"""The guard blueprint: the two-hook message filter."""
