"""Stores in SQL databases, one module each; none is imported before its URL is opened."""
