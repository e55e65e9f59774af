"""The pages of the documentation site: files of the repository at their own paths, so that their links to one another hold."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from mltrainer import handbook

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("*.md", "docs/*.md", "docs/*.svg", "docs/*/*.svg", "docs/*/*.png", "docs/predicates/*.json", "examples/**/*.md")
PATTERNS = (*DOCUMENTS, *(f"{folder}/**/*.{suffix}" for folder in handbook.FOLDERS for suffix in ("md", "yaml")))
CHART = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the site's files: those of the repository in place of those of `docs_dir`, whose paths lack their folder."""
    paths = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})
    own = [_file(path.relative_to(ROOT).as_posix(), config) for path in paths]
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *own])


def _file(path: str, config: MkDocsConfig) -> File:
    return File(path, str(ROOT), config.site_dir, config.use_directory_urls)


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:
    """Return a page of the handbook with its front matter as YAML at its end; None leaves a page as it is."""
    path = page.file.src_uri
    return handbook.read_page(path, None).text if path in handbook.page_paths() else None


def drawing(chart: str) -> str:
    """Return the path, below docs/, of the drawing of a Mermaid chart; another text has another one: `make pictures`."""
    return f"drawn/chart-{hashlib.sha256(chart.encode()).hexdigest()[:8]}.svg"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page of docs/ with drawings in place of Mermaid charts: Mermaid would be fetched by the reader's browser."""
    return CHART.sub(lambda found: f"![]({drawing(found[1])})", markdown)
