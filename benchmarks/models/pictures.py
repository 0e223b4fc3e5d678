"""Pictures to look at: lines of rendered text.

Rendered, not scanned: right answers are known, and nothing is downloaded. Needs Pillow, with the typeface inside it.
All arrays are (height, width, 3) bytes, red first.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Unavailable

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]

PAPER = 245
INK = 25
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


def text_line(text: str, *, size: int, ink: int = INK) -> Pixels:
    """One line of text, as tight as a detector cuts it out. `size` is the typeface's, in pixels."""
    left, top, right, bottom = face(size).getbbox(text)
    margin, height = 6, round(1.2 * size)
    image = blank(round(right - left) + 2 * margin, height)
    write(image, (margin - left, (height - (bottom - top)) / 2 - top), text, size, ink)
    return np.asarray(image)


def resized(pixels: Pixels, width: int, height: int) -> Pixels:
    """Bilinear."""
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))


def blank(width: int, height: int) -> Image:
    pillow()
    from PIL import Image

    return Image.new("RGB", (width, height), (PAPER,) * 3)


def write(image: Image, at: tuple[float, float], text: str, size: int, ink: int) -> None:
    from PIL import ImageDraw

    ImageDraw.Draw(image).text(at, text, font=face(size), fill=(ink,) * 3)


@cache
def face(size: int) -> Any:
    pillow()
    from PIL import ImageFont

    return ImageFont.load_default(size)


@cache
def pillow() -> None:
    """Raises Unavailable where Pillow is absent, or cannot draw letters of any size (before 10.1)."""
    try:
        from PIL import ImageFont

        ImageFont.load_default(16)
    except (ImportError, TypeError, OSError) as error:
        raise Unavailable(
            f"pictures cannot be made: {error}", where="Pillow", hint="pip install 'pillow>=10.1'"
        ) from error
