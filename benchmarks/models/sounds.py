"""Sounds to listen to, all synthetic: something like speech, plucked notes, and what is neither.

Speech follows the source-filter model (Fant 1960; Klatt 1980): a buzz with a falling, slightly unsteady pitch goes
through resonators that glide from vowel to vowel, in syllables, with hisses between some. It says nothing, but a
detector of voices hears one. All arrays are float32 between -1 and 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Audio = NDArray[np.float32]

SPEECH_HZ = 16_000
MUSIC_HZ = 22_050

_FORMANTS_HZ = np.array(
    [(730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410), (660, 1720, 2410)],
    dtype=float,
)
"""The first three of six vowels of men (Peterson and Barney 1952); a fixed fourth is added."""
_FOURTH_HZ = 3500.0
_BANDWIDTHS_HZ = (60.0, 90.0, 140.0, 200.0)
_FRAME = 80
"""Samples during which the resonators stand still: 5 ms."""


def speech(rng: np.random.Generator, seconds: float) -> Audio:
    """Syllables of a voice whose pitch lies between 95 and 220 Hz, at 16 kHz."""
    from scipy.signal import lfilter

    frames = int(seconds * SPEECH_HZ) // _FRAME
    formants, loudness, hiss = _syllables(rng, frames)
    source = _buzz(rng, frames * _FRAME)
    voice = np.zeros(frames * _FRAME)
    memory = [np.zeros(2) for _ in _BANDWIDTHS_HZ]
    for frame in range(frames):
        window = slice(frame * _FRAME, (frame + 1) * _FRAME)
        wave = source[window] * loudness[frame]
        for number, (centre, width) in enumerate(zip((*formants[frame], _FOURTH_HZ), _BANDWIDTHS_HZ, strict=True)):
            radius = np.exp(-np.pi * width / SPEECH_HZ)
            poles = [1.0, -2 * radius * np.cos(2 * np.pi * centre / SPEECH_HZ), radius**2]
            wave, memory[number] = lfilter([sum(poles)], poles, wave, zi=memory[number])
        voice[window] = wave
    voice /= np.abs(voice).max()
    breath = np.diff(rng.standard_normal(len(voice)), prepend=0.0)
    voice += 0.08 * breath * np.repeat(hiss, _FRAME) + 0.001 * rng.standard_normal(len(voice))
    return _scaled(voice, 0.6)


def _buzz(rng: np.random.Generator, samples: int) -> NDArray[np.float64]:
    """Glottal pulses: a pulse train with falling pitch and 1 % of jitter, low-passed and differentiated."""
    from scipy.signal import lfilter

    time = np.linspace(0.0, 1.0, samples)
    pitch = rng.uniform(95, 220) * (1.15 - 0.25 * time) * (1 + 0.06 * np.sin(4 * np.pi * time + rng.uniform(0, 6)))
    pitch *= 1 + 0.01 * np.repeat(rng.standard_normal(samples // _FRAME + 1), _FRAME)[:samples]
    pulses = np.diff(np.floor(np.cumsum(pitch / SPEECH_HZ)), prepend=0.0)
    shaped: NDArray[np.float64] = lfilter([1.0, -1.0], np.polymul([1.0, -0.9], [1.0, -0.95]), pulses)
    return shaped


def _syllables(rng: np.random.Generator, frames: int) -> tuple[NDArray[np.float64], ...]:
    """By frame: formants (frames, 3), how loud the voice and how loud the hiss is. About five syllables a second."""
    formants, loudness, hiss = np.zeros((frames, 3)), np.zeros(frames), np.zeros(frames)
    at = 0
    while at < frames:
        begin, end = _FORMANTS_HZ[rng.integers(len(_FORMANTS_HZ), size=2)]
        vowel, pause = int(rng.integers(24, 50)), int(rng.integers(6, 16))
        span = np.arange(vowel)[: frames - at, None] / vowel
        formants[at : at + vowel] = begin * (1 - span) + end * span
        loudness[at : at + vowel] = np.sqrt(np.sin(np.pi * (span[:, 0] + 0.5 / vowel)))
        at += vowel
        formants[at : at + pause] = end
        hiss[at : at + pause] = 0.25 * rng.integers(0, 2)
        at += pause
    return formants, loudness, hiss


def quiet(rng: np.random.Generator, seconds: float) -> tuple[str, Audio]:
    """Sound without speech: silence, noise or a steady tone, and which of them it is."""
    samples = int(seconds * SPEECH_HZ)
    kind = ("silence", "noise", "a tone")[rng.integers(3)]
    if kind == "silence":
        return kind, np.zeros(samples, np.float32)
    if kind == "noise":
        return kind, (rng.uniform(0.005, 0.05) * rng.standard_normal(samples)).astype(np.float32)
    time = np.arange(samples) / SPEECH_HZ
    return kind, (0.3 * np.sin(2 * np.pi * rng.uniform(300, 2000) * time)).astype(np.float32)


def notes(rng: np.random.Generator, pitches: list[int], samples: int) -> Audio:
    """MIDI pitches struck together after 0.3 s, five partials each, dying away; at 22.05 kHz."""
    time = np.arange(samples) / MUSIC_HZ
    wave = np.zeros(samples)
    for pitch in pitches:
        base = 440.0 * 2 ** ((pitch - 69) / 12)
        for partial in range(1, 6):
            wave += 0.6**partial * np.sin(2 * np.pi * base * partial * time + rng.uniform(0, 2 * np.pi))
    return _scaled(wave * np.exp(-time) * (time > 0.3), rng.uniform(0.2, 0.6))


def _scaled(wave: NDArray[np.float64], peak: float) -> Audio:
    scaled: Audio = (peak * wave / np.abs(wave).max()).astype(np.float32)
    return scaled
