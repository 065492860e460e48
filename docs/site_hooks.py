"""Hooks of the documentation site (mkdocs.yml)."""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

REPORT = "results/report/report"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Publish a bench report as its own page and as Markdown, which would both become report.html."""
    if markdown := files.get_file_from_path(f"{REPORT}.md"):
        markdown.dest_uri = markdown.url = f"{REPORT}-text.html"
        # mkdocs.yml excludes it, because mkdocs detects the conflict before this hook runs.
        page = File(f"{REPORT}.html", config.docs_dir, config.site_dir, False, inclusion=InclusionLevel.INCLUDED)
        files.append(page)
    return files


def on_page_content(html: str, **_: object) -> str:
    """Show docstring examples, which start with >>>, as code instead of nested quotations."""

    def code(match: re.Match[str]) -> str:
        text = re.sub(r"</?(blockquote|p)>", "", match[0]).strip()
        return f"<pre><code>{text}</code></pre>"

    return re.sub(r"(<blockquote>\s*){3}.*?(</blockquote>\s*){3}", code, html, flags=re.DOTALL)
