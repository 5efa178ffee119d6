"""Prepare, train, evaluate in a locked folder. Not part of api.py because paper and benchmarks use it."""

from collections.abc import Sequence
from pathlib import Path

from mein.config import Config
from mein.data.corpus import Corpus
from mein.data.soft_labels import SoftLabels
from mein.evaluation.comparison import Row
from mein.run.algorithm import train
from mein.run.evaluate import evaluate
from mein.run.prepare import prepare
from mein.run.user_fits import UserClassifier
from mein.runtime.progress import Quiet, Reporter
from mein.runtime.ranks import is_first
from mein.runtime.run_folder import RunFolder


def train_and_evaluate(
    config: Config,
    corpus: Corpus,
    path: Path,
    reporter: Reporter,
    *,
    resume: bool = False,
    controls: Sequence[str] | None = None,
    soft_labels: SoftLabels | None = None,
    expert: UserClassifier | None = None,
    has_baseline: bool = True,
) -> list[Row]:
    """The table of a run in the folder `path`. Of several processes only the first returns rows."""
    folder, reporter = RunFolder(path), reporter if is_first() else Quiet()
    with folder.held():
        run = prepare(
            config,
            corpus,
            folder,
            reporter,
            resume=resume,
            controls=controls,
            soft_labels=soft_labels,
            expert=expert,
        )
        train(run)
        return evaluate(run, has_baseline=has_baseline)
