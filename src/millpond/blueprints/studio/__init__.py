"""The studio blueprint: ad generation with credits."""
