"""The local renderer: speaks the HTTP API of Replicate, and works for real."""
