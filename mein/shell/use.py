"""mein evaluate, mein predict, mein explain."""

import json
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from mein.data.corpus import read_all
from mein.data.readers import ColumnsConfig, read_documents
from mein.data.teacher import Teacher, TeacherTable
from mein.errors import RunError
from mein.evaluation.table import compare, headline, render
from mein.explain import Explanation, explain
from mein.judge import as_plain, log_probs_of_all
from mein.model import load_model, read_config, read_labels
from mein.predict import predict_file
from mein.progress import Terminal
from mein.shell.console import open_console, say
from mein.training.folder import RunFolder


def evaluate_run(
    path: Path,
    documents: str,
    columns_named: tuple[str | None, str | None],
    teacher_file: str | None,
    as_json: bool,
) -> None:
    """Judge every system of a run on labelled documents."""
    teacher = _teacher(path, teacher_file)
    model = load_model(path, teacher=teacher)
    config = model.config
    columns = _columns(config.columns, *columns_named)
    texts, values = read_all(lambda: read_documents(documents, columns, labeled=True))
    ids = model.labels.encode(values, documents)
    rows = compare(ids, log_probs_of_all(RunFolder(path), config, texts, teacher), seed=config.seed)
    if as_json:
        print(json.dumps([as_plain(row) for row in rows], indent=1))
        return
    console = open_console()
    console.print(render(rows, title=f"{len(ids):,} documents of {documents}"))
    say(console, headline(rows), "bold")


def predict_documents(
    path: Path,
    documents: str,
    out: Path,
    text_column: str | None,
    teacher_file: str | None,
    imitators_only: bool,
) -> None:
    """Label a file."""
    console, model = open_console(), load_model(path, teacher=_teacher(path, teacher_file))
    column = _columns(model.config.columns, text_column, None).text
    if imitators_only and not len(model.gates):
        raise RunError(f"The run in {path} has no imitators: leave --imitators-only out.")
    predict = model.imitator_log_probs if imitators_only else model.log_probs
    count = predict_file(model, documents, out, column, Terminal(console), predict)
    say(console, f"Labelled {count:,} documents in {out}.")


def _teacher(path: Path, file: str | None) -> Teacher | None:
    """The teacher's words on other documents than those of the run, where a file with them is given."""
    if file is None:
        return None
    config, labels = read_config(RunFolder(path)), read_labels(RunFolder(path))[0]
    return TeacherTable(file, config.columns, labels.classes)


def _columns(of_run: ColumnsConfig, text: str | None, label: str | None) -> ColumnsConfig:
    """The columns named now, or else when the run was trained."""
    return ColumnsConfig(
        text=of_run.text if text is None else text, label=of_run.label if label is None else label
    )


def explain_text(path: Path, text: str, top: int, teacher_file: str | None, as_json: bool) -> None:
    """Show the label of a text and who spoke for it."""
    explanation = explain(load_model(path, teacher=_teacher(path, teacher_file)), text)
    if as_json:
        print(json.dumps(explanation.to_dict(), ensure_ascii=False, indent=1))
        return
    console = open_console()
    console.print(_summary(explanation))
    if any(fragment.contribution for fragment in explanation.fragments):
        console.print(_fragment_table(explanation, top))
    elif explanation.is_silent:
        say(
            console, "The text holds no word that the run knows: this is the share of each class in training."
        )
    else:
        say(console, "No fragment moved it: the imitators have no say in this run (their gates are closed).")


def _summary(explanation: Explanation) -> Text:
    lines = Text()
    lines.append(f"{explanation.label}", style="bold")
    lines.append(f"  p = {explanation.probability:.3f}, before {explanation.alternative}\n")
    lines.append(f"log-odds {explanation.log_odds:+.2f}")
    parts = {"expert": explanation.expert}
    parts |= {f"imitator c={c}": part for c, part in explanation.imitators.items()}
    if not explanation.is_silent:
        lines.append(" = " + " ".join(f"{value:+.2f} ({name})" for name, value in parts.items()))
    return lines


def _fragment_table(explanation: Explanation, top: int) -> Table:
    table = Table(
        title="What moved it most",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("log-odds", justify="right")
    table.add_column("for", max_width=24)
    table.add_column("pieces", justify="right")
    table.add_column("fragment")
    for fragment in explanation.fragments[:top]:
        style = "green" if fragment.contribution > 0 else "red"
        table.add_row(
            Text(f"{fragment.contribution:+.3f}", style=style),
            str(explanation.contribution_label(fragment)),
            str(2 * fragment.window + 1),
            fragment.text,
        )
    return table
