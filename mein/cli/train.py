"""mein train: once, or once for each seed."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mein.cli.console import Output, plain_table
from mein.cli.options import (
    RUN,
    Address,
    AsJson,
    ConfigFile,
    Dev,
    Encoder,
    EngineName,
    FromRun,
    IsQuiet,
    IsVerbose,
    LabelColumn,
    Labeled,
    Preset,
    Processes,
    Resume,
    Seed,
    Set,
    SoftLabelFile,
    Test,
    TextColumn,
    Unlabeled,
    option,
    resolved,
    settings_given,
    whole,
)
from mein.cli.training import Request, note_columns, note_whether_new, refuse_taken, train_on_engine
from mein.engines import Engine, opened
from mein.errors import RunError
from mein.runtime.ranks import is_first

if TYPE_CHECKING:  # what takes a second to import is imported by the functions that use it
    import numpy as np
    from rich.table import Table

    from mein.config import Config
    from mein.evaluation.comparison import Row

MADE_OUT = "Run folder to create. Default: runs/ and the name of --labeled."
Seeds = Annotated[
    int,
    option("N", "Number of training runs, for mean and spread. Default: 1.", RUN, parser=whole("--seeds", 1)),
]


@dataclass(frozen=True)
class GivenSettings:
    """The settings as they were given."""

    preset: str | None
    file: Path | None
    overrides: dict[str, Any]
    encoder: str | None = None

    @property
    def chosen(self) -> tuple[str, str]:
        """The preset, and why it is the one."""
        from mein.config import default_preset
        from mein.run.plan import preset_of

        return preset_of(self.preset, self.file, self.encoder, default_preset)

    def load(self, **others: Any) -> "Config":
        """The configuration; some settings may be replaced."""
        from mein.config import load_config

        overrides = _with_its_sizes(self.overrides) | others
        return load_config(self.preset, self.file, overrides, encoder=self.encoder)


def _with_its_sizes(overrides: dict[str, Any]) -> dict[str, Any]:
    """The overrides, with the sizes of a language model that they name."""
    name = overrides.get("expert.language_model", "none")
    if name == "none":
        return overrides
    from mein.model.build import settings_of_language_model

    its = settings_of_language_model(Path(name))
    return its | overrides | {"expert.language_model": resolved(Path(name))}


def train(
    labeled: Labeled,
    unlabeled: Unlabeled = None,
    dev: Dev = None,
    test: Test = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    preset: Preset = None,
    encoder: Encoder = None,
    soft_labels: SoftLabelFile = None,
    from_run: FromRun = None,
    config: ConfigFile = None,
    set_: Set = [],  # noqa: B006 - typer reads the default and never changes it
    out: Annotated[
        Path | None,
        option("FOLDER", MADE_OUT, RUN, names="--out -o"),
    ] = None,
    seed: Seed = None,
    seeds: Seeds = 1,
    resume: Resume = False,
    engine: EngineName = "processes",
    address: Address = None,
    processes: Processes = None,
    quiet: IsQuiet = False,
    verbose: IsVerbose = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier and evaluate it beside its controls.

    Settings come from the defaults, the preset, the config file, and --set. Later ones win.

    Examples:
      mein train --labeled train.csv --unlabeled raw.jsonl.gz --test test.csv
      mein train --labeled train.csv --unlabeled raw.jsonl.gz --preset transformer
      mein train --labeled train.csv --unlabeled raw.csv --seeds 5 --out runs/five
    """
    from mein.config import parse_overrides

    given = settings_given(train, locals())
    settings = GivenSettings(preset, config, parse_overrides(set_) | given, encoder)
    folder, output = default_out(labeled) if out is None else out, Output(quiet, verbose, as_json)
    if seeds == 1:
        refuse_taken(folder, resume)
    loaded, on = settings.load(), Engine(engine, address, processes)
    from mein.data.corpus import corpus_of_files  # what takes seconds to import waits for what is refused

    corpus = corpus_of_files(labeled, unlabeled, dev, test, loaded.columns)
    request = Request(loaded, corpus, folder, output, resume, on)
    with opened(on) as is_on_ray:
        check_and_train(request, settings, unlabeled, seeds, is_on_ray=is_on_ray)


def default_out(labeled: str) -> Path:
    """A run folder after the labeled documents: runs/train for data/train.csv.gz.

    >>> [str(default_out(name)) for name in ("data/train.csv.gz", "reviews/", "s3://raw/*.csv")]
    ['runs/train', 'runs/reviews', 'runs/raw']
    """
    stems = (re.sub(r"[^\w-]", "", part.split(".")[0]) for part in reversed(labeled.split("/")))
    return Path("runs") / next(filter(None, stems), "run")


def check_and_train(
    request: Request, settings: GivenSettings, unlabeled: str | None, seeds: int, *, is_on_ray: bool
) -> None:
    """Check the data, then train once or once for each seed."""
    from mein.run.documents import check_sources
    from mein.run.plan import in_short

    config, corpus, output = request.config, request.corpus, request.output
    note_whether_new(request.out, request.resume, output)
    labeled = check_sources(config, corpus)
    if not request.resume:
        output.log("Checked the data: no problems. `mein check` shows details.")
        for line in in_short(config, settings.chosen, labeled, has_dev=corpus.dev is not None):
            output.log(line)
    note_columns(unlabeled, config.columns, output)
    if seeds == 1:
        rows = train_on_engine(request, is_on_ray=is_on_ray)
        if output.as_json and is_first():
            output.give(run_as_json(request.out, rows))
        return
    if (request.out / "config.json").exists():
        raise RunError(f"{request.out} holds a single run: choose another --out for {seeds} seeds.")
    train_seeds(request, [settings.load(seed=config.seed + n) for n in range(seeds)], is_on_ray=is_on_ray)


def run_as_json(out: Path, rows: "Sequence[Row]") -> dict[str, Any]:
    """The result of a training for programs."""
    from mein.evaluation.rendering import sentence_of
    from mein.report.record import read_finished

    verdict = read_finished(out).verdict
    return {
        "run": str(out),
        "systems": [row.to_dict() for row in rows],
        "verdict": None if verdict is None else sentence_of(verdict),
    }


def train_seeds(request: Request, configs: "Sequence[Config]", *, is_on_ray: bool) -> None:
    """Train with each configuration, in a folder of its seed."""
    from mein.report.page import write_report
    from mein.run.documents import read_labeled
    from mein.run.warm_start import refuse_other_previous_run

    out, corpus = request.out, request.corpus
    folders, tables = [], []
    for config in configs if request.config.expert.is_self_training else ():
        refuse_other_previous_run(config, corpus, read_labeled(config, corpus))
    for config in configs:
        request.output.console.rule(f"seed {config.seed}")
        folder = out / f"seed-{config.seed}"
        seeded = replace(request, config=config, out=folder, resume=request.resume and folder.exists())
        tables.append(train_on_engine(seeded, is_on_ray=is_on_ray))
        folders.append(folder)
    if not is_first():
        return
    is_same_test = corpus.test is not None or corpus.dev is not None  # otherwise dev differs with the seed
    write_report(folders, out / "report.html")
    show_seeds(out, folders if is_same_test else [], tables, request.output)


def show_seeds(out: Path, folders: Sequence[Path], tables: "Sequence[Sequence[Row]]", output: Output) -> None:
    """Print the table over seeds, and leave its figures in seeds.json.

    The folders are those of the runs; none if the runs were evaluated on different documents,
    whose predictions cannot be paired.
    """
    from mein.run.evaluate import read_correct
    from mein.runtime.files import write_atomically

    figures = over_seeds(tables, [read_correct(folder) for folder in folders])
    write_atomically(out / "seeds.json", json.dumps(figures, indent=1).encode("utf-8"))
    output.console.print()
    output.console.print(_seeds_table(figures, len(tables)))
    output.log(f"See {out / 'report.html'}.")
    if output.as_json:
        output.give({"run": str(out), "seeds": figures})


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
