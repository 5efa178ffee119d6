"""Text classifiers from a few labels and a lot of raw text."""

__version__ = "0.1.0"
