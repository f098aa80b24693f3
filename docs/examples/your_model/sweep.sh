#!/bin/sh
# Run in this folder. The model is my_model.Net, the records are visits.csv (invented); three ranks of adapters are tried.
dpsweep sweep dataset=table dataset.name=visits dataset.file=visits.csv dataset.records=300 \
    'dataset.shape=[2]' dataset.classes=2 dataset.label=ill 'dataset.labels=["no","yes"]' \
    'dataset.bounds={age: [18, 90], weight: [40, 150]}' \
    model._target_=my_model.Net +model.width=24 \
    adapter=lora 'adapter.targets=[first, hidden]' adapter.rank=1,2,4 adapter.alpha=4 \
    trainer=dpsgd trainer.lr=1 trainer.clip_norm=1 steps=30 sampler.batch_size=60 \
    privacy.epsilon=8 privacy.delta=1e-4 budget.epsilon=16 budget.delta=1e-3
