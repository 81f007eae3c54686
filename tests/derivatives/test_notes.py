"""Every `See NOTE [title]` in the package points to a note that is there."""

import re
from pathlib import Path

import pullback.derivatives


def test_notes_are_found():
    texts = [p.read_text() for p in Path(pullback.derivatives.__file__).parent.glob("*.py")]
    titles = {t for text in texts for t in re.findall(r"^NOTE \[([^\]]+)\]$", text, re.MULTILINE)}
    named = {t for text in texts for t in re.findall(r"(?i:see)\s+NOTE\s+\[([^\]]+)\]", text)}
    assert named
    assert named <= titles
