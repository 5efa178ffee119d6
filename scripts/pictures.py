"""Make the README's pictures from a finished run: the report by Chromium, the terminal by rich.

usage: python scripts/pictures.py RUN LOG   (LOG: what `mein demo` printed; needs `chromium`)
The page's picture is a screenshot of `mein serve RUN`.
"""

import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mein.evaluation.rendering import lines_of
from mein.report.record import read_finished

IMAGES = Path(__file__).parent.parent / "docs/images"


def report(run: Path) -> None:
    """The top of report.html, 1280 pixels wide."""
    subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            "--window-size=1280,1100",
            f"--screenshot={IMAGES / 'report.png'}",
            (run / "report.html").resolve().as_uri(),
        ],
        check=True,
        capture_output=True,
    )


def terminal(run: Path, log: Path) -> None:
    """The end of what a training prints, as an SVG; the mixture and the verdict are bold."""
    verdict = read_finished(run).verdict
    assert verdict is not None, run
    printed = " ".join(lines_of(verdict))
    lines = log.read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if "test documents" in line)
    console = Console(record=True, width=90, file=(log.parent / "discard").open("w", encoding="utf-8"))
    console.print(Text("$ make demo", style="bold"))
    for line in lines[first:]:
        is_bold = line.split()[:1] == [verdict.result.title] or (
            line.strip() != "" and line.strip() in printed
        )
        console.print(Text(line, style="bold" if is_bold else ""))
    svg = re.sub(
        r"@font-face \{.*?\}", "", console.export_svg(title="mein"), flags=re.DOTALL
    )  # from elsewhere
    (IMAGES / "terminal.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    report(Path(sys.argv[1]))
    terminal(Path(sys.argv[1]), Path(sys.argv[2]))
