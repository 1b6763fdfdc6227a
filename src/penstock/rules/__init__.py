"""Rules: what a text must not contain, decided in linear time."""
