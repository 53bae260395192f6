"""Fixtures that the test files of the data commands take."""

from __future__ import annotations

import pytest
from picture_records import CLASSES, picture


@pytest.fixture
def folder(tmp_path):
    """Pictures of three classes, a folder each, in the forms that pictures come in, beside files that are none."""
    seed = 0
    for name, count in CLASSES.items():
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(count):
            ending, kind, mode = [("jpg", "JPEG", "RGB"), ("png", "PNG", "L"), ("JPEG", "JPEG", "CMYK")][number % 3]
            (tmp_path / "images" / name / f"{number}.{ending}").write_bytes(picture(seed, kind, mode, (40 + seed, 30)))
            seed += 1
        (tmp_path / "images" / name / "readme.txt").write_text("not a picture")
    return tmp_path / "images"
