"""The pictures of the documents, made anew by `make pictures`: Chromium draws what the commands print and write.

    python -m tests.pictures MERMAID_JS

MERMAID_JS is Mermaid as one file. The project that is shown is made anew, and trained.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import markdown
from rich.console import Console
from rich.text import Text

from docs.site import CHART, drawing
from tests.browser import Page, browser

DOCS = Path(__file__).parents[1] / "docs"
COLUMNS, WIDTH, HEIGHT = 110, 1000, 900
STYLE = """<meta charset="utf-8"><style>body {font: 15px/1.5 sans-serif; margin: 24px 32px}
table {border-collapse: collapse; font-size: 13px} td, th {border: 1px solid #ccc; padding: 3px 9px; text-align: left}
code {background: #f2f2f2; font-size: 13px}</style>"""


def draw_charts(page: Page, library: str) -> None:
    """Draw each Mermaid chart of docs/, and remove drawings of charts that are no more."""
    texts = [path.read_text("utf-8") for path in DOCS.glob("*.md")]
    charts = {DOCS / drawing(chart): chart for text in texts for chart in CHART.findall(text)}
    for old in {*(DOCS / "drawn").glob("chart-*.svg")} - charts.keys():
        old.unlink()
    page.js(f"{library}; mermaid.initialize({{startOnLoad: false, theme: 'neutral', htmlLabels: false}}); 1")
    for number, (path, chart) in enumerate(charts.items()):
        drawn = page.js(f"mermaid.render('chart{number}', {json.dumps(chart)}).then(found => found.svg)")
        path.write_text(drawn.replace("<br>", "<br/>").replace('style="', 'style="background: white; ', 1) + "\n", "utf-8")


def terminal(project: Path, *commands: str) -> str:
    """Return a terminal with commands and what they print, as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for command in commands:
        program = [sys.executable, "-m", *command.split()]
        said = subprocess.run(program, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
        console.print(Text(f"$ {command}", style="bold"), Text(said.stdout), sep="\n")
    return console.export_svg(title="mltrainer", unique_id="terminal")


def show(page: Page, report: Path, picture: Path) -> None:
    """Draw the beginning of a report as a browser shows its Markdown."""
    html = report.with_suffix(".html")
    html.write_text(STYLE + markdown.markdown(report.read_text("utf-8"), extensions=["tables", "fenced_code"]), "utf-8")
    page.open(html.as_uri(), WIDTH, HEIGHT)
    page.until("document.readyState == 'complete'")
    page.picture(picture)
    html.unlink()


def main() -> None:
    """Make all pictures."""
    (DOCS / "drawn").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as page:
        draw_charts(page, Path(sys.argv[1]).read_text("utf-8"))
        project = Path(folder) / "digits"
        subprocess.run([sys.executable, "-m", "mltrainer", "init", project, "--example", "digits"], check=True)
        (DOCS / "drawn/session.svg").write_text(terminal(project, "mltrainer run", "mltrainer gate check"), "utf-8")
        show(page, project / "phases/02_baseline/baseline_results.md", DOCS / "drawn/report.png")


if __name__ == "__main__":
    main()
