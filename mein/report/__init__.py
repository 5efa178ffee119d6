"""A run folder as one self-contained HTML page, and as a model card."""
