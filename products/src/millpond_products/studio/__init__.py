"""The studio product: ad generation with credits."""
