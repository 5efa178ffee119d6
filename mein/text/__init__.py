"""How documents become numbers."""
