"""Pictures to look at: lines and pages of rendered text, and the two photographs that scikit-learn ships.

Rendered, not scanned: right answers are known, and nothing is downloaded. Needs Pillow, with the typeface inside it.
All arrays are (height, width, 3) bytes, red first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Unavailable

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]

PAPER = 245
_INK = 25
_WORDS = (
    "invoice", "total", "queue", "batch", "tenant", "order", "number", "page", "shipping", "account", "balance",
    "paid", "due", "date", "train", "ticket", "north", "harbour", "street", "market", "river", "garden", "copper",
    "silver", "paper", "window", "early", "monday", "friday", "march", "april", "delivery", "weight", "price", "amount",
    "customer", "return", "signed", "receipt", "station", "platform", "seat", "booking", "light",
)  # fmt: skip


def phrase(rng: np.random.Generator, words: int) -> str:
    """Words and numbers as on a form, such as `Invoice 2041`; it begins with a capital."""
    parts = [str(rng.choice(_WORDS)) for _ in range(words)]
    if rng.random() < 0.5:
        parts[-1] = str(rng.integers(100, 10_000))
    return " ".join(parts).capitalize()


def text_line(text: str, *, size: int, ink: int = _INK) -> Pixels:
    """One line of text, as tight as a detector cuts it out. `size` is the typeface's, in pixels."""
    left, top, right, bottom = _face(size).getbbox(text)
    margin, height = 6, round(1.2 * size)
    image = _paper(round(right - left) + 2 * margin, height)
    _write(image, (margin - left, (height - (bottom - top)) / 2 - top), text, size, ink)
    return np.asarray(image)


def text_page(lines: Sequence[str], *, width: int, height: int, size: int, top: int, gap: int) -> Pixels:
    """Lines of text below each other, `gap` pixels from one to the next."""
    image = _paper(width, height)
    for row, line in enumerate(lines):
        _write(image, (16, top + row * gap), line, size, _INK)
    return np.asarray(image)


def article(title: str, lines: Sequence[str], *, figure: Pixels | None, width: int = 608, height: int = 800) -> Pixels:
    """A page with a title, a block of text below it, and perhaps a figure below that."""
    image = _paper(width, height)
    _write(image, (width / 2 - _face(34).getlength(title) / 2, 40), title, 34, _INK)
    for row, line in enumerate(lines):
        _write(image, (40, 110 + 20 * row), line, 14, _INK)
    if figure is not None:
        from PIL import Image

        image.paste(Image.fromarray(resized(figure, 400, 267)), ((width - 400) // 2, 140 + 20 * len(lines)))
    return np.asarray(image)


@cache
def photo(name: str) -> Pixels:
    """`china.jpg` (a temple) or `flower.jpg` (a dahlia), 427 x 640, from scikit-learn."""
    _pillow()
    from sklearn.datasets import load_sample_image

    pixels: Pixels = load_sample_image(name)
    return pixels


def resized(pixels: Pixels, width: int, height: int) -> Pixels:
    """Bilinear."""
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))


def _paper(width: int, height: int) -> Image:
    _pillow()
    from PIL import Image

    return Image.new("RGB", (width, height), (PAPER,) * 3)


def _write(image: Image, at: tuple[float, float], text: str, size: int, ink: int) -> None:
    from PIL import ImageDraw

    ImageDraw.Draw(image).text(at, text, font=_face(size), fill=(ink,) * 3)


@cache
def _face(size: int) -> Any:
    _pillow()
    from PIL import ImageFont

    return ImageFont.load_default(size)


@cache
def _pillow() -> None:
    """Raises Unavailable where Pillow is absent, or cannot draw letters of any size (before 10.1)."""
    try:
        from PIL import ImageFont

        ImageFont.load_default(16)
    except (ImportError, TypeError, OSError) as error:
        raise Unavailable(
            f"pictures cannot be made: {error}", where="Pillow", hint="pip install 'pillow>=10.1'"
        ) from error
