"""mein demo: a training on the synthetic demo corpus. One module per command."""

from pathlib import Path
from typing import Annotated

from mein.cli.console import Output
from mein.cli.options import LARGEST_SEED, RUN, IsQuiet, IsVerbose, Resume, option, whole
from mein.cli.training import Request, note_whether_new, refuse_taken, train_and_show


def demo(
    out: Annotated[
        Path, option("FOLDER", "Run folder to create. Default: runs/demo.", RUN, names="--out -o")
    ] = Path("runs/demo"),
    seed: Annotated[
        int,
        option(
            "N",
            "Seed of the corpus and of the run. Default: 0.",
            RUN,
            parser=whole("--seed", 0, LARGEST_SEED),
        ),
    ] = 0,
    resume: Resume = False,
    quiet: IsQuiet = False,
    verbose: IsVerbose = False,
) -> None:
    """Train on a synthetic demo corpus, in a minute or two.

    300 labeled, 20,000 unlabeled, and 2,000 test documents, generated from the seed.

    Examples:
      mein demo --out runs/demo
    """
    refuse_taken(out, resume)
    from mein.config import load_config
    from mein.data.corpus import Corpus, source_of_lists
    from mein.data.demo import demo_corpus

    config, output = load_config("small", overrides={"seed": seed}), Output(quiet, verbose)
    note_whether_new(out, resume, output)
    texts = demo_corpus(seed)
    corpus = Corpus(
        labeled=source_of_lists(texts.labeled_texts, texts.labeled_labels),
        unlabeled=source_of_lists(texts.unlabeled_texts),
        test=source_of_lists(texts.test_texts, texts.test_labels),
        names={part: f"the demo's {part} documents" for part in ("labeled", "unlabeled", "test")},
    )
    train_and_show(Request(config, corpus, out, output, resume))
