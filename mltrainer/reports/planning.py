"""`reproducibility_manifest.md`: what a training will be a function of, and the proof that it repeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mltrainer.figures import content
from mltrainer.reports import markdown as md
from mltrainer.reports import sections
from mltrainer.reports.values import as_float, at, counted, duration, given, megabytes, microseconds, number, share, short, size
from mltrainer.reproducibility.causes import sentence as cause_sentence

SEVERITIES = {"error": "❌ error", "warning": "⚠️ warning", "info": "note"}


def render(record: sections.Record, waivers: sections.Waivers, gate: sections.GateView) -> dict[str, str]:
    """Return the report of planning."""
    evidence = record["evidence"]
    drawn = content.schedule(evidence.get("schedule") or [], at(evidence, "config.schedule.name"))
    page = sections.Page(
        title="Reproducibility manifest",
        verdict=_verdict(evidence),
        done=[
            _estimate(evidence.get("estimate") or {}),
            *_precision(evidence.get("precision")),
            *_config(evidence),
            *([drawn.markdown] if drawn else []),
        ],
        result=[
            *_probe(evidence),
            *_options(evidence.get("options") or [], at(evidence, "config.device")),
            *_loader(evidence.get("loader")),
            *_switches(evidence),
            *_data(evidence.get("data") or {}),
            *_environment(evidence.get("environment") or {}),
            *_libraries(evidence.get("libraries") or {}),
        ],
        findings=_findings(evidence),
        reproduce=_digests(evidence),
        commands=["mltrainer phase run planning"],
        after=[("Train the baseline:", "mltrainer phase run baseline")],
    )
    report = {"reproducibility_manifest.md": sections.assemble(page, record, waivers, gate)}
    return report | ({drawn.file: drawn.content} if drawn else {})


def _verdict(evidence: dict[str, Any]) -> str:
    probe, estimate = evidence.get("probe") or {}, evidence.get("estimate") or {}
    if evidence.get("stopped"):
        return f"Nothing was trained: {md.text(evidence['stopped'])}."
    same = "agree bit for bit" if probe.get("identical") is True else "**differ**"
    time = f"about {number(estimate.get('minutes'), 3)} of {given(estimate.get('budget_minutes'))} minutes"
    samples = number(at(evidence, "data.samples"))
    steps = f"{number(probe.get('steps'))} steps"
    return f"Two fresh processes trained {steps} each and {same}; the run on {samples} samples will take {time}."


def _estimate(estimate: dict[str, Any]) -> str:
    rows = [
        ("steps", number(estimate.get("steps"))),
        ("step time, measured", microseconds(estimate.get("step_time_us"))),
        ("time, estimated", f"{number(estimate.get('minutes'), 3)} minutes, budget {given(estimate.get('budget_minutes'))}"),
        ("memory, measured", f"{megabytes(estimate.get('peak_mb'))} of {megabytes(estimate.get('available_mb'))}"),
        ("one checkpoint, measured", megabytes(estimate.get("checkpoint_mb"))),
        ("free on the disk", megabytes(estimate.get("disk_free_mb"))),
    ]
    return md.facts(rows)


def _precision(found: Any) -> list[str]:
    """Return what `precision: auto` chose, and why."""
    if not isinstance(found, dict) or found.get("asked") == found.get("chosen"):
        return []
    return [f"Precision {md.code(found.get('asked'))} is {md.code(found.get('chosen'))} here: {md.text(found.get('reason'))}."]


def _loader(found: Any) -> list[str]:
    """Return how many processes load the samples, and how that was found."""
    if not isinstance(found, dict):
        return []
    if found.get("in_memory"):
        return ["The samples are in memory, so no processes load them."]
    heads = ("processes", "samples/s", "steps would wait for data")
    rows = [
        (
            number(row.get("workers")),
            number(row.get("samples_per_s")),
            md.text(row["error"]) if row.get("error") else share(row.get("wait")),
        )
        for row in found.get("rows") or []
    ]
    line = (
        f"The steps take {number(found.get('needed_per_s'))} samples/s, and reading all samples of the run one after the other "
        f"takes {duration(found.get('reading_s'))}. As measured here, {_loaders(found.get('workers'))}."
    )
    return ["### Loading", line, md.table(heads, rows, "rrl")]


def _loaders(workers: Any) -> str:
    if not workers:
        return "no other process will load them"
    return "1 process will load them" if workers == 1 else f"{number(workers)} processes will load them"


def _options(rows: list[dict[str, Any]], device: Any) -> list[str]:
    """Return what each option brings, side by side with the same training without it."""
    if not rows:
        return []
    place = "the device" if device == "cuda" else "the whole process, PyTorch itself included"
    heads = ("option", "step", "without it", "times", "peak memory", "without it", "times")
    cells = [
        (
            f"{md.code(row['key'])}: {md.setting(row['value'])} in place of {md.setting(row['plain'])}",
            *_beside(row, "step_us", microseconds),
            *_beside(row, "peak_mb", megabytes),
        )
        for row in rows
    ]
    note = f"The shortest of the probe's steps, without its wait for data; the peak memory of {place}."
    return ["### What each option brings, measured here", md.table(heads, cells, "lrrrrrr"), note]


def _beside(row: dict[str, Any], key: str, shown: Callable[[Any], str]) -> tuple[str, str, str]:
    own, without = (as_float(at(row, f"{side}.{key}")) for side in ("with", "without"))
    return shown(own), shown(without), number(own / without if without else None, 3)


def _config(evidence: dict[str, Any]) -> list[str]:
    config, edited = evidence.get("config") or {}, evidence.get("edited") or {}
    changed = ", ".join(f"{md.code(key)} = {md.setting(value)}" for key, value in sorted(edited.items()))
    line = (
        f"Changed by a person: {changed}."
        if edited
        else "The config is the template's and the project's, with no change by a person."
    )
    return [line, md.details("The whole training config", sections.config_tables(config, edited))]


def _probe(evidence: dict[str, Any]) -> list[str]:
    probe = evidence.get("probe") or {}
    runs = probe.get("runs") or []
    rows = [
        ("initial weights", *(md.code(short(run.get("init_sha256"), 16)) for run in runs)),
        ("weights after the steps", *(md.code(short(run.get("weights_sha256"), 16)) for run in runs)),
        ("chain of fingerprints", *(md.code(short(run.get("chain_head"), 16)) for run in runs)),
        *((f"first draw of {md.text(name)}", *(md.code(at(run, f"draws.{name}")) for run in runs)) for name in _drawn(runs)),
        ("step time", *(microseconds(run.get("step_time_us")) for run in runs)),
        ("wall time", *(duration(run.get("wall_s")) for run in runs)),
    ]
    heads = ("probe", *(f"process {nr}" for nr in range(1, len(runs) + 1)))
    return ["### The probe", md.table(heads, rows), *_difference(probe.get("first_difference")), *_cause(probe.get("cause"))]


def _drawn(runs: list[dict[str, Any]]) -> list[str]:
    return sorted({name for run in runs for name in run.get("draws") or {}})


def _difference(found: Any) -> list[str]:
    if not isinstance(found, dict):
        return []
    sides = f"expected {md.code(found.get('expected'))}, found {md.code(found.get('found'))}"
    return [f"**First difference**: step {number(found.get('step'))}, {md.text(found.get('what'))}: {sides}."]


def _cause(found: Any) -> list[str]:
    return [f"**Cause**: {md.text(cause_sentence(found))}."] if isinstance(found, dict) else []


def _switches(evidence: dict[str, Any]) -> list[str]:
    probed: list[dict[str, Any]] = [run["determinism"] for run in at(evidence, "probe.runs") or [] if run.get("determinism")]
    switches: dict[str, Any] = evidence.get("determinism") or (probed[0] if probed else {})
    seeds = evidence.get("seeds") or {}
    seeded = [(md.text(key), "not applicable" if value is None else md.plain_value(value)) for key, value in seeds.items()]
    return [
        "### Seeds and switches, read back in the tool's process",
        md.table(("seeded", "value"), seeded) if seeded else "",
        md.table(("switch", "value"), [(md.code(key), md.plain_value(value)) for key, value in sorted(switches.items())])
        if switches
        else "",
    ]


def _data(data: dict[str, Any]) -> list[str]:
    splits = [
        (md.text(name), number(row.get("samples")), md.code(short(row.get("sha256"), 16)))
        for name, row in (data.get("splits") or {}).items()
    ]
    shape = md.plain_value(data.get("shape") or [])
    head = (
        f"{number(data.get('samples'))} samples of shape {shape} from {md.code(data.get('source'))} "
        f"({md.text(data.get('kind', 'unknown'))}), digest {md.code(short(data.get('sha256'), 16))}; "
        f"{number(data.get('duplicates_across_splits'))} duplicates across splits."
    )
    return [
        "### Data",
        head,
        md.table(("split", "samples", "digest"), splits, "lrl"),
        *_target(data),
        *_columns(data),
        *_data_files(data),
    ]


def _target(data: dict[str, Any]) -> list[str]:
    parts = []
    if data.get("target"):
        target = data["target"]
        numbers = ", ".join(f"{name} {number(target.get(name))}" for name in ("min", "max", "mean", "std"))
        parts.append(f"Target {md.code(target.get('name'))}: {numbers}.")
    if data.get("class_counts"):
        counts = data["class_counts"]
        rows = [
            (md.text(name), *(number(at(per_class, str(name), 0)) for per_class in counts.values()))
            for name in data.get("classes") or []
        ]
        heads = ("class", *(md.text(split) for split in counts))
        parts.append(md.details(f"Classes ({number(len(rows))})", md.table(heads, rows, "l" + "r" * len(counts))))
    return parts


def _columns(data: dict[str, Any]) -> list[str]:
    rows = [
        (md.code(c["name"]), md.text(c.get("kind")), number(c.get("missing")), number(c.get("distinct")))
        for c in data.get("columns") or []
    ]
    return (
        [md.details(f"Columns ({number(len(rows))})", md.table(("column", "kind", "missing", "distinct"), rows, "llrr"))]
        if rows
        else []
    )


def _data_files(data: dict[str, Any]) -> list[str]:
    files = data.get("files") or []
    return [md.details(f"Data files ({number(len(files))})", sections.file_table(files))] if files else []


def _environment(found: dict[str, Any]) -> list[str]:
    python, platform, cpu = (found.get(key) or {} for key in ("python", "platform", "cpu"))
    gpus = ", ".join(f"{md.text(g.get('name'))} (driver {md.text(g.get('driver'))})" for g in found.get("gpu") or []) or "none"
    flags = md.text(" ".join(cpu.get("flags") or [])) or "not known"
    rows = [
        (
            "Python",
            " ".join(
                md.text(python[key]) for key in ("implementation", "version", "build", "executable_kind") if python.get(key)
            ),
        ),
        ("platform", " ".join(md.text(platform[key]) for key in ("system", "release", "machine", "libc") if platform.get(key))),
        (
            "CPU",
            f"{md.text(cpu.get('model'))}, {counted(cpu.get('cores'), 'core')}, {counted(found.get('threads'), 'thread')} used",
        ),
        ("instruction sets", f"{flags} (digest {md.code(short(cpu.get('flags_sha256')))})"),
        ("memory", megabytes(found.get("memory_mb"))),
        ("GPU", gpus),
        ("variables", md.plain_value(found.get("variables") or {})),
        ("digest", md.code(short(found.get("sha256"), 16))),
    ]
    return ["### Environment", md.facts(rows), *_packages(found.get("distributions") or [])]


def _libraries(found: dict[str, str]) -> list[str]:
    rows = [(md.text(name), md.text(version)) for name, version in found.items()]
    return ["The native libraries that compute:", md.facts(rows)] if rows else []


def _packages(rows: list[dict[str, Any]]) -> list[str]:
    pins = md.block([f"{row['name']}=={row['version']}" for row in rows])
    return [md.details(f"Packages ({number(len(rows))}), as pip reads them", pins), *_editable(rows)] if rows else []


def _editable(rows: list[dict[str, Any]]) -> list[str]:
    names = ", ".join(md.code(row["name"]) for row in rows if row.get("editable"))
    return [f"Installed in editable form, so that the version alone does not name the code: {names}."] if names else []


def _findings(evidence: dict[str, Any]) -> list[str]:
    found = [
        f"{SEVERITIES.get(str(f.get('severity')), '')}: {md.text(f.get('what'))}" for f in at(evidence, "data.findings") or []
    ]
    secrets = evidence.get("secrets") or {}
    found += [
        f"❌ secret ({md.text(s.get('kind'))}) in {md.code(s.get('path'))}, line {number(s.get('line'))}"
        for s in secrets.get("found") or []
    ]
    count = number(len(secrets.get("found") or []))
    scanned = f"{number(len(secrets.get('scanned') or []))} files were scanned for secrets, {count} found."
    estimate = evidence.get("estimate") or {}
    need, free = estimate.get("peak_mb"), estimate.get("available_mb")
    memory = (
        f"Memory: {share(need / free)} of what is available."
        if isinstance(need, int | float) and isinstance(free, int | float) and free
        else ""
    )
    runtimes = str((evidence.get("libraries") or {}).get("OpenMP runtimes loaded", ""))
    if "," in runtimes:
        found.append(f"⚠️ warning: more than one OpenMP runtime is loaded ({md.text(runtimes)}): threads may differ, or hang")
    return [md.bullets([*found, scanned, *([memory] if memory else [])])]


def _digests(evidence: dict[str, Any]) -> list[tuple[str, str]]:
    config = evidence.get("config_sha256")
    return [
        ("seed", given(at(evidence, "config.seed"))),
        *([("config digest", md.code(short(config, 16)))] if config else []),
        ("data digest", f"{md.code(short(at(evidence, 'data.sha256'), 16))}, {size(_bytes(evidence))} in files"),
        ("environment digest", md.code(short(at(evidence, "environment.sha256"), 16))),
        ("numerics class", md.code(evidence.get("numerics_class"))),
    ]


def _bytes(evidence: dict[str, Any]) -> int:
    return sum(row.get("size") or 0 for row in at(evidence, "data.files") or [])
