"""The embedded PostgreSQL: a durable server in a folder, which runs as long as the process that opened it.

    data_dir/            0700 if Millpond creates it
      postgres/          PGDATA; its owner is the account the server runs as
      postgres.conf      the user's settings, if any; read after Millpond's
      postgres.lock      flocked by the server's processes for as long as one of them runs
      postgres.log       the server's log, limited in size
      postgres.opener    flocked by the opener, the process that started the server, for as long as it runs
      run/               the socket's folder, or a link to a shorter one

Only the holder of the lock may start the server: the opener takes the lock and passes it on to the server, so the
kernel releases it when the last server process is gone, for whatever reason.
"""

from millpond.store.embedded.binaries import MAJOR_MIN
from millpond.store.embedded.keeper import Keeper
from millpond.store.embedded.server import EmbeddedPostgres, open_embedded

__all__ = ["MAJOR_MIN", "EmbeddedPostgres", "Keeper", "open_embedded"]
