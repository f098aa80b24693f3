"""Frozen features: one record at a time, kept by contents, and never those of other records."""

from __future__ import annotations

import os
import pickle
import stat
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.trainers.data.published_files import sha256_of_file_or_folder
from dpsweep.trainers.data.records import Records
from dpsweep.trainers.data.sets.own_arrays import Arrays, Npz
from dpsweep.trainers.data.split import pseudo_random_part_mask, split_off_holdout
from dpsweep.trainers.features import cache as caches
from dpsweep.trainers.features.cache import FeatureCache, checked_probe_features, random_probe_inputs
from dpsweep.trainers.features.extracted import Extracted
from dpsweep.trainers.features.torch_module import TorchModule
from tests.trainers import extractors
from tests.trainers.extractors import SIZE, WRONG, Curved, Picky, Projection, weights_file

pytestmark = pytest.mark.usefixtures("trusting")

SHAPE, RECORDS = (2, 3), 7
NORM = 2.0
ADD = Adjacency.ADD_OR_REMOVE_ONE


def extractor(folder: Path, kind: type[Projection] = Projection, **changes: Any) -> TorchModule:
    file = weights_file(folder, int(np.prod(SHAPE)))
    fields: dict[str, Any] = {
        "source": {"_target_": f"{extractors.__name__}.{kind.__name__}", "file": str(file)},
        "weights": str(file),
        "sha256": sha256_of_file_or_folder(file),
        "size": SIZE,
        "norm": NORM,
        "trained_on": "invented digits",
    }
    return TorchModule(**(fields | changes))


def data_set(folder: Path, **changes: Any) -> Extracted:
    npz = {"path": "own.npz", "features": "x", "labels": "y", "bounds": (0.0, 1.0)}
    of = Npz(name="own", records=RECORDS, test_records=0, shape=SHAPE, classes=2, unit="record", **npz)
    return Extracted(of=of, extractor=extractor(folder, **changes))


def records(many: int = RECORDS, seed: int = 0) -> Records:
    features = np.random.default_rng(seed).random((many, *SHAPE), dtype=np.float32)
    return Records(features=torch.from_numpy(features), labels=torch.arange(many) % 2)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "ROWS", 3)


def test_features_replace_the_inputs_and_leave_units_labels_and_split_alone(tmp_path: Path) -> None:
    dataset, raw = data_set(tmp_path), records()
    found = dataset.replace_inputs_by_features(raw, FeatureCache(root=tmp_path / "cache"))
    module = dataset.extractor_module()
    expected = torch.cat([module(raw.inputs(slice(i, i + 1), "cpu")) for i in range(RECORDS)])
    assert torch.equal(found.inputs(slice(None), "cpu"), expected)
    assert torch.equal(found.labels, raw.labels)
    assert dataset.shape == (SIZE,)
    assert torch.allclose(found.features.norm(dim=1), torch.tensor(NORM))
    mask = pseudo_random_part_mask(found, 0.5, Adjacency.ADD_OR_REMOVE_ONE)
    assert np.array_equal(
        mask, pseudo_random_part_mask(replace(found, features=found.features + 1e-6), 0.5, "add_or_remove_one")
    )
    chosen = found.select(np.array([4, 2]))
    assert [*chosen.bytes_of_each_record()] == [[*found.bytes_of_each_record()][place] for place in (4, 2)]


def test_a_record_has_the_same_features_whatever_records_surround_it(tmp_path: Path) -> None:
    dataset, raw = data_set(tmp_path), records()
    whole = dataset.replace_inputs_by_features(raw, FeatureCache(root=tmp_path / "cache")).features
    for place in range(RECORDS):
        without = np.delete(np.arange(RECORDS), place)
        fewer = dataset.replace_inputs_by_features(
            raw.select(without), FeatureCache(root=tmp_path / f"cache {place}")
        ).features
        assert torch.equal(fewer, whole[torch.from_numpy(without)]), "bit by bit"


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("inputs", [50, 197, 785])
def test_a_feature_is_a_function_of_its_record_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: int, gelu: bool
) -> None:
    """Kernels round a row by its memory alignment, which rows in one file of features have of many kinds."""
    monkeypatch.setattr(caches, "ROWS", 64)
    monkeypatch.setattr(sys.modules[__name__], "SHAPE", (inputs,))
    raw = Records(
        features=torch.rand(70, inputs, generator=torch.Generator().manual_seed(1)) - 0.5,
        labels=torch.zeros(70, dtype=torch.int64),
    )
    raw.features[:64] = raw.features[0]
    dataset = data_set(tmp_path, kind=Curved if gelu else Projection)
    whole, fewer = (
        dataset.replace_inputs_by_features(part, FeatureCache(root=tmp_path / name)).features
        for name, part in (("whole", raw), ("fewer", raw.select(slice(1, None))))
    )
    assert torch.equal(whole[:64], whole[:1].expand(64, -1)), "equal records have equal features at 64 offsets"
    assert torch.equal(fewer, whole[1:]), "an added row at the file's start shifts no bit of the later ones"


def on_disk(folder: Path, raw: Records) -> Records:
    """The same records in a folder of .npy files."""
    (folder / "own").mkdir()
    np.save(folder / "own" / "x.npy", raw.stored_features().numpy())
    np.save(folder / "own" / "y.npy", raw.labels.numpy())
    given: dict[str, Any] = {"path": str(folder / "own"), "features": "x", "labels": "y", "bounds": (0.0, 1.0)}
    of = Arrays(name="own", records=RECORDS, test_records=0, shape=SHAPE, classes=2, unit="record", **given)
    return of.load(None)[0]


def test_features_of_records_on_disk_stay_in_their_files_and_are_the_same(tmp_path: Path) -> None:
    dataset, raw = data_set(tmp_path), records(20)
    disk, cache = on_disk(tmp_path, raw), FeatureCache(root=tmp_path / "cache")
    expected = dataset.replace_inputs_by_features(raw, FeatureCache(root=tmp_path / "other"))
    for _ in range(2):
        found = dataset.replace_inputs_by_features(disk, cache)
        assert found.is_on_disk
        for index in (slice(None), np.array([19, 0, 4, 4, 3, 18]), np.array([], dtype=np.int64)):
            assert torch.equal(found.inputs(index, "cpu"), expected.inputs(index, "cpu")), "bit by bit"
        assert [*found.bytes_of_each_record()] == [*expected.bytes_of_each_record()]
        ours, theirs = (split_off_holdout(each, fraction=0.5, adjacency=ADD).train for each in (found, expected))
        assert torch.equal(ours.inputs(slice(None), "cpu"), theirs.inputs(slice(None), "cpu"))
        again = pickle.loads(pickle.dumps(ours))
        assert torch.equal(again.inputs(slice(None), "cpu"), ours.inputs(slice(None), "cpu"))
    held = dataset.replace_inputs_by_features(raw, cache)
    assert torch.equal(held.stored_features(), expected.stored_features()), "the files are those of records in memory"


def test_without_room_the_features_of_records_on_disk_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    disk = on_disk(tmp_path, records())
    with pytest.raises(OSError, match="file"):
        data_set(tmp_path).replace_inputs_by_features(disk, FeatureCache(root=tmp_path / "file" / "cache"))


def test_no_record_raises_and_numbers_that_are_not_finite_become_zero(tmp_path: Path) -> None:
    dataset = data_set(tmp_path, kind=Picky)
    raw = records(3)
    raw.features[0] = 0.0
    raw.features[1] = 7.0
    found = dataset.replace_inputs_by_features(raw, FeatureCache(root=tmp_path / "cache")).features
    assert found[0].tolist() == found[1].tolist() == [0.0] * SIZE
    assert float(found[2].norm()) == pytest.approx(NORM)


def test_features_are_computed_once_and_a_killed_computation_goes_on(tmp_path: Path) -> None:
    dataset, raw, said = data_set(tmp_path), records(), []

    def stop(done: int, total: int) -> None:
        said.append((done, total))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dataset.replace_inputs_by_features(raw, FeatureCache(root=tmp_path / "cache", on_rows=stop))
    whole = dataset.replace_inputs_by_features(
        raw, FeatureCache(root=tmp_path / "cache", on_rows=lambda *rows: said.append(rows))
    )
    assert said == [(0, 7), (3, 7), (3, 7), (6, 7), (7, 7)]
    again = dataset.replace_inputs_by_features(
        raw, FeatureCache(root=tmp_path / "cache", on_rows=lambda *rows: pytest.fail("computed"))
    )
    assert torch.equal(again.features, whole.features)


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    data_set(tmp_path).replace_inputs_by_features(records(), FeatureCache(root=tmp_path / "cache"))
    for path in (tmp_path / "cache", *(tmp_path / "cache").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert not [*(tmp_path / "cache").rglob("*.lock"), *(tmp_path / "cache").rglob("*.partial")]


def test_other_records_other_scaling_and_another_extractor_get_their_own(tmp_path: Path) -> None:
    cache = FeatureCache(root=tmp_path / "cache")
    dataset, raw = data_set(tmp_path), records()
    first = dataset.replace_inputs_by_features(raw, cache).features
    changed = replace(raw, features=raw.features.clone())
    changed.features[6, 0, 0] += 0.25
    second = dataset.replace_inputs_by_features(changed, cache).features
    assert torch.equal(second[:6], first[:6])
    assert not torch.equal(second[6], first[6])
    other = data_set(tmp_path, norm=NORM / 2)
    assert torch.allclose(other.replace_inputs_by_features(raw, cache).features, first / 2)


def shards(tmp_path: Path) -> list[Path]:
    return [path for path in sorted((tmp_path / "cache").rglob("*.safetensors")) if path.stem != "probes"]


def test_damaged_features_and_those_of_other_records_are_refused(tmp_path: Path) -> None:
    cache, dataset = FeatureCache(root=tmp_path / "cache"), data_set(tmp_path)
    dataset.replace_inputs_by_features(records(), cache)
    cache.check_stored_features(dataset, checked_probe_features(dataset))
    one, other, _ = shards(tmp_path)
    whole = one.read_bytes()
    for content in (other.read_bytes(), whole[:-1], whole[:-4] + b"abcd", b""):
        one.write_bytes(content)
        with pytest.raises(BadInput, match="damaged, or from other data"):
            cache.check_stored_features(dataset, checked_probe_features(dataset))
    one.write_bytes(whole)
    cache.check_stored_features(dataset, checked_probe_features(dataset))


def test_features_by_code_that_has_changed_since_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, dataset = FeatureCache(root=tmp_path / "cache"), data_set(tmp_path)
    dataset.replace_inputs_by_features(records(), cache)
    monkeypatch.setattr(Projection, "forward", lambda self, inputs: inputs.flatten(1)[:, :SIZE])
    with pytest.raises(BadInput, match="its code has changed since"):
        cache.check_stored_features(dataset, checked_probe_features(dataset))


def test_a_full_disk_costs_time_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    dataset = data_set(tmp_path)
    expected = dataset.replace_inputs_by_features(records(), FeatureCache(root=tmp_path / "cache")).features
    monkeypatch.setattr(os, "open", full)
    monkeypatch.setattr(caches.FileLock, "acquire", lambda self, **options: self)
    monkeypatch.setattr(caches.FileLock, "__enter__", lambda self: self)
    found = dataset.replace_inputs_by_features(records(), FeatureCache(root=tmp_path / "full")).features
    assert torch.equal(found, expected)


def test_a_folder_that_cannot_be_made_costs_time_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    dataset = data_set(tmp_path)
    expected = dataset.replace_inputs_by_features(records(), FeatureCache(root=tmp_path / "cache")).features
    found = dataset.replace_inputs_by_features(records(), FeatureCache(root=tmp_path / "file" / "cache")).features
    assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_an_extractor_that_does_not_treat_a_record_alone_is_refused(kind: type[Projection], tmp_path: Path) -> None:
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="Expected"):
        checked_probe_features(data_set(tmp_path, kind=kind))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_good_extractor_passes_and_says_what_it_computes(tmp_path: Path) -> None:
    dataset = data_set(tmp_path)
    features = checked_probe_features(dataset)
    assert torch.equal(features, dataset.extractor_module()(random_probe_inputs(dataset.input_form)))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sha256": "0" * 64}, "to have sha256=0000"),
        ({"weights": "/nowhere/weights.pt"}, "got None"),
        ({"weights": "weights.pt"}, "to be an absolute path"),
        ({"size": 0}, "features.size=0 >= 1"),
        ({"norm": 0.0}, "features.norm=0.0 > 0"),
        ({"trained_on": " "}, "to name the public training data"),
        ({"source": {"file": "x"}}, "to have _target_"),
        ({"source": {"_target_": f"{extractors.__name__}.Missing"}}, "to make a module"),
        ({"source": {"_target_": "builtins.dict"}}, "to make a torch.nn.Module"),
    ],
)
def test_a_wrong_declaration_is_refused_in_a_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        data_set(tmp_path, **changes).extractor_module()


def test_a_folders_checksum_is_that_of_the_command_that_the_docstring_names(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, content in (("b.bin", b"two"), ("sub/a.json", b"one")):
        (tmp_path / name).write_bytes(content)
    lines = f"{sha256(b'two').hexdigest()}  b.bin\n{sha256(b'one').hexdigest()}  sub/a.json\n"
    assert sha256_of_file_or_folder(tmp_path) == sha256(lines.encode()).hexdigest()
    assert sha256_of_file_or_folder(tmp_path / "missing") is None
