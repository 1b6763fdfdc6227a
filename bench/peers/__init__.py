"""Measures other job queues beside Penstock: `python -m bench.peers --dsn postgresql://…`."""
