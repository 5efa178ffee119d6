"""Files in, labeled files out."""
