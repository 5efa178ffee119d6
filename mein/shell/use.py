"""mein evaluate, mein predict, mein explain."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mein.config import make_config
from mein.data.corpus import read_all
from mein.data.readers import ColumnsConfig, read_documents
from mein.evaluation.table import compare, headline, render
from mein.explain import Explanation, explain
from mein.judge import as_plain, log_probs_of_all
from mein.model import load_model
from mein.predict import predict_file
from mein.progress import Terminal
from mein.training.folder import RunFolder


def evaluate_run(
    path: Path, documents: str, text_column: str | None, label_column: str | None, as_json: bool
) -> None:
    """Judge every system of a run on labelled documents."""
    model = load_model(path)
    columns = ColumnsConfig(text=text_column, label=label_column)
    texts, values = read_all(lambda: read_documents(documents, columns, labeled=True))
    ids = model.labels.encode(values, documents)
    folder = RunFolder(path)
    config = make_config(folder.read_json("config.json")["config"])
    rows = compare(ids, log_probs_of_all(folder, config, texts, None), seed=config.seed)
    if as_json:
        print(json.dumps([as_plain(row) for row in rows], indent=1))
        return
    console = Console()
    console.print(render(rows, title=f"{len(ids):,} documents of {documents}"))
    console.print(headline(rows), style="bold", highlight=False)


def predict_documents(path: Path, documents: str, out: Path, text_column: str | None) -> None:
    """Label a file."""
    console = Console()
    count = predict_file(load_model(path), documents, out, text_column, Terminal(console))
    console.print(f"Labelled {count:,} documents in {out}.", highlight=False)


def explain_text(path: Path, text: str, top: int, as_json: bool) -> None:
    """Show the label of a text and who spoke for it."""
    explanation = explain(load_model(path), text)
    if as_json:
        print(json.dumps(explanation.to_dict(), ensure_ascii=False, indent=1))
        return
    console = Console()
    console.print(_summary(explanation), highlight=False)
    if explanation.fragments:
        console.print(_fragment_table(explanation, top))


def _summary(explanation: Explanation) -> Text:
    parts = {"expert": explanation.expert}
    parts |= {f"imitator c={c}": part for c, part in explanation.imitators.items()}
    lines = Text()
    lines.append(f"{explanation.label}", style="bold")
    lines.append(f"  p = {explanation.probability:.3f}, before {explanation.alternative}\n")
    lines.append(f"log-odds {explanation.log_odds:+.2f} = ")
    lines.append(" ".join(f"{value:+.2f} ({name})" for name, value in parts.items()))
    return lines


def _fragment_table(explanation: Explanation, top: int) -> Table:
    table = Table(box=None, pad_edge=False, title="What moved it most", title_justify="left")
    for header, side in (("log-odds", "right"), ("for", "left"), ("window", "right"), ("fragment", "left")):
        table.add_column(header, justify="right" if side == "right" else "left")
    for fragment in explanation.fragments[:top]:
        speaks_for = explanation.contribution_label(fragment)
        style = "green" if fragment.contribution > 0 else "red"
        table.add_row(
            Text(f"{fragment.contribution:+.3f}", style=style),
            Text(str(speaks_for)),
            str(2 * fragment.window + 1),
            Text(fragment.text),
        )
    return table
