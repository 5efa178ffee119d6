"""How good a classifier is, and how sure we are of it."""
