"""What is added to the expert."""
