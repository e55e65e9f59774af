"""Real training steps, as many as asked for, whatever the config's number of epochs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

from mltrainer.tasks.batch_transform import batch_transform
from mltrainer.trainers.native.data.addresses import Plan, Step, altered, training_steps
from mltrainer.trainers.native.session import Session


def first_steps(session: Session, count: int, plan: Plan | None = None) -> Iterator[Step]:
    """Yield the first `count` steps of a plan, the config's own by default, with as many epochs as they take."""
    plan = plan or session.plan
    enough = dataclasses.replace(plan, epochs=math.ceil(count / plan.steps_per_epoch))
    steps = training_steps(session.task.split("train"), enough, session.config, 0)
    return itertools.islice(altered(steps, enough, 0, batch_transform(session.task.task, session.config)), count)
