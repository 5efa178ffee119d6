"""Where documents come from. Nothing here knows of tensors."""
