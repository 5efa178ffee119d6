"""mein demo, mein init, mein train."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from mein.config import Config, as_toml, load_config
from mein.data.corpus import Corpus, corpus_of_files, source_of_lists
from mein.data.demo import demo_corpus
from mein.errors import ConfigError, RunError
from mein.evaluation.significance import mean_and_spread, paired_bootstrap
from mein.evaluation.table import MIXTURE, Row, headline, render
from mein.files import write_atomically
from mein.judge import read_correct, train_and_judge
from mein.model import load_model
from mein.progress import Terminal

Paths = tuple[str, str | None, str | None, str | None]  # labelled, unlabelled, dev, test
Settings = tuple[str | None, Path | None, dict[str, Any]]  # preset, config file, overrides


def run_demo(out: Path, seed: int, resume: bool) -> None:
    """Train on the embedded corpus and show the table."""
    console = Console()
    texts = demo_corpus(seed)
    corpus = Corpus(
        labeled=source_of_lists(texts.labeled_texts, texts.labeled_labels),
        unlabeled=source_of_lists(texts.unlabeled_texts),
        test=source_of_lists(texts.test_texts, texts.test_labels),
        names={part: f"the demo's {part} documents" for part in ("labeled", "unlabeled", "test")},
    )
    config = load_config("small", overrides={"seed": seed})
    _train(config, corpus, out, resume, console)


def write_config(path: Path, preset: str | None) -> None:
    """Write a commented config; never over a file that is there."""
    if path.exists():
        raise ConfigError(f"{path} exists already: remove it, or give another name.")
    write_atomically(path, as_toml(load_config(preset)).encode("utf-8"))
    Console().print(f"Wrote {path}; use it with `mein train --config {path} ...`.", highlight=False)


def run_training(paths: Paths, out: Path, settings: Settings, seeds: int, resume: bool) -> None:
    """Train once, or once for each seed, and show the table."""
    console = Console()
    preset, file, overrides = settings
    config = load_config(preset, file, overrides)
    corpus = corpus_of_files(*paths, config.columns)
    if seeds == 1:
        _train(config, corpus, out, resume, console)
        return
    folders, tables = [], []
    for seed in range(config.seed, config.seed + seeds):
        console.rule(f"seed {seed}")
        folder = out / f"seed-{seed}"
        seeded = load_config(preset, file, overrides | {"seed": seed})
        may_exist = resume and folder.exists()
        tables.append(_train(seeded, corpus, folder, may_exist, console))
        folders.append(folder)
    _show_seeds(folders, tables, console)


def _train(config: Config, corpus: Corpus, out: Path, resume: bool, console: Console) -> list[Row]:
    if resume and not out.exists():
        raise RunError(f"There is no run in {out} to resume: leave --resume out to start one.")
    rows = train_and_judge(config, corpus, out, Terminal(console), resume=resume)
    title = None if corpus.test is not None else f"{rows[0].scores.documents:,} dev documents (no --test)"
    console.print()
    console.print(render(rows, title=title))
    gates = load_model(out, "cpu").gates
    shown = ", ".join(f"c={c}: {g:.2f}" for c, g in zip(config.imitators.windows, gates, strict=False))
    console.print(f"Gates: {shown}" if len(gates) else "Gates: none, there are no imitators", highlight=False)
    console.print(headline(rows), style="bold", highlight=False)
    console.print(f'The run is in {out}: try `mein explain {out} "..."`.', highlight=False)
    return rows


def _show_seeds(folders: list[Path], tables: list[list[Row]], console: Console) -> None:
    """Mean and spread of each system over the seeds, and the mixture against the controls, pooled."""
    table = Table(title=f"{len(tables)} seeds", title_justify="left", box=None, pad_edge=False)
    for header in ("", "error %", "spread", "p vs mixture"):
        table.add_column(header, justify="left" if header == "" else "right")
    correct = [read_correct(folder) for folder in folders]
    mixtures = np.stack([c[MIXTURE] for c in correct])
    for i, row in enumerate(tables[0]):
        mean, spread = mean_and_spread([rows[i].scores.error for rows in tables])
        p = ""
        if row.name != MIXTURE:
            others = np.stack([c[row.name] for c in correct])
            p = f"{paired_bootstrap(others, mixtures, seed=0).p_value:.4f}"
        table.add_row(row.name, f"{mean:.2f}", f"{spread:.2f}", p)
    console.print(table)
    console.print(
        "spread: standard deviation over seeds; p: paired bootstrap over documents, seeds pooled", style="dim"
    )
