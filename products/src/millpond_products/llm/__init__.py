"""A small language model that writes copy for the studio."""
