"""The guard contract over real HTTP."""
