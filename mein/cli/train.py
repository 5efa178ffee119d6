"""mein demo, mein init, mein train."""

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mein.cli.console import log, open_console, plain_table
from mein.cli.options import (
    Address,
    ConfigFile,
    Dev,
    EngineName,
    FromRun,
    LabelColumn,
    Labeled,
    LanguageModelFolder,
    Out,
    Preset,
    Processes,
    Resume,
    Seed,
    Set,
    SoftLabelFile,
    Test,
    TextColumn,
    Unlabeled,
    settings_given,
)
from mein.engines import HERE, Engine, opened, training_on_ray
from mein.errors import ConfigError, RunError
from mein.runtime.ranks import is_first

if TYPE_CHECKING:  # what takes a second to import is imported by the functions that use it
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from mein.config import Config
    from mein.data.columns import ColumnsConfig
    from mein.data.corpus import Corpus
    from mein.evaluation.comparison import Row
    from mein.report.record import Finished

    Learn = Callable[[Config, Corpus, Path, bool, Console], list[Row]]

Paths = tuple[str, str | None, str | None, str | None]  # labeled, unlabeled, dev, test
GivenSettings = tuple[str | None, Path | None, dict[str, Any]]  # preset, config file, overrides

Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="Number of training runs, for mean and spread.")]


def demo(
    out: Out = Path("runs/demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the corpus and of the run.")] = 0,
    resume: Resume = False,
) -> None:
    """Train on a synthetic demo corpus, in a minute or two.

    300 labeled, 20,000 unlabeled, and 2,000 test documents, generated from the seed.
    """
    refuse_taken(out, resume)
    from mein.config import load_config
    from mein.data.corpus import Corpus, source_of_lists
    from mein.data.demo import demo_corpus

    config, console = load_config("small", overrides={"seed": seed}), open_console()
    show_whether_new(out, resume, console)
    texts = demo_corpus(seed)
    corpus = Corpus(
        labeled=source_of_lists(texts.labeled_texts, texts.labeled_labels),
        unlabeled=source_of_lists(texts.unlabeled_texts),
        test=source_of_lists(texts.test_texts, texts.test_labels),
        names={part: f"the demo's {part} documents" for part in ("labeled", "unlabeled", "test")},
    )
    train_and_show(config, corpus, out, resume, console)


def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Output file.")] = Path("mein.toml"),
    preset: Preset = None,
) -> None:
    """Write a config file that explains every setting."""
    from mein.config import as_toml, load_config
    from mein.runtime.files import write_atomically

    if path.exists():
        raise ConfigError(f"{path} already exists: remove it, or choose another name.")
    write_atomically(path, as_toml(load_config(preset)).encode("utf-8"))
    log(open_console(), f"Wrote {path}; use it with `mein train --config {path} ...`.")


def train(
    labeled: Labeled,
    out: Out,
    unlabeled: Unlabeled = None,
    dev: Dev = None,
    test: Test = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    seed: Seed = None,
    seeds: Seeds = 1,
    resume: Resume = False,
    lm: LanguageModelFolder = None,
    soft_labels: SoftLabelFile = None,
    from_run: FromRun = None,
    engine: EngineName = "processes",
    address: Address = None,
    processes: Processes = None,
) -> None:
    """Train a classifier and evaluate it beside its controls.

    Settings come from the defaults, the preset, the config file, and --set. Later ones win.
    """
    from mein.config import parse_overrides

    given, chosen = settings_given(train, locals()), parse_overrides(set_)
    if lm is not None:
        from mein.model.build import settings_of_language_model

        chosen = settings_of_language_model(lm) | chosen
    paths, settings = (labeled, unlabeled, dev, test), (preset, config, chosen | given)
    run_training(paths, out, settings, seeds, resume, (engine, address), processes)


def run_training(
    paths: Paths,
    out: Path,
    settings: GivenSettings,
    seeds: int,
    resume: bool,
    engine: Engine = HERE,
    processes: int | None = None,
) -> None:
    """Train once, or once for each seed, and show the table."""
    with opened(engine, processes=processes) as on_ray:
        learn = partial(_learn_on_ray, processes) if on_ray else train_and_show
        _run_training(paths, out, settings, seeds, resume, learn)


def _run_training(
    paths: Paths, out: Path, settings: GivenSettings, seeds: int, resume: bool, learn: "Learn"
) -> None:
    from mein.config import load_config

    if seeds == 1:
        refuse_taken(out, resume)
    preset, file, overrides = settings
    config = load_config(preset, file, overrides)
    from mein.data.corpus import corpus_of_files  # what takes seconds to import waits for what is refused
    from mein.report.page import write_report
    from mein.run.documents import check_sources, read_labeled
    from mein.run.warm_start import refuse_other_previous_run

    console = open_console()
    corpus = corpus_of_files(*paths, config.columns)
    show_whether_new(out, resume, console)
    check_sources(config, corpus)
    show_columns(paths[1], config.columns, console)
    if seeds == 1:
        learn(config, corpus, out, resume, console)
        return
    if (out / "config.json").exists():
        raise RunError(f"{out} holds a single run: choose another --out for {seeds} seeds.")
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
    is_same_test = corpus.test is not None or corpus.dev is not None  # otherwise dev differs with the seed
    write_report(folders, out / "report.html")
    show_seeds(out, folders if is_same_test else [], tables, console)


def refuse_taken(out: Path, resume: bool) -> None:
    """Refuse a folder that is not free for a run."""
    from mein.runtime.run_folder import RunFolder

    RunFolder(out).refuse_taken(resume)


def show_whether_new(out: Path, resume: bool, console: "Console") -> None:
    """Note that there is no run to resume: it was stopped too early, or its name is wrong."""
    if resume and is_first() and not out.exists():
        log(console, f"No run to resume in {out}: starting a new one.")


def show_columns(unlabeled: str | None, columns: "ColumnsConfig", console: "Console") -> None:
    """Note where unlabeled text lacks the named column and another was used."""
    from mein.data.audit import replaced_columns

    for note in () if unlabeled is None else replaced_columns(unlabeled, columns):
        log(console, note)


def _weights_line(run: "Finished") -> str:
    """The weight of each component after calibration."""
    if not run.gates:
        return "Weights: none, since there are no imitators."
    return "Weights: " + "   ".join(f"{name} {weight:.2f}" for name, weight in run.weights)


def train_and_show(
    config: "Config", corpus: "Corpus", out: Path, resume: bool, console: "Console"
) -> "list[Row]":
    """Prepare, train, evaluate, report: everything that `mein train` does once."""
    from mein.run.algorithm import train
    from mein.run.evaluate import evaluate
    from mein.run.prepare import prepare
    from mein.runtime.progress import Quiet, Terminal
    from mein.runtime.provenance import provenance
    from mein.runtime.run_folder import RunFolder

    folder, reporter = RunFolder(out), Terminal(console) if is_first() else Quiet()
    with folder.held():
        run = prepare(config, corpus, folder, reporter, resume=resume)
        if not folder.is_done and not (folder / "provenance.json").exists():
            folder.write_json("provenance.json", provenance(sys.argv))
        train(run)
        rows = evaluate(run)
    if is_first():
        report(config, rows, out, console, on_test=corpus.test is not None)
    return rows


def report(config: "Config", rows: "list[Row]", out: Path, console: "Console", *, on_test: bool) -> None:
    """Leave a model card and a page beside a finished run, and show the table."""
    from mein.evaluation.rendering import render, sentence_of
    from mein.report.card import write_card
    from mein.report.charts import counted
    from mein.report.page import write_report
    from mein.report.record import read_finished

    if not (out / "README.md").exists():  # an edited card is kept
        write_card(out)
    write_report([out], out / "report.html")
    dev = counted(rows[0].scores.documents, "dev document")
    console.print()
    console.print(render(rows, title=None if on_test else f"{dev} (no --test)"))
    finished = read_finished(out)
    log(console, _weights_line(finished))
    if finished.verdict is not None:
        log(console, sentence_of(finished.verdict), "bold")
    hint = f', or try `mein explain {out} "..."`' if config.expert.traits.learns else ""
    log(console, f"See {out / 'report.html'}{hint}.")


def _learn_on_ray(
    processes: int | None, config: "Config", corpus: "Corpus", out: Path, resume: bool, console: "Console"
) -> "list[Row]":
    """The same with Algorithm 1 on a cluster; evaluated and reported here."""
    from mein.runtime.progress import Terminal

    training_on_ray(config, corpus, out, Terminal(console), resume=resume, processes=processes)
    return train_and_show(config, corpus, out, True, console)


def show_seeds(
    out: Path, folders: Sequence[Path], tables: "Sequence[Sequence[Row]]", console: "Console"
) -> None:
    """Print the table over seeds, and leave its figures in seeds.json.

    The folders are those of the runs; none if the runs were evaluated on different documents,
    whose predictions cannot be paired.
    """
    from mein.run.evaluate import read_correct
    from mein.runtime.files import write_atomically

    figures = over_seeds(tables, [read_correct(folder) for folder in folders])
    write_atomically(out / "seeds.json", json.dumps(figures, indent=1).encode("utf-8"))
    console.print()
    console.print(_seeds_table(figures, len(tables)))


def over_seeds(
    tables: "Sequence[Sequence[Row]]", correct: "Sequence[dict[str, np.ndarray]]"
) -> dict[str, dict[str, Any]]:
    """Errors in %, their mean and spread, and the p-value against the mixture, seeds pooled."""
    import numpy as np

    from mein.evaluation.significance import mean_and_spread, paired_bootstrap
    from mein.evaluation.systems import MIXTURE

    figures = {}
    for rows in zip(*tables, strict=True):
        name, errors = rows[0].name, [row.scores.error for row in rows]
        mean, spread = mean_and_spread(errors)
        p_value = None
        if name != MIXTURE and correct and MIXTURE in correct[0]:
            other, mixture = (np.stack([one[key] for one in correct]) for key in (name, MIXTURE))
            p_value = paired_bootstrap(other, mixture, seed=0).p_value
        figures[name] = {
            "title": rows[0].title,
            "errors": errors,
            "mean": mean,
            "spread": spread,
            "p_value": p_value,
        }
    return figures


def _seeds_table(figures: dict[str, dict[str, Any]], seeds: int) -> "Table":
    from mein.evaluation.rendering import p_text
    from mein.evaluation.systems import MIXTURE

    table = plain_table(
        "",
        "error %",
        "spread",
        f"p vs {MIXTURE}",
        left=("",),
        title=f"{seeds} seeds",
        title_justify="left",
        title_style="bold",
        caption="spread: standard deviation; p: paired bootstrap, seeds pooled",
        caption_justify="left",
    )
    for name, figure in figures.items():
        shown = f"{figure['mean']:.2f}", f"{figure['spread']:.2f}", p_text(figure["p_value"])
        table.add_row(figure["title"], *shown, style="bold" if name == MIXTURE else "")
    return table
