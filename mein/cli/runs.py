"""What commands share that read documents with a trained run: a teacher's soft labels, and the columns.

Separate from options.py, which only declares.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mein.data.columns import ColumnsConfig
    from mein.data.soft_labels import SoftLabels


def soft_labels_of(path: Path, file: str | None) -> "SoftLabels | None":
    """A teacher's soft labels for documents outside the run, if a file is given."""
    if file is None:
        return None
    from mein.data.soft_labels import SoftLabelTable
    from mein.model.loading import read_config, read_labels
    from mein.runtime.run_folder import RunFolder

    config, labels = read_config(RunFolder(path)), read_labels(RunFolder(path))[0]
    return SoftLabelTable(file, config.columns, labels.classes)


def columns_of(of_run: "ColumnsConfig", text: str | None, label: str | None) -> "ColumnsConfig":
    """The columns named now; by default, those of the training."""
    named = {"text": text, "label": label}
    return of_run.model_copy(update={name: value for name, value in named.items() if value is not None})
