"""mein evaluate: a run and its controls on labeled documents. One module per command."""

from typing import Annotated

from mein.cli.console import Output
from mein.cli.options import (
    AsJson,
    IsQuiet,
    IsVerbose,
    LabelColumn,
    RunPath,
    SoftLabelFile,
    TextColumn,
    argument,
)


def evaluate(
    run: RunPath,
    documents: Annotated[str, argument("FILE", "Labeled documents.")],
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    soft_labels: SoftLabelFile = None,
    quiet: IsQuiet = False,
    verbose: IsVerbose = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run and its controls on labeled documents.

    Examples:
      mein evaluate runs/reviews other.csv
      mein evaluate runs/reviews other.csv --json > figures.json
    """
    from mein.data.corpus import read_all
    from mein.data.labels import refuse_textless
    from mein.data.readers import read_documents
    from mein.data.splits import empty_texts
    from mein.evaluation.comparison import compare, verdict_of
    from mein.evaluation.rendering import render, sentence_of
    from mein.evaluation.systems import PREVIOUS_RUN
    from mein.model.loading import Classifiers, FinishedRun
    from mein.run.evaluate import credited, encoded, log_probs_of_all, previous_run_log_probs
    from mein.runtime.device import choose_device

    finished = FinishedRun.open(run)
    config = finished.config
    columns = config.columns.renamed(text_column, label_column)
    texts, values = read_all(lambda: read_documents(documents, columns, labeled=True))
    ids = finished.labels.encode(values, documents)
    refuse_textless(len(texts), empty_texts(texts), documents)
    systems = previous_run_log_probs(finished.folder, config, "test", texts)
    output = Output(quiet, verbose, as_json)
    classifiers = Classifiers(finished.folder, config, choose_device("auto"), soft_labels)
    encoding = encoded(classifiers.mixture, "test", texts, output.reporter)
    systems |= log_probs_of_all(classifiers, "test", encoding, output.reporter)
    has_lexicon = classifiers.mixture.lexicon is not None
    is_tuned = not config.expert.traits.is_fitted
    rows = compare(ids, systems, seed=config.seed, has_lexicon=has_lexicon, is_tuned=is_tuned)
    verdict = sentence_of(verdict_of(rows, credited(config)))
    if as_json:
        output.give({"run": str(run), "systems": [row.to_dict() for row in rows], "verdict": verdict})
        return
    output.console.print(render(rows, title=f"{len(ids):,} documents of {documents}"))
    if config.expert.is_self_training and PREVIOUS_RUN not in systems:
        output.log(f"{config.expert.from_run}: the previous run is no longer there.")
    output.log(verdict, "bold")
