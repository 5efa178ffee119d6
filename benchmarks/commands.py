"""mein bench: JSON for programs, a short table on stderr for people."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.encode import bench_encode
from benchmarks.imitation import bench_imitate, bench_imitation
from benchmarks.measure import bench_memory
from benchmarks.networks import Sizes, bench_experts, bench_imitators
from benchmarks.pipeline import bench_pipeline
from benchmarks.scale import STEPS, bench_engines, bench_ranks, bench_scale, costs_page
from benchmarks.use import Load, bench_predict, bench_serve
from mein.cli.console import log, open_console
from mein.data.columns import ColumnsConfig
from mein.data.demo import demo_corpus
from mein.data.readers import read_documents
from mein.imitators.reference import ImitatorsConfig
from mein.mixture.inference import choose_device
from mein.model.loading import load_model
from mein.runtime.files import write_atomically
from mein.runtime.progress import Terminal

DOCUMENTS = 100_000  # of the embedded corpus: enough that the start of workers does not count
LABELED = 20_000  # of the same, to measure labeling


def run_encode(
    documents: str | None, text_column: str | None, workers: int, repeats: int, out: Path | None
) -> None:
    """Measure how fast text is encoded."""
    figures = bench_encode(_texts(documents, text_column, DOCUMENTS), workers, repeats)
    table = _table("", "docs/s", "MB/s", "of sentencepiece's")
    for name in ("mein", "sentencepiece"):
        rates = figures[name]
        share = f"{figures['ratio']['median']:.2f}" if name == "mein" else ""
        documents_a_second = f"{rates['documents_per_second']['median']:,.0f}"
        table.add_row(name, documents_a_second, f"{rates['megabytes_per_second']['median']:.2f}", share)
    _deliver(figures, out, table)


def run_memory(document_counts: Sequence[int], workers: int, out: Path | None) -> None:
    """Measure how memory grows with the corpus, in encoding and in stage 2."""
    figures = bench_memory(document_counts, workers)
    peaks = figures["stage_2"] = bench_imitation(document_counts)
    figures["growth"]["stage_2"] = peaks[-1]["peak_megabytes"] / peaks[0]["peak_megabytes"]
    table = _table("peak MB", *(f"{count:,} docs" for count in document_counts), "last / first")
    for name in ("encode", "stage_2"):
        shown = (f"{peak['peak_megabytes']:,.0f}" for peak in figures[name])
        table.add_row(name.replace("_", " "), *shown, f"{figures['growth'][name]:.2f}")
    _deliver(figures, out, table)


def run_experts(device: str, sizes: dict[str, int], out: Path | None) -> None:
    """Measure how fast experts train and label."""
    figures = bench_experts(Sizes(**sizes), choose_device(device))
    table = _table("tokens/s", "ours", "plain float32", "ours / plain")
    for name, found in figures["training"].items():
        rates = (f"{found[f'{who}_tokens_per_second']['median']:,.0f}" for who in ("ours", "plain"))
        table.add_row(name, *rates, f"{found['ratio']['median']:.2f}")
    table.add_row("labeling", f"{figures['labeling']['tokens_per_second']['median']:,.0f}", "", "")
    table.add_row("share of waiting", f"{figures['waiting']['median']:.1%}", "", "")
    _deliver(figures, out, table)


def run_imitators(device: str, tokens: list[int] | None, sizes: int, repeats: int, out: Path | None) -> None:
    """Measure how fast imitators train."""
    on = choose_device(device)
    if tokens is None:
        tokens = [262_144, 1_048_576] if on.type == "cuda" else [65_536, 262_144]
    config = ImitatorsConfig(embedding_dim=sizes, channels=sizes)
    figures = bench_imitators(on, tokens, repeats, config)
    budgets = [f"ours, {count:,}" for count in tokens]
    table = _table("windows", *budgets, "plain float32", "last / plain", "paper (V100)")
    for row in figures["rows"]:
        rates = row["tokens_per_second"]
        names = [*(f"ours {count}" for count in tokens), "plain float32"]
        shown = (f"{rates[name]['median']:,.0f}" for name in names)
        paper = "" if row["paper"] is None else f"{row['paper']:,}"
        table.add_row(", ".join(map(str, row["windows"])), *shown, f"{row['ratio']['median']:.1f}", paper)
    alpha = figures["alpha"]
    shown = (f"{alpha[name]['median']:,.0f}" for name in ("ours", "plain float32"))
    table.add_row("alpha alone", *[""] * (len(tokens) - 1), *shown, f"{alpha['ratio']['median']:.1f}", "")
    for name, rate in figures["experts"].items():
        table.add_row(f"expert, {name}", f"{rate['median']:,.0f}", *[""] * (len(tokens) + 2))
    _deliver(figures, out, table)


def run_imitate(run: Path, device: str, out: Path | None) -> None:
    """Measure how soon imitators know what the plain loop knows after an epoch."""
    figures = bench_imitate(run, choose_device(device))
    table = _table("", "seconds", "held-out KL")
    for name in ("plain", "ours"):
        table.add_row(name, f"{figures[name]['seconds']:.2f}", f"{figures[name]['kl']:.4f}")
    sooner = figures["times_sooner"]
    table.add_row("times sooner", "not reached" if sooner is None else f"{sooner:.1f}", "")
    table.add_row("share of waiting", f"{figures['ours']['share_of_waiting']:.1%}", "")
    _deliver(figures, out, table)


def run_pipeline(run: Path, text: str, epochs: int, device: str, out: Path | None) -> None:
    """Measure how long raw text takes to become trained imitators."""
    source = partial(read_documents, text, ColumnsConfig(), labeled=False)
    reporter = Terminal(open_console(stderr=True))
    figures = bench_pipeline(run, source, epochs, choose_device(device), reporter)
    table = _table("", "seconds", "share")
    for step, seconds in figures["seconds"].items():
        table.add_row(step, f"{seconds:.1f}", f"{figures['share'].get(step, 1.0):.0%}")
    _deliver(figures, out, table)


def run_predict(
    path: Path, documents: str | None, text_column: str | None, threads: int, repeats: int, out: Path | None
) -> None:
    """Measure how fast a run labels."""
    figures = bench_predict(load_model(path), _texts(documents, text_column, LABELED), threads, repeats)
    table = _table("", "docs/s", "MB/s", "times slower")
    for name, rate in figures["systems"].items():
        documents_a_second = f"{rate['documents_per_second']['median']:,.0f}"
        megabytes = f"{rate['megabytes_per_second']['median']:.2f}"
        table.add_row(name, documents_a_second, megabytes, f"{figures['ratio'][name]['median']:.2f}")
    _deliver(figures, out, table)


def run_scale(document_counts: Sequence[int], worker_counts: Sequence[int], out: Path | None) -> None:
    """Measure the heavy steps over a store, by number of documents and of processes."""
    figures = bench_scale(document_counts, worker_counts, Terminal(open_console(stderr=True)))
    table = _table("step", "documents", "processes", "docs/s", "tokens/s", "peak MB of a process")
    for found in figures["results"]:
        for step in STEPS:
            took = found["steps"][step]
            rates = (f"{took[f'{kind}_per_second']:,.0f}" for kind in ("documents", "tokens"))
            peak = f"{took['process_megabytes'][0]:,.0f}"
            table.add_row(step, f"{found['documents']:,}", str(found["workers"]), *rates, peak)
    _deliver(figures, out, table)


def run_engines(
    document_counts: Sequence[int], workers: int, turns: int, address: str | None, out: Path | None
) -> None:
    """Measure encoding and labeling by Ray beside plain processes."""
    figures = bench_engines(document_counts, workers, turns, address, Terminal(open_console(stderr=True)))
    table = _table("step", "documents", "processes, s", "Ray, s", "Ray / processes")
    for found in figures["results"]:
        for step, took in found["steps"].items():
            seconds = (f"{took['seconds'][name]['median']:.1f}" for name in ("processes", "ray"))
            table.add_row(step, f"{found['documents']:,}", *seconds, f"{took['slower']['median']:.2f}")
    _deliver(figures, out, table)


def run_costs(results: Path, page: Path) -> None:
    """Make the page of what scale costs."""
    write_atomically(page, costs_page(results).encode("utf-8"))
    log(open_console(), f"Wrote {page}.")


def run_ranks(documents: int, processes: Sequence[int], sizes: int, repeats: int, out: Path | None) -> None:
    """Measure how much sooner several processes are done."""
    config = ImitatorsConfig(embedding_dim=sizes, channels=sizes)
    figures = bench_ranks(documents, processes, repeats, config)
    table = _table("step", "processes", "docs/s", "times the first")
    for step in ("imitators", "labeling"):
        for count in processes:
            rate, ratio = (figures[step][of][count]["median"] for of in ("documents_per_second", "ratio"))
            table.add_row(step, str(count), f"{rate:,.0f}", f"{ratio:.2f}")
    _deliver(figures, out, table)


def run_serve(run: Path, documents: str | None, load: dict[str, Any], out: Path | None) -> None:
    """Measure what a server answers to many clients, beside the model in a loop."""
    figures = bench_serve(run, _texts(documents, None, 2_000), Load(**load))
    table = _table("", "texts/s", "p50 ms", "p99 ms", "of the loop's")
    table.add_row("a loop", f"{figures['loop_texts_per_second']['median']:,.0f}", "", "", "")
    waits = (f"{figures[f'p{rank}_milliseconds']['median']:.1f}" for rank in (50, 99))
    rate = f"{figures['server_texts_per_second']['median']:,.0f}"
    table.add_row("the server", rate, *waits, f"{figures['ratio']['median']:.1f}")
    _deliver(figures, out, table)


def _texts(documents: str | None, text_column: str | None, count: int) -> list[str]:
    """The texts of a file, or so many of the embedded corpus."""
    if documents is None:
        return demo_corpus(unlabeled=count).unlabeled_texts
    chunks = read_documents(documents, ColumnsConfig(text=text_column), labeled=False)
    return [text for chunk in chunks for text in chunk.texts]


def _table(*headers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        table.add_column(header, justify="left" if header == headers[0] else "right")
    return table


def _deliver(figures: dict[str, Any], out: Path | None, table: Table) -> None:
    open_console(stderr=True).print(table)
    text = json.dumps(figures, indent=1)
    if out is None:
        print(text)
    else:
        write_atomically(out, (text + "\n").encode("utf-8"))
