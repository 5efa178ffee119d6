"""Files in, labelled files out."""
