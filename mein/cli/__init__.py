"""What each command of the shell does once its words are parsed."""
