"""A file of weights whose header lies is refused in one sentence that names it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from torch import nn

from dpsweep.trainers.models.hugging_face import load_weights


@pytest.mark.parametrize("end", [8, 1 << 40])
def test_weights_that_declare_more_than_there_is_are_refused(end: int, tmp_path: Path) -> None:
    header = json.dumps({"weight": {"dtype": "F32", "shape": [end // 4], "data_offsets": [0, end]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(
        ValueError, match=rf"^Expected {tmp_path}/model\.safetensors to be a whole file of weights, got"
    ):
        load_weights(nn.Linear(1, 1), tmp_path)
