"""python -m tests.support.small_steps: the command line, shards of two documents, as torchrun opens it."""

from unittest.mock import patch

from mein.cli.main import main
from mein.run import steps

SHARD = 2

if __name__ == "__main__":
    with patch.object(steps, "SHARD_DOCUMENTS", SHARD):
        main()
