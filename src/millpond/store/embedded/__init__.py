"""The embedded PostgreSQL: a real, durable server in a folder, alive as long as its opener.

    data_dir/            0700 when we make it
      postgres/          PGDATA; its owner is the account the server runs as
      postgres.conf      the user's settings, if any; read after ours
      postgres.lock      flocked by the server's processes for as long as one of them lives
      postgres.log       what the server says, kept below a bound
      postgres.opener    flocked by the opener for as long as it lives
      run/               the socket's folder, or a link to a shorter one

The lock says who may start: the opener takes it and hands it to the server, so the kernel frees it
when the last server process is gone, whatever killed it.
"""

from millpond.store.embedded.binaries import MAJOR_MIN
from millpond.store.embedded.server import EmbeddedPostgres, open_embedded

__all__ = ["MAJOR_MIN", "EmbeddedPostgres", "open_embedded"]
