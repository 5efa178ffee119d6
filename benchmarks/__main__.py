"""python -m benchmarks NAME: JSON for programs, a short table on stderr for people."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from benchmarks.encode import bench_encode
from benchmarks.few_labels_commands import app as few_labels
from benchmarks.forecasts import bench_forecast
from benchmarks.imitation import bench_imitate, bench_imitation
from benchmarks.measure import bench_memory
from benchmarks.networks import Sizes, bench_experts, bench_imitators
from benchmarks.pipeline import bench_pipeline
from benchmarks.scale import STEPS, bench_engines, bench_ranks, bench_scale, costs_page
from benchmarks.use import Load, bench_predict, bench_serve
from mein.cli.console import log, open_console, plain_table, run_app
from mein.cli.help import App
from mein.cli.options import Address, Labeled, RunPath, Test, TextColumn, Unlabeled
from mein.data.columns import ColumnsConfig
from mein.data.demo import demo_corpus
from mein.data.readers import read_documents
from mein.imitators.config import ImitatorsConfig
from mein.model.loading import load_model
from mein.runtime.device import choose_device
from mein.runtime.files import write_atomically
from mein.runtime.progress import Terminal

DOCUMENTS = 100_000  # of the demo corpus: enough that the start of workers does not count
LABELED = 20_000  # of the same, to measure labeling

app = App("Measure speed and memory, as JSON.")
Figures = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Output file for the JSON. Default: stdout.")
]
Workers = Annotated[int, typer.Option(min=1, metavar="N", help="Number of processes that encode text.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, or cuda:1.")]
Repeats = Annotated[int, typer.Option(min=1, metavar="N", help="Number of measurements of each.")]


@app.command()
def encode(
    documents: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Documents to encode. Default: the synthetic demo corpus."),
    ] = None,
    text_column: TextColumn = None,
    workers: Workers = 2,
    repeats: Repeats = 5,
    out: Figures = None,
) -> None:
    """Documents per second into the store, beside sentencepiece only."""
    figures = bench_encode(_texts(documents, text_column, DOCUMENTS), workers, repeats)
    table = _table("", "docs/s", "MB/s", "of sentencepiece's")
    for name in ("mein", "sentencepiece"):
        rates = figures[name]
        share = f"{figures['ratio']['median']:.2f}" if name == "mein" else ""
        documents_a_second = f"{rates['documents_per_second']['median']:,.0f}"
        table.add_row(name, documents_a_second, f"{rates['megabytes_per_second']['median']:.2f}", share)
    _deliver(figures, out, table)


@app.command()
def memory(
    sizes: Annotated[list[int] | None, typer.Argument(metavar="N", hidden=True)] = None,
    documents: Annotated[
        list[int], typer.Option(min=1, metavar="N ...", help="Size of the corpus. Repeatable.")
    ] = [200_000, 2_000_000],  # noqa: B006 - typer reads the default and never changes it
    workers: Workers = 2,
    out: Figures = None,
) -> None:
    """Peak memory of encoding and of stage 2, by corpus size."""
    counts = [*documents, *(sizes or [])]
    figures = bench_memory(counts, workers)
    peaks = figures["stage_2"] = bench_imitation(counts)
    figures["growth"]["stage_2"] = peaks[-1]["peak_megabytes"] / peaks[0]["peak_megabytes"]
    table = _table("peak MB", *(f"{count:,} docs" for count in counts), "last / first")
    for name in ("encode", "stage_2"):
        shown = (f"{peak['peak_megabytes']:,.0f}" for peak in figures[name])
        table.add_row(name.replace("_", " "), *shown, f"{figures['growth'][name]:.2f}")
    _deliver(figures, out, table)


@app.command()
def experts(
    device: Device = "auto",
    vocabulary: Annotated[int, typer.Option(min=100, metavar="N", help="Number of words.")] = 87_000,
    hidden: Annotated[int, typer.Option(min=8, metavar="N", help="Size of the LSTM.")] = 1_024,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Number of steps per measurement.")] = 30,
    repeats: Repeats = 5,
    out: Figures = None,
) -> None:
    """Tokens per second of LSTM, ADV, and VAT, beside plain PyTorch."""
    sizes = Sizes(vocabulary=vocabulary, hidden_dim=hidden, steps=steps, repeats=repeats)
    figures = bench_experts(sizes, choose_device(device))
    table = _table("tokens/s", "mein", "plain float32", "mein / plain")
    for name, found in figures["training"].items():
        rates = (f"{found[f'{who}_tokens_per_second']['median']:,.0f}" for who in ("ours", "plain"))
        table.add_row(name, *rates, f"{found['ratio']['median']:.2f}")
    table.add_row("labeling", f"{figures['labeling']['tokens_per_second']['median']:,.0f}", "", "")
    table.add_row("share of waiting", f"{figures['waiting']['median']:.1%}", "", "")
    _deliver(figures, out, table)


@app.command()
def imitators(
    device: Device = "auto",
    tokens: Annotated[
        list[int] | None, typer.Option(min=256, metavar="N", help="Pieces per batch of mein. Repeatable.")
    ] = None,
    sizes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Embedding size and number of channels.")
    ] = 512,
    repeats: Repeats = 5,
    out: Figures = None,
) -> None:
    """Tokens per second of imitators, beside plain PyTorch."""
    on = choose_device(device)
    if tokens is None:
        tokens = [262_144, 1_048_576] if on.type == "cuda" else [65_536, 262_144]
    config = ImitatorsConfig(embedding_dim=sizes, channels=sizes)
    figures = bench_imitators(on, tokens, repeats, config)
    budgets = [f"mein, {count:,}" for count in tokens]
    table = _table("windows", *budgets, "plain float32", "last / plain", "paper (V100)")
    for row in figures["rows"]:
        rates = row["tokens_per_second"]
        names = [*(f"ours {count}" for count in tokens), "plain float32"]
        shown = (f"{rates[name]['median']:,.0f}" for name in names)
        paper = "" if row["paper"] is None else f"{row['paper']:,}"
        table.add_row(", ".join(map(str, row["windows"])), *shown, f"{row['ratio']['median']:.1f}", paper)
    alpha = figures["alpha"]
    shown = (f"{alpha[name]['median']:,.0f}" for name in ("ours", "plain float32"))
    table.add_row("alpha only", *[""] * (len(tokens) - 1), *shown, f"{alpha['ratio']['median']:.1f}", "")
    for name, rate in figures["experts"].items():
        table.add_row(f"expert, {name}", f"{rate['median']:,.0f}", *[""] * (len(tokens) + 2))
    _deliver(figures, out, table)


@app.command()
def imitate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run with its encoded text.")],
    device: Device = "auto",
    out: Figures = None,
) -> None:
    """Time to the held-out KL of the plain loop's first epoch."""
    figures = bench_imitate(run, choose_device(device))
    table = _table("", "seconds", "held-out KL")
    for name in ("plain", "ours"):
        table.add_row(name, f"{figures[name]['seconds']:.2f}", f"{figures[name]['kl']:.4f}")
    sooner = figures["times_sooner"]
    table.add_row("times sooner", "not reached" if sooner is None else f"{sooner:.1f}", "")
    table.add_row("share of waiting", f"{figures['ours']['share_of_waiting']:.1%}", "")
    _deliver(figures, out, table)


@app.command()
def pipeline(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Finished run, for its vocabularies and expert.")
    ],
    text: Annotated[str, typer.Option(metavar="FILE", help="Unlabeled documents.")],
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Number of epochs of the imitators.")] = 10,
    device: Device = "auto",
    out: Figures = None,
) -> None:
    """Seconds from unlabeled text to trained imitators, by step."""
    source = partial(read_documents, text, ColumnsConfig(), labeled=False)
    reporter = Terminal(open_console(stderr=True))
    figures = bench_pipeline(run, source, epochs, choose_device(device), reporter)
    table = _table("", "seconds", "share")
    for step, seconds in figures["seconds"].items():
        table.add_row(step, f"{seconds:.1f}", f"{figures['share'].get(step, 1.0):.0%}")
    _deliver(figures, out, table)


@app.command()
def predict(
    run: RunPath,
    documents: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Documents to label. Default: the synthetic demo corpus."),
    ] = None,
    text_column: TextColumn = None,
    threads: Annotated[int, typer.Option(min=1, metavar="N", help="Number of cores for networks.")] = 2,
    repeats: Repeats = 5,
    out: Figures = None,
) -> None:
    """Documents per second of a run, beside a linear model."""
    figures = bench_predict(load_model(run), _texts(documents, text_column, LABELED), threads, repeats)
    table = _table("", "docs/s", "MB/s", "times slower")
    for name, rate in figures["systems"].items():
        documents_a_second = f"{rate['documents_per_second']['median']:,.0f}"
        megabytes = f"{rate['megabytes_per_second']['median']:.2f}"
        table.add_row(name, documents_a_second, megabytes, f"{figures['ratio'][name]['median']:.2f}")
    _deliver(figures, out, table)


@app.command()
def scale(
    documents: Annotated[
        list[int], typer.Option(min=1_000, metavar="N", help="Number of generated documents. Repeatable.")
    ] = [1_000_000],  # noqa: B006 - typer reads the default and never changes it
    workers: Annotated[
        list[int], typer.Option(min=1, metavar="N", help="Number of processes, one core each. Repeatable.")
    ] = [1, 2],  # noqa: B006 - as above
    out: Figures = None,
) -> None:
    """Rate, memory, and bytes of encode, label, and imitate."""
    figures = bench_scale(documents, workers, Terminal(open_console(stderr=True)))
    table = _table("step", "documents", "processes", "docs/s", "tokens/s", "peak MB of a process")
    for found in figures["results"]:
        for step in STEPS:
            took = found["steps"][step]
            rates = (f"{took[f'{kind}_per_second']:,.0f}" for kind in ("documents", "tokens"))
            peak = f"{took['process_megabytes'][0]:,.0f}"
            table.add_row(step, f"{found['documents']:,}", str(found["workers"]), *rates, peak)
    _deliver(figures, out, table)


@app.command()
def engines(
    documents: Annotated[
        list[int], typer.Option(min=1_000, metavar="N", help="Number of generated documents. Repeatable.")
    ] = [1_000_000],  # noqa: B006 - typer reads the default and never changes it
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Number of processes, one core each.")] = 2,
    turns: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of measurements of each engine.")
    ] = 2,
    address: Address = None,
    out: Figures = None,
) -> None:
    """Encode and label with Ray, beside plain processes."""
    figures = bench_engines(documents, workers, turns, address, Terminal(open_console(stderr=True)))
    table = _table("step", "documents", "processes, s", "Ray, s", "Ray / processes")
    for found in figures["results"]:
        for step, took in found["steps"].items():
            seconds = (f"{took['seconds'][name]['median']:.1f}" for name in ("processes", "ray"))
            table.add_row(step, f"{found['documents']:,}", *seconds, f"{took['slower']['median']:.2f}")
    _deliver(figures, out, table)


@app.command()
def costs(
    results: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder with the JSON of benchmarks.")
    ] = Path("results"),
    page: Annotated[Path, typer.Option(metavar="FILE", help="Output page.")] = Path("docs/scale.md"),
) -> None:
    """The cost of corpora of any size, as a page."""
    write_atomically(page, costs_page(results).encode("utf-8"))
    log(open_console(), f"Wrote {page}.")


@app.command()
def ranks(
    documents: Annotated[
        int, typer.Option(min=16, metavar="N", help="Number of documents of the demo corpus.")
    ] = 16_000,
    processes: Annotated[
        list[int],
        typer.Option(
            min=1, metavar="N", help="Number of processes, one thread each. Repeatable; the first is 1.00."
        ),
    ] = [1, 2],  # noqa: B006 - typer reads the default and never changes it
    sizes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Embedding size and number of channels.")
    ] = 512,
    repeats: Repeats = 3,
    out: Figures = None,
) -> None:
    """Imitators and labeling with several processes, beside one."""
    config = ImitatorsConfig(embedding_dim=sizes, channels=sizes)
    figures = bench_ranks(documents, processes, repeats, config)
    table = _table("step", "processes", "docs/s", "times the first")
    for step in ("imitators", "labeling"):
        for count in processes:
            rate, ratio = (figures[step][of][count]["median"] for of in ("documents_per_second", "ratio"))
            table.add_row(step, str(count), f"{rate:,.0f}", f"{ratio:.2f}")
    _deliver(figures, out, table)


@app.command()
def forecast(
    labeled: Labeled,
    unlabeled: Unlabeled = None,
    test: Test = None,
    out: Figures = None,
) -> None:
    """The cost that `mein check` expects, beside that of a training."""
    figures = bench_forecast(labeled, unlabeled, test)
    table = _table("", "expected", "took", "ratio")
    for name, ratio in figures["ratio"].items():
        expected, took = (f"{figures[of][name]:,.1f}" for of in ("expected", "took"))
        table.add_row(name.replace("_", " "), expected, took, f"{ratio:.2f}")
    _deliver(figures, out, table)


@app.command()
def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Finished run.")],
    documents: Annotated[
        str | None, typer.Option(metavar="FILE", help="Texts to send. Default: the synthetic demo corpus.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, metavar="N", help="Number of concurrent clients.")] = 32,
    seconds: Annotated[float, typer.Option(min=0.1, metavar="N", help="Seconds per measurement.")] = 5.0,
    explanations: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of long texts that are meanwhile explained.")
    ] = 0,
    repeats: Repeats = 3,
    out: Figures = None,
) -> None:
    """Answers per second over HTTP, beside the model in a loop."""
    load = Load(clients=clients, seconds=seconds, explanations=explanations, repeats=repeats)
    figures = bench_serve(run, _texts(documents, None, 2_000), load)
    table = _table("", "texts/s", "p50 ms", "p99 ms", "of the loop's")
    table.add_row("a loop", f"{figures['loop_texts_per_second']['median']:,.0f}", "", "", "")
    waits = (f"{figures[f'p{rank}_milliseconds']['median']:.1f}" for rank in (50, 99))
    rate = f"{figures['server_texts_per_second']['median']:,.0f}"
    table.add_row("the server", rate, *waits, f"{figures['ratio']['median']:.1f}")
    _deliver(figures, out, table)


app.add_typer(few_labels, name="few-labels")


def _texts(documents: str | None, text_column: str | None, count: int) -> list[str]:
    """The texts of a file, or `count` of the demo corpus."""
    if documents is None:
        return demo_corpus(unlabeled=count).unlabeled_texts
    chunks = read_documents(documents, ColumnsConfig(text=text_column), labeled=False)
    return [text for chunk in chunks for text in chunk.texts]


def _table(*headers: str) -> Table:
    return plain_table(*headers, left=headers[:1])


def _deliver(figures: dict[str, Any], out: Path | None, table: Table) -> None:
    open_console(stderr=True).print(table)
    text = json.dumps(figures, indent=1)
    if out is None:
        print(text)
    else:
        write_atomically(out, (text + "\n").encode("utf-8"))


def main() -> None:
    """Run the command line."""
    run_app(app, "python -m benchmarks")


if __name__ == "__main__":
    main()
