"""Findings as text, JSON and HTML. Here and not in reports: torch's error carries the text."""

import html
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullback.doctor.findings import Finding


def as_text(finding: "Finding") -> str:
    """A finding as lines: severity and rule, then its parts."""
    lines = [f"pullback doctor: {finding.severity}: {finding.rule}"]
    lines += [f"  {label + ':':<10}{words}" for label, words in finding.parts()]
    return "\n".join(lines)


def as_json(findings: Iterable["Finding"]) -> str:
    """Findings as a JSON array of objects."""
    return json.dumps([asdict(finding) for finding in findings], indent=2)


def as_html(findings: Iterable["Finding"]) -> str:
    """Findings as tables. Any word may come from the user's source, so all are escaped."""
    blocks = []
    for finding in findings:
        rows = "".join(
            f"<tr><th style='text-align:left'>{label}</th>"
            f"<td style='text-align:left'>{html.escape(words)}</td></tr>"
            for label, words in finding.parts()
        )
        heading = f"<b>{html.escape(finding.severity)}: {html.escape(finding.rule)}</b>"
        blocks.append(f"<div>{heading}<table>{rows}</table></div>")
    return "".join(blocks) or "<p>pullback doctor: nothing found</p>"
