"""The engine: it looks, plans, claims, runs and settles. What could be argued about is decided in `_core`."""
