"""Classmates as running things, under the names of the documents; the modules are in `verl.workers.classmates`.

>>> group = create_classmate_workers(config, reward_config)           # in the trainer
>>> client = ClassmateClient(reward_config, max_model_len=2048)       # in any worker
>>> replies = await client.sample(0, prompt_ids, seeds=[11, 12], validate=False)
"""

from verl.workers.classmates.client import ClassmateClient
from verl.workers.classmates.engines import ClassmateWorker
from verl.workers.classmates.group import ClassmateGroup, create_classmate_workers

ClassmateCoTWorker = ClassmateWorker
"""The name that the original documents use."""

__all__ = [
    "ClassmateClient",
    "ClassmateCoTWorker",
    "ClassmateGroup",
    "ClassmateWorker",
    "create_classmate_workers",
]
