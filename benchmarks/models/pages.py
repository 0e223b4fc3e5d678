"""Pages of rendered text, and the two photographs that scikit-learn ships. Needs Pillow.

All arrays are (height, width, 3) bytes, red first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from models.pictures import INK, Pixels, blank, face, pillow, resized, write


def text_page(lines: Sequence[str], *, width: int, height: int, size: int, top: int, gap: int) -> Pixels:
    """Lines of text below each other, `gap` pixels from one to the next."""
    image = blank(width, height)
    for row, line in enumerate(lines):
        write(image, (16, top + row * gap), line, size, INK)
    return np.asarray(image)


def article(title: str, lines: Sequence[str], *, figure: Pixels | None, width: int = 608, height: int = 800) -> Pixels:
    """A page with a title, a block of text below it, and perhaps a figure below that."""
    image = blank(width, height)
    write(image, (width / 2 - face(34).getlength(title) / 2, 40), title, 34, INK)
    for row, line in enumerate(lines):
        write(image, (40, 110 + 20 * row), line, 14, INK)
    if figure is not None:
        from PIL import Image

        image.paste(Image.fromarray(resized(figure, 400, 267)), ((width - 400) // 2, 140 + 20 * len(lines)))
    return np.asarray(image)


@cache
def photo(name: str) -> Pixels:
    """`china.jpg` (a temple) or `flower.jpg` (a dahlia), 427 x 640, from scikit-learn."""
    pillow()
    from sklearn.datasets import load_sample_image

    pixels: Pixels = load_sample_image(name)
    return pixels
