"""A run, from documents to verdict."""
