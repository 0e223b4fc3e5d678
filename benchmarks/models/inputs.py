"""Real calls for each network, and what a right answer to each says.

Those of `samples`, pages of rendered text, the photographs that come with scikit-learn, and synthetic sounds.
Everything follows from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models import pages, pictures, sounds
from models.catalogue import find
from models.samples import (
    Sample,
    Values,
    Verdict,
    channels_first,
    fitted_line,
    line,
    magika,
    only,
    orientation,
    signed,
)


def sample(name: str, seed: int = 0) -> Sample:
    """The call of this seed for this model. Raises NotFound, and Unavailable where a picture needs Pillow."""
    return _MAKERS[find(name).name](np.random.default_rng(seed))


def samples(name: str, count: int, seed: int = 0) -> list[Sample]:
    """`count` different calls; the same ones each time."""
    return [sample(name, seed + number) for number in range(count)]


def stack(calls: Sequence[Values]) -> dict[str, NDArray[Any]]:
    """Put several calls together into one."""
    return {name: np.concatenate([call[name] for call in calls]) for name in calls[0]}


def unstack(outputs: Values) -> list[dict[str, NDArray[Any]]]:
    """The answers to the calls that `stack` put together."""
    count = len(next(iter(outputs.values())))
    return [{name: values[row : row + 1] for name, values in outputs.items()} for row in range(count)]


_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def _standardised(pixels: pictures.Pixels) -> NDArray[np.float32]:
    """With ImageNet's mean and deviation."""
    return channels_first((pixels.astype(np.float32) / 255 - _MEAN) / _DEVIATION)


# --- documents ---


_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz "
_CLASSES = (
    26, 93, 25, 94, 632, 631, 933, 29, 27, 1109,
    1221, 3588, 4244, 1220, 4381, 1219, 5128, 425, 3587, 2697, 5193, 3506, 3639,
    3589, 4741, 1310, 4731, 5127, 1217, 1381, 4497, 5405, 5033, 5200, 1218, 4136,
    4544, 3463, 4902, 5171, 3332, 4389, 4548, 3539, 3538, 5493, 4849, 2710, 5233,
    4547, 4245, 4545, 2156, 1958, 1033, 3333, 1034, 4922, 3537, 2993, 4546, 3316, 6624,
)  # fmt: skip
"""Where these letters are among the network's 6,625 classes, most of them Chinese, as its metadata says."""
_LETTERS = dict(zip(_CLASSES, _ALPHABET, strict=True))


def read(scores: NDArray[np.float32]) -> str:
    """The text in (steps, 6625) scores: the best class of each step, repetitions and blanks (class 0) left out."""
    best = scores.argmax(axis=-1)
    kept = best[(best != 0) & (np.diff(best, prepend=0) != 0)]
    return "".join(_LETTERS.get(int(letter), "?") for letter in kept)


def _compact(text: str) -> str:
    """Without what a line that was squeezed or enlarged may lose: spaces, and whether an S is a large one."""
    return text.replace(" ", "").casefold()


def _text_recognition(rng: np.random.Generator) -> Sample:
    text, pixels = line(rng)

    def check(outputs: Values) -> Verdict:
        says = read(only(outputs)).strip()
        return Verdict(_compact(says) == _compact(text), repr(says))

    return Sample(repr(text), {"x": fitted_line(pixels, 320)}, check)


def _text_detection(rng: np.random.Generator) -> Sample:
    count = int(rng.integers(1, 6))
    lines = [pictures.phrase(rng, 2) for _ in range(count)]
    page = pages.text_page(lines, width=320, height=320, size=int(rng.integers(20, 27)), top=24, gap=56)

    def check(outputs: Values) -> Verdict:
        rows = (only(outputs)[0] > 0.3).any(axis=1)
        found = int(np.count_nonzero(np.diff(rows, prepend=False) & rows))
        return Verdict(found == count, f"{found} lines")

    return Sample(f"a page with {count} lines", {"x": signed(page)}, check)


def _page_rotation(rng: np.random.Generator) -> Sample:
    lines = [pictures.phrase(rng, 5) for _ in range(20)]
    page = pages.text_page(lines, width=480, height=640, size=int(rng.integers(15, 19)), top=20, gap=30)
    quarters = int(rng.integers(4))
    page = np.rot90(page, -quarters)
    shorter = min(page.shape[:2])
    page = pictures.resized(page, page.shape[1] * 256 // shorter, page.shape[0] * 256 // shorter)
    top, left = (page.shape[0] - 224) // 2, (page.shape[1] - 224) // 2

    def check(outputs: Values) -> Verdict:
        scores = only(outputs)
        return Verdict(int(scores.argmax()) == quarters, f"{90 * int(scores.argmax())}° {scores.max():.2f}")

    window = page[top : top + 224, left : left + 224, ::-1]
    return Sample(f"a page turned by {90 * quarters}°", {"x": _standardised(window)}, check)


_LAYOUT_CLASSES = ("text", "title", "figure")
"""The first three of ten."""


def _page_layout(rng: np.random.Generator) -> Sample:
    figure = bool(rng.integers(2))
    lines = [pictures.phrase(rng, 11) for _ in range(int(rng.integers(12, 17)))]
    photo = pages.photo(str(rng.choice(_PHOTOS))) if figure else None
    page = pages.article(pictures.phrase(rng, 3), lines, figure=photo)

    def check(outputs: Values) -> Verdict:
        best = np.concatenate([scores[0, :, :3] for name, scores in outputs.items() if scores.shape[-1] == 10])
        found = {kind for kind, score in zip(_LAYOUT_CLASSES, best.max(axis=0), strict=True) if score > 0.4}
        return Verdict(found == {"text", "title", *(["figure"] if figure else [])}, ", ".join(sorted(found)))

    shown = "a title, text and a figure" if figure else "a title and text"
    return Sample(f"a page with {shown}", {"image": _standardised(page)}, check)


# --- photographs ---

_PHOTOS = ("china.jpg", "flower.jpg")
_MEAN_BGR = np.array([104, 117, 123], np.float32)


def _moderation(rng: np.random.Generator) -> Sample:
    name = str(rng.choice(_PHOTOS))
    side = int(rng.integers(320, 420))
    top, left = int(rng.integers(427 - side)), int(rng.integers(640 - side))
    window = pictures.resized(pages.photo(name)[top : top + side, left : left + side], 224, 224)

    def check(outputs: Values) -> Verdict:
        _, unsafe = only(outputs)
        return Verdict(bool(unsafe < 0.2), f"unsafe {unsafe:.3f}")  # 0.2: what its makers call very likely safe

    pixels = window[None, :, :, ::-1].astype(np.float32) - _MEAN_BGR
    return Sample(f"a part of {name}", {"input:0": pixels}, check)


# --- sounds ---

_WINDOW, _CONTEXT = 512, 64


def voice_windows(audio: sounds.Audio) -> NDArray[np.float32]:
    """(windows, 576): each 512 samples of 16 kHz after the 64 before them, as silero-vad takes them one by one."""
    count = len(audio) // _WINDOW
    padded = np.concatenate([np.zeros(_CONTEXT, np.float32), audio[: count * _WINDOW]])
    return np.stack([padded[at * _WINDOW : at * _WINDOW + _CONTEXT + _WINDOW] for at in range(count)])


def voice_call(window: NDArray[np.float32], state: NDArray[np.float32] | None = None) -> dict[str, NDArray[Any]]:
    """One call of silero-vad. `state` is `stateN` of the stream's call before; None begins a stream."""
    return {"input": window[None], "state": np.zeros((1, 2, 128), np.float32) if state is None else state}


def _silero_vad(rng: np.random.Generator) -> Sample:
    """The loudest 32 ms of a second, as a stream's first call: without a past the network is less sure than later."""
    speaking = bool(rng.integers(2))
    kind, audio = ("speech (synthetic)", sounds.speech(rng, 1.0)) if speaking else sounds.quiet(rng, 1.0)
    windows = voice_windows(audio)
    loudest = windows[np.square(windows).mean(axis=1).argmax()]

    def check(outputs: Values) -> Verdict:
        probability = float(outputs["output"][0, 0])
        return Verdict((probability > 0.15) == speaking, f"speech {probability:.2f}")

    return Sample(f"32 ms of {kind}", voice_call(loudest), check)


_MUSIC_SAMPLES = 43_844
_LOWEST_PITCH = 21
_NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")


def _basic_pitch(rng: np.random.Generator) -> Sample:
    """One note or two, a third or a fourth apart: where partials coincide, the network hears further notes."""
    pitches = np.cumsum([rng.integers(45, 70), *rng.integers(3, 6, size=int(rng.integers(2)))]).tolist()
    audio = sounds.notes(rng, pitches, _MUSIC_SAMPLES)

    def check(outputs: Values) -> Verdict:
        sounding = np.median(outputs["StatefulPartitionedCall:1"][0, 60:140], axis=0) > 0.5
        found = [int(key) + _LOWEST_PITCH for key in np.flatnonzero(sounding)]
        return Verdict(found == pitches, _chord(found))

    return Sample(f"{_chord(pitches)} (synthetic)", {"serving_default_input_2:0": audio[None, :, None]}, check)


def _chord(pitches: Sequence[int]) -> str:
    return " ".join(f"{_NAMES[pitch % 12]}{pitch // 12 - 1}" for pitch in pitches) or "no note"


_MAKERS: Mapping[str, Callable[[np.random.Generator], Sample]] = {
    "orientation": orientation,
    "magika": magika,
    "text-detection": _text_detection,
    "text-recognition": _text_recognition,
    "page-rotation": _page_rotation,
    "page-layout": _page_layout,
    "moderation": _moderation,
    "silero-vad": _silero_vad,
    "basic-pitch": _basic_pitch,
}
