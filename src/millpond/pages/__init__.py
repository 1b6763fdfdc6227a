"""Pages of the web: fetched through the outbound guard, and read with patience."""
