"""Pictures are read as they look, and cut into patches."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from transformer.common.packages import MissingPackage
from transformer.data.features.pictures import patches, picture_of, read_picture
from transformer.data.features.reference import Reference
from transformer.settings.sources import ImageConfig

NOISE = np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8)


def read(file: object, **settings: Any) -> np.ndarray:
    return read_picture(Reference.parse(str(file)), ImageConfig(**settings))


def exact(file: object, height: int, width: int, **settings: Any) -> np.ndarray:
    """The pixels from 0 to 255 of a picture of this size."""
    sizes = {"height": height, "width": width, "patch_height": 1, "patch_width": 1}
    return read(file, **sizes, mean=0.0, std=1 / 255, **settings)


@pytest.mark.parametrize("channels", [1, 3])
def test_transformers(tmp_path: Path, channels: int) -> None:
    """As the processor of ViT, whose mean and deviation are 0.5, scales and normalizes."""
    from transformers import ViTImageProcessorPil

    picture = Image.fromarray(NOISE).convert("L" if channels == 1 else "RGB")
    picture.save(tmp_path / "a.png")
    processor = ViTImageProcessorPil(size={"height": 32, "width": 24})
    expected = processor(picture.convert("RGB"), return_tensors="np")["pixel_values"][0]
    result = read(tmp_path / "a.png", height=32, width=24, channels=channels)
    assert result.dtype == np.float32 and result.shape == (32, 24, channels)
    # channel height width -> height width channel
    np.testing.assert_allclose(
        result, expected.transpose(1, 2, 0)[:, :, :channels], rtol=0, atol=1e-6
    )


def test_jpeg(tmp_path: Path) -> None:
    Image.new("RGB", (16, 8), (200, 100, 50)).save(tmp_path / "a.jpg", quality=95)
    assert np.abs(exact(tmp_path / "a.jpg", 8, 16, channels=3) - (200, 100, 50)).max() < 3


def test_a_picture_is_turned_as_its_camera_was_held(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter to the right
    Image.fromarray(NOISE).save(tmp_path / "a.png", exif=exif)
    expected = np.rot90(NOISE, -1)
    np.testing.assert_allclose(exact(tmp_path / "a.png", 70, 50, channels=3), expected, atol=1e-4)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(tmp_path: Path, mode: str) -> None:
    picture = Image.new("RGBA", (2, 1), (0, 0, 0, 255))
    picture.putpixel((1, 0), (0, 0, 0, 0))
    if mode == "P":
        picture = Image.new("P", (2, 1), 0)
        picture.putpalette([0, 0, 0, 0, 0, 0])
        picture.putpixel((1, 0), 1)
        picture.info["transparency"] = 1
    else:
        picture = picture.convert(mode)
    picture.save(tmp_path / "a.png")
    np.testing.assert_allclose(exact(tmp_path / "a.png", 1, 2)[0, :, 0], [0, 255], atol=1e-4)


def test_sixteen_bits(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 257 * 100, 65_535]], np.uint16)).save(tmp_path / "a.png")
    pixels = exact(tmp_path / "a.png", 1, 3)[0, :, 0]
    np.testing.assert_allclose(pixels, [0, 100, 255], atol=1e-4)


def test_a_transparent_gray_of_sixteen_bits_is_white(tmp_path: Path) -> None:
    """Only that gray, not its neighbor, which has the same eight bits."""
    gray = np.array([[0, 257 * 100, 257 * 100 + 1]], np.uint16)
    Image.fromarray(gray).save(tmp_path / "a.png", transparency=257 * 100)
    np.testing.assert_allclose(exact(tmp_path / "a.png", 1, 3)[0, :, 0], [0, 255, 100], atol=1e-4)


def test_the_proportion_stays(tmp_path: Path) -> None:
    """Up to a whole patch; what is missing at the right is white."""
    Image.new("L", (100, 50), 0).save(tmp_path / "a.png")
    picture = read(tmp_path / "a.png", height=16, patch_height=8, patch_width=10)
    assert picture.shape == (16, 40, 1)
    assert (picture[:, :32] == -1).all() and (picture[:, 32:] == 1).all()
    Image.new("L", (1, 500), 0).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png", height=8).shape == (8, 8, 1)


def test_rows_of_parquet(tmp_path: Path) -> None:
    Image.fromarray(NOISE).save(tmp_path / "a.png")
    rows = pa.table({"image": [{"bytes": (tmp_path / "a.png").read_bytes(), "path": None}]})
    pq.write_table(rows, tmp_path / "a.parquet")
    assert np.array_equal(read(f"{tmp_path}/a.parquet#row=0"), read(tmp_path / "a.png"))


@pytest.mark.parametrize("channels", [1, 3])
def test_patches(channels: int) -> None:
    """As torch unfolds a picture, whose channels come first, and back."""
    config = ImageConfig(height=4, patch_height=2, patch_width=3, channels=channels)  # type: ignore[arg-type]
    picture = np.random.default_rng(1).standard_normal((4, 9, channels)).astype(np.float32)
    vectors = patches(picture, config)
    # 1 (channel tall wide) patch -> patch channel tall wide
    blocks = torch.nn.functional.unfold(
        torch.from_numpy(picture).permute(2, 0, 1)[None], (2, 3), stride=(2, 3)
    )[0].T.unflatten(1, (channels, 2, 3))
    # patch channel tall wide -> patch (tall wide channel)
    assert np.array_equal(vectors, blocks.permute(0, 2, 3, 1).flatten(1).numpy())
    assert np.array_equal(picture_of(vectors, config), picture)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer.common.packages.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"\[image\]"):
        read("a.png")
