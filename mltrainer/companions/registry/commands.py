"""`mltrainer registry`: models with versions, stages and aliases in a folder or an object store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from mltrainer.cli.common import AsJson, Folder, group, open_project, path_name
from mltrainer.cli.output import emit, say, warn
from mltrainer.companions.registry.changes import Added, Entry, Model, Moved
from mltrainer.companions.registry.checking import checked, gates_within_limits
from mltrainer.companions.registry.entries import added, files_of, model_files, note_registered, registered
from mltrainer.companions.registry.log import AGAIN, VARIABLE, Registry, opened, require_free, require_no_alias, stage_before
from mltrainer.companions.registry.policy import Policy
from mltrainer.errors import GateError, InputError
from mltrainer.gates.gate import why_closed
from mltrainer.leftovers import new_folder
from mltrainer.project.stored_files import PHASES_DIR
from mltrainer.reports.runs import metrics_text
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, size
from mltrainer.tasks.stored.location import is_remote
from mltrainer.workspace import Project, locked_project, machine_faults, require_new

app = group()
registry = group(
    "registry",
    help="Models with versions, stages and aliases, shared by projects.",
    epilog="Example: mltrainer registry list --registry ../models",
)
app.add_typer(registry)

Place = Annotated[
    str | None,
    typer.Option("--registry", metavar="FOLDER_OR_URL", envvar=VARIABLE, help="The registry: a folder, s3://, gs:// or az://."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The model's name in the registry.")]
Reference = Annotated[str, typer.Argument(metavar="NAME:VERSION", help="A version, also as NAME@STAGE or NAME@ALIAS.")]
Stage = Annotated[str, typer.Option("--stage", metavar="STAGE", help="A stage of the registry.")]
Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A sentence for the log.")]
PRODUCTION = "production"


@registry.command(epilog="Example: mltrainer registry add digits --registry ../models")
def add(name: Name, place: Place = None, note: Note = None, folder: Folder = None, as_json: AsJson = False) -> int:
    """Add the project's delivered model as a new version, with the records that its gates are computed from.

    A version never changes. The same files are no second version. Gates need not hold: they are checked at promotion. The
    project notes the version in phases/registered.json, so that its run is kept.
    """
    project, there = open_project(folder), opened(place)
    _require_outside(project, str(place))
    with locked_project(project):
        registered(project)  # a damaged note would be written again, without the versions before
        files = files_of(project)
        there.model(name)  # before anything is sent: a name that cannot be one, and a broken log, are refused
        there.send(project.root, files)
        digests = {path: row.sha256 for path, row in files.items()}
        model, entry = there.change(
            name, lambda now: None if now.twin(digests) else added(now, project, files, note), project.root
        )
        version = model.versions[model.twin(digests) or len(model.versions)]
        note_registered(project, str(place), name, version)
        closed = next((gate for gate in gates_within_limits(project) if not gate.holds), None)
    if as_json:
        emit({"model": name, "new": entry is not None, **version.written()})
        return 0
    say(f"{'added' if entry else 'the same files are registered as'} {name}:{version.version}: {_in_words(version)}")
    if closed is not None:
        warn(f"it cannot be promoted: {why_closed(closed)}")
    return 0


def _require_outside(project: Project, place: str) -> None:
    if not is_remote(place) and Path(place).resolve().is_relative_to(project.root / PHASES_DIR):
        message = f"the registry is in {PHASES_DIR}/, whose files are a version: each would hold all before it"
        raise InputError(message, where="--registry", hint="name a folder elsewhere, such as ../models")


def _existing(place: str | None) -> Registry:
    """Return a registry that is there: in a mistyped folder nothing could be broken."""
    there = opened(place)
    if place is not None and not is_remote(place) and not Path(place).is_dir():
        raise InputError("no such folder", where=f"--registry {place}", hint="name a registry's folder: registry add makes one")
    return there


def _in_words(version: Added) -> str:
    sizes = sum(row.size for row in version.files.values())
    return f"run {version.run} of {version.project}, {counted(len(version.files), 'file')}, {size(sizes)}"


@registry.command(name="list", epilog="Example: mltrainer registry list --registry ../models")
def list_(place: Place = None, as_json: AsJson = False) -> int:
    """List the models, with the version that each stage and alias names; exit 4 where a log is broken."""
    there = _existing(place)
    models, broken = there.models()
    if as_json:
        emit({"models": [_summary(model) for model in models], "broken": broken})
        return 4 if broken else 0
    rows = [[one.name, str(len(one.versions)), _named(one.stages), _named(one.aliases)] for one in models]
    say(table(rows, ["model", "versions", "stages", "aliases"]) if rows else f"no models in {there.address}")
    for line in broken:
        say(f"BROKEN {line}")
    return 4 if broken else 0


def _summary(model: Model) -> dict[str, Any]:
    return {"model": model.name, "versions": len(model.versions), "stages": model.stages, "aliases": model.aliases}


def _named(pointers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(pointers.items())) or "-"


@registry.command(epilog="Example: mltrainer registry show digits --registry ../models")
def show(
    reference: Annotated[str, typer.Argument(metavar="NAME[:VERSION]", help="A model, or a version, also as NAME@STAGE.")],
    place: Place = None,
    as_json: AsJson = False,
) -> int:
    """Show a model's versions and its log, or where one version comes from."""
    there = opened(place)
    if any(sign in reference for sign in ":@"):
        model, version = there.version(reference)
        shown = {"model": model.name, **version.written(), **model.named(version.version)}
        emit(shown) if as_json else say(_version(model, version))
        return 0
    model = there.known(reference)
    entries = [entry.written() for entry in model.entries]
    emit({**_summary(model), "log": entries}) if as_json else say(_model(model))
    return 0


def _model(model: Model) -> str:
    rows = [
        [
            str(nr),
            *(", ".join(names) or "-" for names in model.named(nr).values()),
            one.project,
            one.run,
            metrics_text(one.metrics, (one.metric,)),
        ]
        for nr, one in model.versions.items()
    ]
    versions = table(rows, ["version", "stages", "aliases", "project", "run", "metrics on validation"])
    return f"{versions}\n{table([_line(entry) for entry in model.entries], ['when', 'by', 'change'])}"


def _line(entry: Entry) -> list[str]:
    note = f" ({entry.change.note})" if entry.change.note else ""
    return [entry.when, entry.by, f"{_change(entry.change)}{note}"]


def _change(change: Added | Moved) -> str:
    if isinstance(change, Added):
        return f"add version {change.version}"
    before = f", before {change.before}" if change.before else ""
    return f"{change.kind} {change.name}: {f'version {change.version}' if change.version else 'removed'}{before}"


def _version(model: Model, version: Added) -> str:
    checks = [
        f"{entry.change.name}: {line}"
        for entry in model.entries
        if isinstance(entry.change, Moved) and entry.change.version == version.version
        for line in entry.change.checked
    ]
    rows = {
        **{kind: ", ".join(names) or "-" for kind, names in model.named(version.version).items()},
        "project": version.project,
        "run": version.run,
        "commit": version.commit or "-",
        **version.contract,
        "record": version.record,
        "weights_sha256": version.weights_sha256 or "-",
        "validation": metrics_text(version.metrics, (version.metric, "loss")),
        "test": metrics_text(version.tested, (version.metric, "loss")) or "-",
        "files": _in_words(version).partition(", ")[2],
        "note": version.note or "-",
    }
    shown = "\n".join(f"{name:20} {value}" for name, value in rows.items())
    return f"{model.name}:{version.version}\n{shown}" + "".join(f"\nchecked for {line}" for line in checks)


@registry.command(epilog="Example: mltrainer registry promote digits:3 --stage production --registry ../models")
def promote(
    reference: Reference, stage: Stage = PRODUCTION, place: Place = None, note: Note = None, as_json: AsJson = False
) -> int:
    """Let a stage name a version, after a check of every file and of every gate, from the version's own records.

    Exit 4 if a gate does not hold. The registry's registry.yaml can ask for more, such as a referee's verdict.
    """
    there = opened(place)
    model, version = there.version(reference)
    asked = _stage(there.policy(), stage)
    found = checked(there, version, asked)
    number = version.version

    def decide(now: Model) -> Moved | None:
        require_no_alias(now, stage, there)
        before = now.stages.get(stage)
        if before == number:
            return None
        return Moved(kind="promote", name=stage, version=number, before=before, checked=found, note=note)

    model, entry = there.change(model.name, decide, Path.cwd())
    return _print_name(model, stage, entry, found, as_json)


def _stage(policy: Policy, stage: str) -> Any:
    if stage not in policy.stages:
        raise InputError.unknown("stage", stage, policy.stages, where="--stage")
    return policy.stages[stage]


def _print_name(model: Model, name: str, entry: Entry | None, found: list[str], as_json: bool) -> int:
    number = {**model.stages, **model.aliases}.get(name)
    if as_json:
        emit({"model": model.name, "name": name, "version": number, "changed": entry is not None, "checked": found})
        return 0
    for line in found:
        say(f"checked: {line}")
    before = entry.change.before if entry is not None and isinstance(entry.change, Moved) else None
    change = "" if entry is not None else " already"
    say(f"{model.name}@{name} is{change} {f'version {number}' if number else 'removed'}{f', before {before}' if before else ''}")
    return 0


@registry.command(epilog="Example: mltrainer registry rollback digits --registry ../models")
def rollback(name: Name, stage: Stage = PRODUCTION, place: Place = None, note: Note = None, as_json: AsJson = False) -> int:
    """Let a stage name the version again that it named before, and record that.

    Its files are read and compared; its gates held when it was promoted, and are not checked again.
    """
    there = opened(place)
    _stage(there.policy(), stage)
    model = there.known(name)
    target = model.versions[stage_before(model, stage, there)]
    if damaged := there.damaged(target):
        message = f"{damaged[0]} of {name}:{target.version} is damaged or missing in the registry"
        raise GateError(message, where=there.address, hint=AGAIN)
    found = [f"all {counted(len(target.files), 'file')} of version {target.version} are as they were added"]

    def decide(now: Model) -> Moved:
        if stage_before(now, stage, there) != target.version:
            raise GateError(f"{stage} was changed meanwhile", hint=there.command("show", name))
        return Moved(kind="rollback", name=stage, version=target.version, before=now.stages[stage], checked=found, note=note)

    model, entry = there.change(name, decide, Path.cwd())
    return _print_name(model, stage, entry, found, as_json)


@registry.command(epilog="Example: mltrainer registry alias digits:3 champion --registry ../models")
def alias(
    reference: Reference,
    name: Annotated[str, typer.Argument(metavar="ALIAS", help="The alias, such as champion.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the alias away from this version.")] = False,
    place: Place = None,
    note: Note = None,
    as_json: AsJson = False,
) -> int:
    """Let an alias name a version; nothing is checked for it."""
    there = opened(place)
    model, version = there.version(reference)
    wanted = None if remove else version.version

    def decide(now: Model) -> Moved | None:
        if not remove:
            require_free(now, name, there)
        before = now.aliases.get(name)
        if remove and before != version.version:
            hint = there.command("show", model.name)
            raise InputError(f"{name} does not name {model.name}:{version.version}", hint=hint)
        return None if before == wanted else Moved(kind="alias", name=name, version=wanted, before=before, checked=[], note=note)

    model, entry = there.change(model.name, decide, Path.cwd())
    return _print_name(model, name, entry, [], as_json)


@registry.command(epilog="Example: mltrainer registry pull digits@production --registry ../models --to digits-model")
def pull(
    reference: Reference,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", parser=path_name, help="The folder to write, which must be new.")],
    place: Place = None,
    records: Annotated[bool, typer.Option("--records", help="Write the project's records and gates, too.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write a version's model into a folder, whole or not at all; each file is compared with its digest first.

    With --records the folder is as a clone of the project, on which `mltrainer gate check` and `mltrainer lineage` work.
    """
    there = opened(place)
    model, version = there.version(reference)
    files = version.files if records else model_files(version)
    target = to.absolute()
    require_new(target, str(to), "name a folder that does not exist")
    with machine_faults(str(to)):
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(target.parent) as arriving:
            there.fetch(files, arriving)
            arriving.rename(target)
    if as_json:
        emit({"model": model.name, "version": version.version, "to": str(to), "files": sorted(files)})
        return 0
    sizes = sum(row.size for row in files.values())
    say(f"wrote {model.name}:{version.version} to {to}: {counted(len(files), 'file')}, {size(sizes)}")
    return 0


@registry.command(epilog="Example: mltrainer registry verify --registry ../models")
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Models (default: all).")] = None,
    place: Place = None,
    as_json: AsJson = False,
) -> int:
    """Read every log and every file again, and compare their digests; exit 4 if one is damaged or missing."""
    there = _existing(place)
    models, broken = there.models(names or ())
    damaged = {f"{model.name}:{one.version}": there.damaged(one) for model in models for one in model.versions.values()}
    faults = [f"{version}: {path}" for version, paths in damaged.items() for path in paths]
    if as_json:
        emit({"intact": not (faults or broken), "damaged": damaged, "broken": broken})
        return 4 if faults or broken else 0
    for line in (*(f"BROKEN {line}" for line in broken), *(f"DAMAGED {line}" for line in faults)):
        say(line)
    say(f"{counted(len(damaged), 'version')}, {counted(len(faults), 'damaged file')}, {counted(len(broken), 'broken log')}")
    return 4 if faults or broken else 0
