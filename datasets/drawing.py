"""Pictures drawn from a seed: shapes, lines, words and textures, to train on in place of collections of photographs."""

from __future__ import annotations

import string
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.uint8]

FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Bold"),
    *("cmr10", "cmss10", "cmtt10", "cmb10", "STIXGeneral", "STIXGeneralItalic", "STIXGeneralBol"),
)
"""Fonts of drawn words, which Matplotlib ships."""
HELD_OUT_FONTS = ("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic", "STIXGeneralBolIta")
"""Fonts that are never trained on, for evaluation."""
OVERSAMPLING = 2
"""Pictures are drawn at this many times their size, and then reduced."""
FILTERS = (Image.Resampling.BICUBIC, Image.Resampling.LANCZOS, Image.Resampling.BOX, Image.Resampling.HAMMING)
"""Filters by which drawn pictures are reduced, one at random for each."""
LETTERS = string.ascii_letters + string.digits


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"), size)


def draw_picture(random: np.random.Generator, side: int = 256) -> Picture:
    """A picture of shapes, lines, words and patches of texture in random colours: ``(side, side, 3)``."""
    large = side * OVERSAMPLING
    image = _background(random, large)
    draw = ImageDraw.Draw(image)
    for _ in range(int(random.integers(8, 30))):
        shape = int(random.integers(0, 7))
        x, y = (int(v) for v in random.integers(-30, large, 2))
        width, height = (int(v) for v in random.integers(6, large // 2, 2))
        box, thickness = (x, y, x + width, y + height), int(random.integers(1, 14))
        fill = _color(random) if random.random() < 0.7 else None
        if shape == 0:
            draw.ellipse(box, fill=fill, outline=_color(random), width=thickness)
        elif shape == 1:
            draw.rectangle(box, fill=fill, outline=_color(random), width=thickness)
        elif shape == 2:
            draw.line((x, y, *(int(v) for v in random.integers(0, large, 2))), fill=_color(random), width=thickness)
        elif shape == 3:
            corners = [(int(a), int(b)) for a, b in random.integers(0, large, (3, 2))]
            draw.polygon(corners, fill=_color(random))
        elif shape == 4:
            mask = Image.new("L", image.size)
            ImageDraw.Draw(mask).ellipse(box, fill=255)
            image.paste(_texture(random, large), mask=mask)
        else:
            letters = random.choice(list(LETTERS + " ,.;!?&%"), int(random.integers(2, 14)))
            font = _font(FONTS[int(random.integers(len(FONTS)))], int(random.integers(16, 110)))
            draw.text((x, y), "".join(letters), fill=_color(random), font=font)
    return _reduced(image, side, FILTERS[int(random.integers(len(FILTERS)))])


def draw_words(random: np.random.Generator, side: int = 512) -> Picture:
    """Words in :data:`HELD_OUT_FONTS` on a plain background, ``(side, side, 3)``: for evaluation."""
    large = side * OVERSAMPLING
    image = Image.new("RGB", (large, large), _color(random))
    draw = ImageDraw.Draw(image)
    for _ in range(14):
        font = _font(HELD_OUT_FONTS[int(random.integers(len(HELD_OUT_FONTS)))], int(random.integers(30, 130)))
        x, y = (int(v) for v in random.integers(-40, large - 200, 2))
        draw.text((x, y), "".join(random.choice(list(LETTERS), 10)), fill=_color(random), font=font)
    return _reduced(image, side, Image.Resampling.LANCZOS)


def _color(random: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = (int(v) for v in random.integers(0, 256, 3))
    return red, green, blue


def _background(random: np.random.Generator, side: int) -> Image.Image:
    kind = random.random()
    if kind < 0.4:
        return Image.new("RGB", (side, side), _color(random))
    if kind < 0.7:  # a smooth one
        coarse = Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        return coarse.resize((side, side), Image.Resampling.BICUBIC)
    return _texture(random, side)


def _texture(random: np.random.Generator, side: int) -> Image.Image:
    """Noise with a spectrum that falls as a power of the frequency, stretched along a random direction."""
    power, aspect, angle = random.uniform(1.2, 2.2), 2.0 ** random.uniform(0, 2.5), random.uniform(0, np.pi)
    y, x = np.meshgrid(np.fft.fftfreq(side), np.fft.rfftfreq(side), indexing="ij")
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    radius = np.sqrt((along * aspect) ** 2 + across**2 + 1e-5)
    noise = np.fft.irfft2(np.fft.rfft2(random.standard_normal((side, side))) * radius**-power, (side, side))
    noise = (noise - noise.mean()) / noise.std() * random.uniform(0.05, 0.25)
    colors = np.array([_color(random), _color(random)]) / 255
    mixed = colors[0] + np.clip(noise[..., None] + 0.5, 0, 1) * (colors[1] - colors[0])
    return Image.fromarray(np.round(mixed.clip(0, 1) * 255).astype(np.uint8))


def _reduced(image: Image.Image, side: int, filter: Image.Resampling) -> Picture:
    return np.asarray(image.resize((side, side), filter))
