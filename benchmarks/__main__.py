"""mein bench: the commands that measure."""

from pathlib import Path
from typing import Annotated

import typer

from mein.cli.options import Address, Run, TextColumn

bench = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure speed and memory, as JSON.")
Figures = Annotated[Path | None, typer.Option(metavar="FILE", help="Where to put the JSON; else stdout.")]
Workers = Annotated[int, typer.Option(min=1, metavar="N", help="Processes that encode text.")]


@bench.command("encode")
def bench_encode(
    documents: Annotated[
        str | None, typer.Option(metavar="FILE", help="Documents to encode; else the embedded corpus.")
    ] = None,
    text_column: TextColumn = None,
    workers: Workers = 2,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of ours and of theirs.")] = 5,
    out: Figures = None,
) -> None:
    """Documents a second into the store, beside sentencepiece alone."""
    from benchmarks.commands import run_encode

    run_encode(documents, text_column, workers, repeats, out)


@bench.command("memory")
def bench_memory(
    sizes: Annotated[list[int] | None, typer.Argument(metavar="N", hidden=True)] = None,
    documents: Annotated[
        list[int], typer.Option(min=1, metavar="N ...", help="Sizes of the corpus, one or more.")
    ] = [200_000, 2_000_000],  # noqa: B006 - typer reads the default and never changes it
    workers: Workers = 2,
    out: Figures = None,
) -> None:
    """Peak memory of encoding and of stage 2, by size of corpus."""
    from benchmarks.commands import run_memory

    run_memory([*documents, *(sizes or [])], workers, out)


@bench.command("experts")
def bench_experts(
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda ...")] = "auto",
    vocabulary: Annotated[int, typer.Option(min=100, metavar="N", help="Words.")] = 87_000,
    hidden: Annotated[int, typer.Option(min=8, metavar="N", help="The LSTM's size.")] = 1_024,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps in a measurement.")] = 30,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Measurements of ours and theirs.")] = 5,
    out: Figures = None,
) -> None:
    """Tokens a second of LSTM, ADV and VAT, ours and plain."""
    from benchmarks.commands import run_experts

    run_experts(
        device, {"vocabulary": vocabulary, "hidden_dim": hidden, "steps": steps, "repeats": repeats}, out
    )


@bench.command("imitators")
def bench_imitators(
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda ...")] = "auto",
    tokens: Annotated[
        list[int] | None, typer.Option(min=256, metavar="N", help="Pieces in our batches; repeatable.")
    ] = None,
    sizes: Annotated[int, typer.Option(min=1, metavar="N", help="Embedding size and channels.")] = 512,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Measurements of ours and theirs.")] = 5,
    out: Figures = None,
) -> None:
    """Tokens a second of imitators, ours and plain."""
    from benchmarks.commands import run_imitators

    run_imitators(device, tokens, sizes, repeats, out)


@bench.command("imitate")
def bench_imitate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run with its encoded text.")],
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda ...")] = "auto",
    out: Figures = None,
) -> None:
    """Time to the held-out KL of the plain loop's first epoch."""
    from benchmarks.commands import run_imitate

    run_imitate(run, device, out)


@bench.command("pipeline")
def bench_pipeline(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run: its vocabularies and expert.")],
    text: Annotated[str, typer.Option(metavar="FILE", help="Raw documents.")],
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Of the imitators.")] = 10,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda ...")] = "auto",
    out: Figures = None,
) -> None:
    """Seconds from raw text to trained imitators, by step."""
    from benchmarks.commands import run_pipeline

    run_pipeline(run, text, epochs, device, out)


@bench.command("predict")
def bench_predict(
    run: Run,
    documents: Annotated[
        str | None, typer.Option(metavar="FILE", help="Documents to label; else the embedded corpus.")
    ] = None,
    text_column: TextColumn = None,
    threads: Annotated[int, typer.Option(min=1, metavar="N", help="Cores that networks may use.")] = 2,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Measurements of each.")] = 5,
    out: Figures = None,
) -> None:
    """Documents a second of a run, beside a linear model."""
    from benchmarks.commands import run_predict

    run_predict(run, documents, text_column, threads, repeats, out)


@bench.command("scale")
def bench_scale(
    documents: Annotated[
        list[int], typer.Option(min=1_000, metavar="N", help="Generated documents; repeatable.")
    ] = [1_000_000],  # noqa: B006 - typer reads the default and never changes it
    workers: Annotated[
        list[int], typer.Option(min=1, metavar="N", help="Processes, a core each; repeatable.")
    ] = [1, 2],  # noqa: B006 - as above
    out: Figures = None,
) -> None:
    """Rate, memory and bytes of encode, label and imitate."""
    from benchmarks.commands import run_scale

    run_scale(documents, workers, out)


@bench.command("engines")
def bench_engines(
    documents: Annotated[
        list[int], typer.Option(min=1_000, metavar="N", help="Generated documents; repeatable.")
    ] = [1_000_000],  # noqa: B006 - typer reads the default and never changes it
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes, a core each.")] = 2,
    turns: Annotated[int, typer.Option(min=1, metavar="N", help="Measurements of each engine.")] = 2,
    address: Address = None,
    out: Figures = None,
) -> None:
    """Encode and label by Ray, beside plain processes."""
    from benchmarks.commands import run_engines

    run_engines(documents, workers, turns, address, out)


@bench.command("costs")
def bench_costs(
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Where benches left their JSON.")] = Path(
        "results"
    ),
    page: Annotated[Path, typer.Option(metavar="FILE", help="The page to make.")] = Path("docs/scale.md"),
) -> None:
    """What corpora of any size cost, as a page."""
    from benchmarks.commands import run_costs

    run_costs(results, page)


@bench.command("ranks")
def bench_ranks(
    documents: Annotated[int, typer.Option(min=16, metavar="N", help="Of the embedded corpus.")] = 16_000,
    processes: Annotated[
        list[int], typer.Option(min=1, metavar="N", help="One thread each; repeatable; the first is 1.00.")
    ] = [1, 2],  # noqa: B006 - typer reads the default and never changes it
    sizes: Annotated[int, typer.Option(min=1, metavar="N", help="Embedding size and channels.")] = 512,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Measurements of each.")] = 3,
    out: Figures = None,
) -> None:
    """Imitators and labeling by several processes, beside one."""
    from benchmarks.commands import run_ranks

    run_ranks(documents, processes, sizes, repeats, out)


@bench.command("serve")
def bench_serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.")],
    documents: Annotated[
        str | None, typer.Option(metavar="FILE", help="Texts to ask about; else the embedded corpus.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, metavar="N", help="That ask at the same time.")] = 32,
    seconds: Annotated[float, typer.Option(min=0.1, metavar="N", help="Of one measurement.")] = 5.0,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Measurements.")] = 3,
    out: Figures = None,
) -> None:
    """Answers a second over HTTP, beside the model in a loop."""
    from benchmarks.commands import run_serve

    run_serve(run, documents, {"clients": clients, "seconds": seconds, "repeats": repeats}, out)
