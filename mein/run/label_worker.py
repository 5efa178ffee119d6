"""One process that labels shards: `python -m mein.run.label_worker RUN STORE BY`, started by teacher.py.

A job is a line with the number of a shard; a line of JSON is the answer.
"""

import sys
from pathlib import Path

from mein.errors import MeinError
from mein.model.loading import read_config, read_labels
from mein.run.teacher import load_teacher, write_label_file
from mein.runtime.device import choose_device
from mein.runtime.processes import answer
from mein.runtime.run_folder import RunFolder
from mein.store.store import Store


def main() -> None:
    """Work on jobs from standard input until it ends."""
    folder, store, by = RunFolder(Path(sys.argv[1])), Store.open(sys.argv[2]), sys.argv[3]
    config = read_config(folder)
    teacher = load_teacher(folder, config, choose_device(config.runtime.device))
    classes = read_labels(folder)[0].classes
    for line in sys.stdin.buffer:
        shard = int(line)
        try:
            write_label_file(teacher, store, classes, by, shard)
            answer(shard=shard)
        except MeinError as problem:
            answer(error=str(problem))


if __name__ == "__main__":
    main()
