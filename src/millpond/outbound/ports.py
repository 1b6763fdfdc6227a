"""Which ports may be called without the permission of an operator.

Ports below 1024 belong to services of the system, and some higher ones to databases. A request over HTTP is of no use
to them, but many execute parts of it as commands, or reveal by their answer that they are there.
"""

from __future__ import annotations

from typing import Final

_SYSTEM_MAX: Final = 1_023
_WEB: Final = frozenset({80, 443})
_DATABASES: Final = frozenset(
    {
        *(1433, 1434),  # SQL Server
        1521,  # Oracle
        2181,  # ZooKeeper
        *(2379, 2380),  # etcd
        3050,  # Firebird
        3306,  # MySQL, MariaDB
        *(5432, 5433, 6432),  # PostgreSQL, and PgBouncer
        5439,  # Redshift
        5984,  # CouchDB
        *(6379, 6380, 16379, 26379),  # Redis, Valkey
        *(9042, 9142, 9160),  # Cassandra, ScyllaDB
        *(7473, 7474, 7687),  # Neo4j
        8086,  # InfluxDB
        *(8123, 9440),  # ClickHouse
        8529,  # ArangoDB
        *(9200, 9300),  # Elasticsearch, OpenSearch
        11211,  # Memcached
        26257,  # CockroachDB
        *(27017, 27018, 27019),  # MongoDB
        28015,  # RethinkDB
    }
)


def is_reserved(port: int) -> bool:
    """Whether a port is only called if an operator allows it."""
    return (port <= _SYSTEM_MAX and port not in _WEB) or port in _DATABASES
