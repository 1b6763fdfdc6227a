"""The local renderer: has the HTTP API of Replicate, and makes real images, videos and speech."""
