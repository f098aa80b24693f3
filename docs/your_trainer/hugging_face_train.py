"""A Hugging Face Trainer whose optimizer is Opacus': the trainer counts steps, the accountant counts them too."""

import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

import dpsweep


class Classifier(nn.Module):
    """One hidden layer; a trainer reads the loss and the logits of the dictionary that it returns."""

    def __init__(self, size: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(size, hidden), nn.Tanh(), nn.Linear(hidden, classes))

    def forward(self, inputs, labels, num_items_in_batch=None):
        """The mean loss of the batch, and the logits; the trainer's count of a batch is private, and not used."""
        logits = self.layers(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Batches(torch.utils.data.Dataset):
    """The records at a list of places: an empty list is an empty batch, which is a step like any other."""

    def __init__(self, features, labels):
        self.features, self.labels = features, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, places):
        return {"inputs": self.features[places], "labels": self.labels[places]}


class PoissonTrainer(Trainer):
    """A trainer on Poisson-sampled batches, drawn as Opacus draws them."""

    def get_train_dataloader(self):
        """Every record joins each of the steps independently."""
        steps = UniformWithReplacementSampler(
            num_samples=len(self.train_dataset), sample_rate=a.sample_rate, steps=a.steps
        )
        return DataLoader(self.train_dataset, sampler=steps, batch_size=None)


class Forget(TrainerCallback):
    """The sums of a step are forgotten after it."""

    def on_step_end(self, args, state, control, **kwargs):
        """Opacus adds up gradients until its optimizer's own zero_grad."""
        optimizer.zero_grad()


with dpsweep.attempt() as a:
    data = Batches(torch.from_numpy(a.train.features), torch.from_numpy(a.train.labels))
    hidden = int(a.hyperparameters.get("hidden", 32))
    model = GradSampleModule(Classifier(data.features[0].numel(), hidden, a.classes))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=a.hyperparameters["lr"]),
        noise_multiplier=a.noise_multiplier,
        max_grad_norm=a.clip_norm,
        expected_batch_size=a.batch_size,
    )
    accountant = RDPAccountant()
    optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=a.sample_rate))
    settings = TrainingArguments(
        output_dir="output",
        max_steps=a.steps,
        max_grad_norm=0.0,  # Opacus clips
        lr_scheduler_type="constant",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        use_cpu=a.given.device == "cpu",
    )
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    trainer = PoissonTrainer(
        model=model, args=settings, train_dataset=data, optimizers=(optimizer, schedule), callbacks=[Forget()]
    )
    trainer.train()
    model.eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(a.score_features), torch.zeros(len(a.score_features), dtype=torch.int64))
    predictions = logits["logits"].argmax(dim=1).numpy()
    a.report(event=dpsweep.TrainerState(trainer=trainer, accountant=accountant), predictions=predictions)
