"""mein demo, mein init, mein train."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from mein.cli.console import log, open_console, show_seeds
from mein.cli.engine import HERE, Engine, opened, training_on_ray
from mein.config import Config, as_toml, load_config
from mein.data.audit import replaced_columns
from mein.data.columns import ColumnsConfig
from mein.data.corpus import Corpus, corpus_of_files, source_of_lists
from mein.data.demo import demo_corpus
from mein.errors import ConfigError, RunError
from mein.evaluation.comparison import Row, render
from mein.mixture.inference import choose_device
from mein.report.card import write_card
from mein.report.charts import counted
from mein.report.page import write_report
from mein.report.record import Finished, read_finished
from mein.run.evaluate import sentence, train_and_judge
from mein.run.prepare import read_labeled
from mein.run.warm_start import refuse_other_previous_run
from mein.runtime.files import write_atomically
from mein.runtime.progress import Terminal
from mein.runtime.provenance import provenance
from mein.runtime.ranks import is_first
from mein.runtime.run_folder import RunFolder

Paths = tuple[str, str | None, str | None, str | None]  # labeled, unlabeled, dev, test
Learn = Callable[[Config, Corpus, Path, bool, Console], list[Row]]
Settings = tuple[str | None, Path | None, dict[str, Any]]  # preset, config file, overrides


def run_demo(out: Path, seed: int, resume: bool) -> None:
    """Train on the embedded corpus and show the table."""
    config, console = load_config("small", overrides={"seed": seed}), open_console()
    show_vocabularies(out, resume, console)
    texts = demo_corpus(seed)
    corpus = Corpus(
        labeled=source_of_lists(texts.labeled_texts, texts.labeled_labels),
        unlabeled=source_of_lists(texts.unlabeled_texts),
        test=source_of_lists(texts.test_texts, texts.test_labels),
        names={part: f"the demo's {part} documents" for part in ("labeled", "unlabeled", "test")},
    )
    train_and_show(config, corpus, out, resume, console)


def write_config(path: Path, preset: str | None) -> None:
    """Write a commented config; never over a file that is there."""
    if path.exists():
        raise ConfigError(f"{path} exists already: remove it, or give another name.")
    write_atomically(path, as_toml(load_config(preset)).encode("utf-8"))
    log(open_console(), f"Wrote {path}; use it with `mein train --config {path} ...`.")


def run_training(
    paths: Paths,
    out: Path,
    settings: Settings,
    seeds: int,
    resume: bool,
    engine: Engine = HERE,
    processes: int | None = None,
) -> None:
    """Train once, or once for each seed, and show the table."""
    with opened(engine) as on_ray:
        learn = partial(_learn_on_ray, processes) if on_ray else train_and_show
        _run_training(paths, out, settings, seeds, resume, learn)


def _run_training(
    paths: Paths, out: Path, settings: Settings, seeds: int, resume: bool, learn: Learn
) -> None:
    console = open_console()
    preset, file, overrides = settings
    config = load_config(preset, file, overrides)
    corpus = corpus_of_files(*paths, config.columns)
    show_vocabularies(out, resume, console)
    check_sources(config, corpus)
    show_columns(paths[1], config.columns, console)
    if seeds == 1:
        learn(config, corpus, out, resume, console)
        return
    if (out / "config.json").exists():
        raise RunError(f"{out} holds a single run: choose another --out for the runs of {seeds} seeds.")
    folders, tables = [], []
    configs = [load_config(preset, file, overrides | {"seed": config.seed + n}) for n in range(seeds)]
    for seeded in configs if config.expert.is_self_training else ():
        refuse_other_previous_run(seeded, corpus, read_labeled(seeded, corpus))
    for seeded in configs:
        console.rule(f"seed {seeded.seed}")
        folder = out / f"seed-{seeded.seed}"
        tables.append(learn(seeded, corpus, folder, resume and folder.exists(), console))
        folders.append(folder)
    if not is_first():
        return
    is_same_test = corpus.test is not None or corpus.dev is not None  # else dev differs with the seed
    write_report(folders, out / "report.html")
    show_seeds(out, folders if is_same_test else [], tables, console)


def check_sources(config: Config, corpus: Corpus) -> None:
    """Find what would stop a run before hours go into it.

    Of the test labels only the names of the classes are looked at here, nothing else.
    """
    choose_device(config.runtime.device)
    labels = read_labeled(config, corpus).labels
    if corpus.unlabeled is not None:
        next(corpus.unlabeled(), None)
    if corpus.test is not None:
        counts = Counter(str(label) for chunk in corpus.test() for label in chunk.labels or ())
        labels.refuse_unseen(counts, corpus.names["test"])


def show_vocabularies(out: Path, resume: bool, console: Console) -> None:
    """Say so where there is no run to go on with: it was stopped too early, or its name is wrong."""
    if resume and is_first() and not out.exists():
        log(console, f"There is no run in {out} to resume: this starts one.")


def show_columns(unlabeled: str | None, columns: ColumnsConfig, console: Console) -> None:
    """Say so where raw text lacks the column that is named and another was taken."""
    for told in () if unlabeled is None else replaced_columns(unlabeled, columns):
        log(console, told)


def _weights_line(run: Finished) -> str:
    """What each voice counts for once calibrated."""
    if not run.gates:
        return "Gates: none, for there are no imitators."
    return "Weights: " + "   ".join(f"{name} {weight:.2f}" for name, weight in run.weights)


def train_and_show(config: Config, corpus: Corpus, out: Path, resume: bool, console: Console) -> list[Row]:
    """Train in a folder, leave there what people look at, and show the table."""
    rows = train_and_judge(config, corpus, out, Terminal(console), resume=resume)
    if not is_first():
        return rows
    _show(out)
    dev = counted(rows[0].scores.documents, "dev document")
    title = None if corpus.test is not None else f"{dev} (no --test)"
    console.print()
    console.print(render(rows, title=title))
    log(console, _weights_line(read_finished(out)))
    log(console, sentence(rows, config), "bold")
    hint = f', or try `mein explain {out} "..."`' if config.expert.traits.learns else ""
    log(console, f"Look at {out / 'report.html'}{hint}.")
    return rows


def _learn_on_ray(
    processes: int | None, config: Config, corpus: Corpus, out: Path, resume: bool, console: Console
) -> list[Row]:
    """The same with Algorithm 1 on a cluster; here it is judged and shown."""
    training_on_ray(config, corpus, out, Terminal(console), resume=resume, processes=processes)
    return train_and_show(config, corpus, out, True, console)


def _show(out: Path) -> None:
    """Leave beside a finished run what people look at: where it came from, a model card, a report."""
    folder = RunFolder(out)
    if not (folder / "provenance.json").exists():
        folder.write_json("provenance.json", provenance(sys.argv))
    if not (folder / "README.md").exists():  # a card that somebody edited is kept
        write_card(out)
    write_report([out], out / "report.html")
