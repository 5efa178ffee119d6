"""python -m mein: the command line, as torchrun opens it."""

from mein.cli.main import main

if __name__ == "__main__":
    main()
