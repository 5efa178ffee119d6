"""An encoded corpus on disk."""
