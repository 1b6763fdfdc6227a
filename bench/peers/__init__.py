"""Measures other job queues: `python -m bench.peers --dsn postgresql://…`."""
