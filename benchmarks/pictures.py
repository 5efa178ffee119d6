"""Charts as SVG files, for light and dark pages. Apart from report/charts.py, whose page brings a style."""

from mein.report.charts import Figure

COLORS = ("#4269d0", "#d1495b", "#2e8b57", "#8a5a00", "#6f4fb3", "#0f7b8a", "#b0417f")
STYLE = """text{font:12px system-ui,sans-serif;fill:#555}.grid{stroke:#ddd}.axis{stroke:#888}
path{fill:none;stroke-width:2}.paper{stroke-dasharray:5 4}"""
DARK = "@media(prefers-color-scheme:dark){\ntext{fill:#bbb}.grid{stroke:#3a3a3a}.axis{stroke:#888}"


def standalone(figure: Figure, rules: str, dark_rules: str = "") -> str:
    """The text of an SVG file with its style; `dark_rules` replace `rules` on a dark page."""
    style = f"<style>{STYLE}{DARK}}}{rules}"
    if dark_rules:
        style += f"@media(prefers-color-scheme:dark){{{dark_rules}}}"
    svg = str(figure.svg()).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return svg.replace("</desc>", f"</desc>{style}</style>", 1) + "\n"
