"""A trained classifier."""
