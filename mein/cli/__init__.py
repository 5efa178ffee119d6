"""The command line: a module per command or family of commands."""
