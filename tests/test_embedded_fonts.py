"""What tests embed is what matplotlib embeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.embedded_fonts import embed_as_matplotlib_does, embed_quickly
from tests.reports.figures.test_drawing_pdf import DRAWN


@pytest.fixture(autouse=True)
def quick_again() -> Iterator[None]:
    yield
    embed_quickly()


@pytest.mark.parametrize("name", DRAWN)
def test_the_file_is_the_same(name: str) -> None:
    embed_as_matplotlib_does()
    alone = DRAWN[name]()
    embed_quickly()
    assert [DRAWN[name](), DRAWN[name]()] == [alone, alone]
