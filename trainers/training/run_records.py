"""The records of a run: which of them train it, which score it, which it leaves out, and how many of each are declared.

The cuts come in this order, and each is a function of the record (of its unit, or of its position) and of a key of its
own (`trainers/data/split.py`):

* the sealed parts of an account, on which nothing trains or selects;
* the part for a search or for a final run;
* the records that the score holds out.

Who plans, trains, scores or reports asks here, and need not know which cuts there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.errors import BadInput, ContractBroken
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.sealed_parts import SealedParts
from dpsweep.accounting.records.card import SEALED
from dpsweep.accounting.records.plan import Use
from dpsweep.accounting.records.sweep_folder import FEATURES, RECORD_HASHES, shared_folder
from dpsweep.trainers.data.doors import open_records, refuse_records
from dpsweep.trainers.data.interface import nominal_units
from dpsweep.trainers.data.places import most_joining, most_units
from dpsweep.trainers.data.split import (
    DataPart,
    nominal_units_outside_sealed_parts,
    number_of_sealed_part,
    units_of_each_cyclic_part,
)
from dpsweep.trainers.features.extracted import Extracted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dpsweep.accounting.ledger.permit import PrivateStore, Session
    from dpsweep.trainers.data.interface import DataSet
    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.data.split import Split
    from dpsweep.trainers.declarations.scores import Score
    from dpsweep.trainers.features.cache import FeatureCache


PART = "part"
CUTS = (PART, SEALED)
"""The keys of the cuts that a configuration names beside its score."""


@dataclass(frozen=True, kw_only=True)
class RecordStore:
    """Where records and what was computed of them lie, and who computes what is missing.

    `folder` has the data set's files. `private` has the hashes of records on disk, which are passed again without it,
    and their frozen features; `device` computes features that are missing, and without both there are none. `on_rows`
    receives the number of records done and their total while features are computed; it may raise to end that. `coins`
    are the random bits, in hexadecimal, of a secret part.
    """

    folder: Path | None
    private: PrivateStore | None = None
    device: str | None = None
    coins: str = field(default="", repr=False)
    on_rows: Callable[[int, int], None] | None = field(default=None, compare=False)

    @property
    def record_hashes(self) -> Path | None:
        """The folder of the hashes of records on disk."""
        return None if self.private is None else shared_folder(self.private, RECORD_HASHES)

    @property
    def features(self) -> FeatureCache | None:
        """The frozen features of records."""
        from dpsweep.trainers.features.cache import FeatureCache

        if self.private is None or self.device is None:
            return None
        shown = {} if self.on_rows is None else {"on_rows": self.on_rows}
        return FeatureCache(root=shared_folder(self.private, FEATURES), device=self.device, **shown)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRecords:
    """The declaration of the records that a run reads: of a data set, those that its cuts leave it.

    `part` is the part for a search or for a final run, None for all records. `sealed` are the sealed parts that the run
    leaves out, None if it leaves none out. Sizes are public constants: none depends on a record.
    """

    dataset: DataSet
    score: Score
    adjacency: Adjacency
    part: DataPart | None = None
    sealed: SealedParts | None = None

    @classmethod
    def with_cuts_of_config(
        cls, config: Mapping[str, Any], *, dataset: DataSet, score: Score, adjacency: Adjacency
    ) -> RunRecords:
        """The records of a run with the cuts that its configuration names."""
        part, sealed = config[PART], config[SEALED]
        try:
            named = None if part is None else DataPart(**part)
        except (TypeError, ValueError) as cause:
            raise BadInput(f"Expected {PART}={part!r} to be a share and a use of the records: {cause}") from None
        try:
            parts = None if sealed is None else SealedParts.from_json(sealed)
        except (TypeError, ValueError) as cause:
            raise BadInput(f"Expected {SEALED}={sealed!r} to be a share and a number of parts: {cause}") from None
        return cls(dataset=dataset, score=score, adjacency=adjacency, part=named, sealed=parts)

    @property
    def is_number_of_units_secret(self) -> bool:
        """Whether secret coins decide which units the run reads, so that nobody knows how many they are."""
        return self.part is not None and self.part.secret

    @property
    def nominal_private_units(self) -> int:
        """The nominal number of private units that the run reads, to train or to score."""
        units = nominal_units(self.dataset)
        if self.sealed is not None and not self.sealed.public:
            units = nominal_units_outside_sealed_parts(units, self.sealed, self.adjacency)
        return units if self.part is None else self.part.nominal_units_in_part(units, self.adjacency)

    @cached_property
    def nominal_training_units(self) -> int:
        """The nominal number of training units: the public constant in the sample rate."""
        return self.score.train_records(self.nominal_private_units, self.adjacency)

    @property
    def nominal_scored_units(self) -> int:
        """The declared number of units or public records that a run is scored on."""
        is_free = self.score.event(self.adjacency) is None
        if is_free and self.score.reads == "test":
            public = self.dataset.test_records
            if self.sealed is None or not self.sealed.public:
                return public
            return nominal_units_outside_sealed_parts(public, self.sealed, self.adjacency)
        units = self.nominal_private_units
        return units if is_free else units - self.score.train_records(units, self.adjacency)

    def most_training_units(self, parts: int = 1) -> int:
        """The most training units in each of `parts` parts: its slots, also where secret coins thin its units out.

        Held-out and sealed units need no such limit: each draws its place in a score by itself.
        """
        if self.part is None or not self.part.secret:
            return most_units(-(-self.nominal_training_units // parts))
        share = self.part.share if self.part.use is Use.SEARCH else 1 - self.part.share
        return most_joining(replace(self, part=None).most_training_units(parts), share)

    def require_places(self, store: RecordStore, cyclic_parts: int = 1) -> None:
        """Raises `BadInput` if a part has more units than there are places for; features are not needed.

        A secret part has no coins yet: the whole is looked at, on which its limit depends.
        """
        sealed, part = self.sealed, self.part

        def require_places_of_records(private: Records, test: Records | None) -> None:
            if sealed is not None and not sealed.public:
                private = private.select(number_of_sealed_part(private, sealed, self.adjacency) == 0)
            if part is not None and not part.secret:
                private = part.records_in_part(private, self.adjacency)
            whole = replace(self, part=None) if self.is_number_of_units_secret else self
            train, nominal = self.score.split(private, test, self.adjacency).train, whole.nominal_training_units
            self._require_places(train.number_of_units, nominal)
            for units_of_part in units_of_each_cyclic_part(train, cyclic_parts, self.adjacency):
                self._require_places(len(units_of_part), -(-nominal // cyclic_parts))

        refuse_records(self.dataset, store.folder, store.record_hashes, require_places_of_records)

    def _require_places(self, units: int, nominal: int) -> None:
        if units > most_units(nominal):
            unit, name = self.dataset.unit, self.dataset.name
            key, equal = ("records", "; equal records share a part") if unit == "record" else ("units", "")
            raise BadInput(
                f"Expected dataset.{key} to be about the number of {unit}s of {name}: a part has more than "
                f"{most_units(nominal)}, where {nominal} are declared{equal}. Declare a number that you may publish."
            )

    def open_split(self, session: Session | None, store: RecordStore) -> Split:
        """The records, split as the score requires; kept for the next run with the same records.

        Raises `ContractBroken` without a session, unless records are generated, and if there are more training units
        than were charged.
        """
        split = _open_split_of_records(self, store, None if session is None else _Opened(session))
        if split.train.number_of_units > self.most_training_units():
            raise ContractBroken(f"Expected about as many {self.dataset.unit}s of {self.dataset.name} as were charged.")
        return split

    def open_sealed_part(self, session: Session, number: int, store: RecordStore) -> Records:
        """The records of the sealed part with this number, which counts from 1; raises `BadInput` if there is none."""
        sealed = self.sealed
        if sealed is None or not 1 <= number <= sealed.parts:
            raise BadInput(f"Expected sealed part {number} to be one of those of {self.dataset.name}.")
        private, test = self._open_private_and_test(session, store, number)
        if not sealed.public:
            return private
        assert test is not None
        return test

    def _open_private_and_test(
        self, session: Session | None, store: RecordStore, number: int
    ) -> tuple[Records, Records | None]:
        """The private records and the public test records; of those that have sealed parts, the ones in this part.

        `number` 0 stands for the records in no sealed part. The parts are cut by the records as they were loaded, so
        that they are the same with frozen features and without.
        """
        dataset, sealed = self.dataset, self.sealed
        private, test = open_records(session, dataset, store.folder, store.record_hashes)
        if (private.units is None) != (dataset.unit_column is None):
            raise ContractBroken(f"Expected the records of {dataset.name} to be grouped by {dataset.unit}, as charged.")
        cut = None if sealed is None else test if sealed.public else private
        place = None if sealed is None or cut is None else number_of_sealed_part(cut, sealed, self.adjacency)
        if isinstance(dataset, Extracted):
            if (features := store.features) is None:
                raise ContractBroken(f"Expected frozen features for {dataset.name}, as declared.")
            private, test = (
                dataset.replace_inputs_by_features(private, features),
                None if test is None else dataset.replace_inputs_by_features(test, features),
            )
        if place is None:
            return private, test
        if sealed is not None and sealed.public:
            return private, None if test is None else test.select(place == number)
        return private.select(place == number), test


@dataclass(frozen=True)
class _Opened:
    """A session, equal to any other one: what one has opened is kept for the next one with the same records."""

    session: Session = field(compare=False)


@lru_cache(maxsize=1)
def _open_split_of_records(records: RunRecords, store: RecordStore, opened: _Opened | None) -> Split:
    private, test = records._open_private_and_test(None if opened is None else opened.session, store, 0)
    if records.part is not None:
        private = records.part.records_in_part(private, records.adjacency, bytes.fromhex(store.coins))
    return records.score.split(private, test, records.adjacency)
