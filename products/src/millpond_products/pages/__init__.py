"""Web pages: fetched through the outbound guard, and parsed leniently."""
