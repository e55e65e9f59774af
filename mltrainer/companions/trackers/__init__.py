"""Runs and verdicts sent to trackers, by a process beside the phase."""

PARTS = {
    "trackers": {
        "beside": "mltrainer.companions.trackers.beside:Beside",
        "rehearsal": "mltrainer.companions.trackers.sanity_check:Rehearsal",
    }
}
