#!/bin/sh
# Run in this folder. The texts are notes.csv (invented), one row is one record; two ranks of adapters are tried.
python tiny_gpt2.py
dpsweep sweep dataset=text_sequences dataset.name=notes dataset.file=notes.csv dataset.records=300 \
    dataset.text=note 'dataset.shape=[16]' model.path="$PWD/tiny-gpt2" adapter.rank=2,8 \
    trainer=dpadam trainer.lr=0.01 trainer.clip_norm=0.1 steps=10 sampler.batch_size=60 \
    privacy.epsilon=8 privacy.delta=1e-4 budget.epsilon=16 budget.delta=1e-3
