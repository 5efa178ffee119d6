"""Metrics, significance, and the comparison of systems."""
