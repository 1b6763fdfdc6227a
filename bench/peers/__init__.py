"""Measures other job queues beside Millpond: `python -m bench.peers --dsn postgresql://…`."""
