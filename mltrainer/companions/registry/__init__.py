"""Models with versions, stages and aliases, shared by projects; and the lineage of a file.

A registry is a folder or a prefix of an object store. All of it follows from what is only ever added to it:

    objects/ab/ab12...            contents, each under its SHA-256
    models/NAME/000001.json ...   the model's log, a sealed entry for each change, which holds the digest of the entry before
    registry.yaml                 the team's own file: stages, and what each asks for

    project --entries--> Added           `entries.py`: the files of a finished project, by their digests
    Added, Moved --changes--> Model      `changes.py`, pure: versions, stages and aliases, as a model's log leads to them
    Model <--log--> store                `log.py`: an entry is created, never replaced; who comes second reads again
    Added --checking--> sentences        `checking.py`: a version's gates computed again from its own records, and its verdict

What led to a file, `lineage.py` shows by the same records: `origins.py` makes a graph of them, `graph.py` writes it.
"""

from mltrainer.plugins import LOOK, TRAIN, Command

_FOLDER = "mltrainer.companions.registry"
COMMANDS = (
    Command("registry", f"{_FOLDER}.commands", "Models with versions and stages, shared by projects.", TRAIN, "store"),
    Command("lineage", f"{_FOLDER}.lineage", "Data, code, config, runs and gates that led to a model.", LOOK),
)
