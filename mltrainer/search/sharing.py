"""The division of a search's trials among the machines that share its database: a study of Optuna's as a table of claims.

A trial is a function of the study, so that two machines that train the same one write the same row: the claims in the database
save work and decide nothing. A machine claims a trial, writes a beat every few seconds, and reports the trial's row, which the
others take. A search without a database keeps the same table in memory, where every claim is its own.

Optuna's own heartbeat is not used, because three promises are lost with it (Optuna 5.0). A stale trial is set to failed, which
is final, and its retry is another trial with the next number; here it keeps its number and its values. A trial has no owner, so
that a machine that starts again cannot go on with the trials it had claimed. Beats are times, of the server or in SQLite of each
machine, compared with the observer's clock: a clock that is minutes off makes a living trial stale; here beats are counts, and
silence is measured by the observer's own clock. A trial whose process died before its first beat never gets stale.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.configs.loading import differences
from mltrainer.configs.project import bits_config
from mltrainer.errors import DifferenceError, InputError
from mltrainer.records.job import SearchJob
from mltrainer.search import space as spaces
from mltrainer.search.database import Database
from mltrainer.search.journal import in_optuna, points
from mltrainer.search.suggest import new_study, state_of
from mltrainer.search.trial import Ended
from mltrainer.tools.program import Events
from mltrainer.workspace import digest, plain

if TYPE_CHECKING:
    import optuna

CURVE_POINTS = 20
LOOK_S = 1.0
BEAT_S = 10.0
OF_ONE_KIND = "search on machines of one kind, or with numerics: portable; or without storage"
GONE_S = 120.0  # chosen by us: twelve beats; counting a machine as gone too early costs one trial, waiting costs all
_ROW, _CLAIM, _BEAT, _CLOSED = "row", "claim", "beat", "closed"  # attributes of a trial; a claim is a machine and values
_ASKED, _PROJECT, _ENDED = "asked", "project", "ended"  # attributes of a study


class SharedStudy:
    """The claims on the trials of a study; as a context manager it gives back the trials that this machine did not train.

    Args:
        job: The search, with the minutes after which no trial begins.
        database: The database of the claims.
        folder: The search's folder here, a part of this machine's name: the same when the search goes on.
        events: The sender to which takeovers are reported.
        name: The study's name for runs that are no trials of the search; None: the search's own.
        space: The dimensions of those runs, by dotted key; None: the search's own.

    Raises:
        InputError: The database cannot be used.
        MachineError: The database does not answer.
    """

    def __init__(
        self,
        job: SearchJob,
        database: Database,
        folder: Path,
        events: Events,
        name: str | None = None,
        space: Mapping[str, spaces.Dimension] | None = None,
    ) -> None:
        self._job, self._database, self._storage, self._events = job, database, database.storage, events
        self._machine = f"{socket.gethostname()}-{digest(str(folder))[:6]}"
        self._name, self._space, self._metric = name or job.run, space or job.space, job.config.metric
        self._minutes = job.minutes or 0.0
        self._study = database.ask(partial(new_study, self._metric, database.storage, self._name))
        self._id = database.ask(partial(database.storage.get_study_id_from_name, self._name))
        self._mine: set[int] = set()
        self._keys: dict[int, int] = {}  # the database's own numbers of trials
        self._heard: dict[int, tuple[Any, float]] = {}  # of trials of others: their last beat, and when it was new
        self._trials: list[optuna.trial.FrozenTrial] = []
        self._looked, self._beaten, self._beats = -math.inf, -math.inf, 0
        self.look()

    def __enter__(self) -> SharedStudy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # they are taken over in any case, only later
            for number in self._mine:
                self._storage.set_trial_state_values(self._key(number), _states().WAITING)

    def look(self) -> None:
        """Read the other machines' reports every `LOOK_S`, and send a beat for this one's trials every `BEAT_S`."""
        now = time.monotonic()
        if now - self._beaten > BEAT_S:
            self._beaten, self._beats = now, self._beats + 1
            for number in sorted(self._mine):
                # A count and no time, as the clocks of machines differ.
                self._set(number, _BEAT, self._beats)
        if now - self._looked > LOOK_S:
            self._read()

    def _read(self) -> None:
        # By the study and not by `_storage`: Optuna caches a study's ended trials, and reads only the others.
        self._trials = self._database.ask(partial(self._study.get_trials, deepcopy=False))
        self._looked = time.monotonic()

    def row(self, number: int) -> Ended | None:
        """Return a trial's row once a machine has reported it, else None.

        Raises:
            InputError: Another program has ended the trial.
        """
        trial = self._trial(number)
        if trial is None or not trial.state.is_finished():
            return None
        if _ROW not in trial.user_attrs:
            found = f"trial {number} of study {self._name} was ended by another program"
            raise InputError(found, where=self._database.place, hint="delete that study from the database: optuna delete-study")
        return Ended.decoded(trial.user_attrs[_ROW])

    def claim(self, number: int, values: Mapping[str, Any]) -> bool:
        """Return True where this machine is to train a trial; a silent machine's trial is taken over, from the next look on.

        Raises:
            DifferenceError: Another machine has chosen other values for it.
        """
        trial = self._made(number)
        if trial.state.is_finished():
            return False
        if trial.state == _states().WAITING:
            return self._take(number, values)
        self._compare(number, trial, values)
        if _claimed(trial)[0] == self._machine:  # this process, or the one before it
            self._mine.add(number)
            return True
        if self._is_gone(number, trial):
            self._events.send("note", text=f"  {_claimed(trial)[0]} is gone: trial {number} is taken over")
            self._set(number, _CLAIM, [self._machine, _claimed(trial)[1]])  # of several that do, the last has it at the next look
        return False

    def _made(self, number: int) -> optuna.trial.FrozenTrial:
        """Return a trial, made where it is missing; two machines may make one too many, which then waits."""
        from optuna.trial import create_trial

        while len(self._trials) < number:
            waiting = create_trial(state=_states().WAITING)
            self._database.ask(partial(self._storage.create_new_trial, self._id, waiting))
            self._read()
        return self._trials[number - 1]

    def _take(self, number: int, values: Mapping[str, Any]) -> bool:
        key = self._key(number)
        # The state first, which the database lets only one machine set. Killed before its claim, it leaves a silent trial.
        if not self._update(partial(self._storage.set_trial_state_values, key, _states().RUNNING)):
            self._read()
            return False
        self._mine.add(number)
        self._set(number, _CLAIM, [self._machine, json.dumps(values, sort_keys=True)])
        given, kinds = in_optuna(self._space, values)
        for name, value in given.items():
            inner = kinds[name].to_internal_repr(value)
            self._update(partial(self._storage.set_trial_param, key, name, inner, kinds[name]))
        return True

    def _compare(self, number: int, trial: optuna.trial.FrozenTrial, values: Mapping[str, Any]) -> None:
        machine, theirs = _claimed(trial)
        if theirs is not None and theirs != json.dumps(values, sort_keys=True):
            self._differ(number, machine, f"the values {theirs}, and here {json.dumps(values, sort_keys=True)}")

    def _differ(self, number: int, machine: str | None, what: str) -> None:
        raise DifferenceError(
            f"trial {number} has on {machine} {what}: the machines do not compute the same",
            where=self._database.place,
            hint=OF_ONE_KIND,
        )

    def _is_gone(self, number: int, trial: optuna.trial.FrozenTrial) -> bool:
        """Return True where the machine with a trial has sent no beat for `GONE_S`, by this machine's own clock."""
        said, now = (_claimed(trial), trial.user_attrs.get(_BEAT)), time.monotonic()
        before = self._heard.get(number)
        if before is None or before[0] != said:
            self._heard[number] = (said, now)
            return False
        return now - before[1] > GONE_S

    def report(self, number: int, values: Mapping[str, Any], row: Ended) -> Ended:
        """Report a trial's row, and return the row that counts, the first to be reported.

        Raises:
            DifferenceError: Another machine has trained it too, with another result.
        """
        trial, key = self._made(number), self._key(number)
        if trial.state == _states().WAITING:
            self._take(number, values)
        for step, value in _thinned(points(row)):
            self._update(partial(self._storage.set_trial_intermediate_value, key, step, value))
        # The row before the state: a machine that finds the trial ended reads its row, and refuses a trial without one.
        self._set(number, _ROW, row.encoded(self._metric))
        state = state_of(row.state)
        given = [float(row.value)] if row.state == "finished" else None
        self._mine.discard(number)
        if self._update(partial(self._storage.set_trial_state_values, key, state, given)):
            return row
        self._read()
        counted = self.row(number)
        assert counted is not None
        if "failed" not in (counted.state, row.state) and _deciding(counted) != _deciding(row):
            machine, _ = _claimed(self._trials[number - 1])
            self._differ(number, machine, f"given {_deciding(counted)}, and here {_deciding(row)}")
        return counted

    def is_over(self, number: int, is_late: bool) -> bool:
        """Return True where no further trial begins; a machine whose time is over closes the study to those with no more time.

        It claims the first trial that no machine has begun, notes that none begins, and gives it back: of a machine that begins
        it and one that closes the study, one is first.
        """
        trial = self._made(number)
        if trial.state != _states().WAITING or _CLAIM in trial.user_attrs:
            return False
        closed = trial.user_attrs.get(_CLOSED)
        if closed is not None and closed >= self._minutes:
            return True
        key = self._key(number)
        if not is_late or not self._update(partial(self._storage.set_trial_state_values, key, _states().RUNNING)):
            return False
        self._set(number, _CLOSED, self._minutes)
        self._update(partial(self._storage.set_trial_state_values, key, _states().WAITING))
        return True

    def end(self) -> None:
        """Mark the study as ended: every trial has its row."""
        self._database.ask(partial(self._study.set_user_attr, _ENDED, True))

    def introduce(self) -> None:
        """Describe the study in the database; note each other unfinished study of the project, with the differences."""
        job = self._job
        project = str(job.config.id or job.config.name)
        asked = job.model_dump(include={"space", "trials", "strategy", "lag", "pruning"})
        asked |= job.model_dump(include={"objectives", "constraints", "patience"}, exclude_defaults=True)
        mine = json.dumps(plain({**asked, "config": bits_config(job.config), **job.contract}), sort_keys=True)
        self._database.ask(partial(self._study.set_user_attr, _PROJECT, project))
        self._database.ask(partial(self._study.set_user_attr, _ASKED, mine))
        for other in self._database.ask(self._storage.get_all_studies):
            theirs = other.user_attrs
            if theirs.get(_PROJECT) == project and not theirs.get(_ENDED) and other.study_name != self._name:
                what = ", ".join(differing(json.loads(theirs[_ASKED]), json.loads(mine)))
                note = f"study {other.study_name} of this project is in the database already and is another one: {what} differ"
                self._events.send("note", text=note)

    # --- access ---

    def _trial(self, number: int) -> optuna.trial.FrozenTrial | None:
        return self._trials[number - 1] if number <= len(self._trials) else None

    def _key(self, number: int) -> int:
        if number not in self._keys:
            find = partial(self._storage.get_trial_id_from_study_id_trial_number, self._id, number - 1)
            self._keys[number] = self._database.ask(find)
        return self._keys[number]

    def _set(self, number: int, name: str, value: Any) -> None:
        key = self._key(number)
        self._update(partial(self._storage.set_trial_user_attr, key, name, value))

    def _update(self, change: Any) -> Any:
        """Return the result of a change to a trial; False where another machine has ended it."""
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            return self._database.ask(change)
        except UpdateFinishedTrialError:
            return False


def _thinned(curve: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Return a curve's points, thinned to `CURVE_POINTS` where there are more; each is written by itself, which takes a while."""
    step = max(1, math.ceil(len(curve) / CURVE_POINTS))
    return curve[::-step][::-1]  # the last one always


def _claimed(trial: optuna.trial.FrozenTrial) -> tuple[str | None, str | None]:
    """Return the machine with the claim on a trial, and the trial's values as JSON; None for both without a claim."""
    machine, values = trial.user_attrs.get(_CLAIM) or (None, None)
    return machine, values


def _deciding(row: Ended) -> tuple[Any, ...]:
    return row.run, row.state, row.value, row.steps


def differing(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
    """Return the names of the differences between two studies: keys of the config, of the template, and of the contract."""
    found = [key for key in sorted({*theirs, *mine}) if theirs.get(key) != mine.get(key)]
    keys = [row["key"] for row in differences(theirs["config"], mine["config"])] if "config" in found else []
    return [name.removesuffix("_sha256") for name in found if name != "config"] + keys


def _states() -> type[optuna.trial.TrialState]:
    from optuna.trial import TrialState

    return TrialState
