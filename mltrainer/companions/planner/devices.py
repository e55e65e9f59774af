"""Devices by name, from the handbook's page or the project's own over it."""

from __future__ import annotations

from pathlib import Path

from mltrainer.configs.pages import DEVICES, Device, devices_page
from mltrainer.errors import InputError

GIB = 2**30


def device(name: str, project: Path | None) -> Device:
    """Return a device of the page.

    Raises:
        InputError: The page has no such device (the message names the nearest), or is damaged.
    """
    devices = {one.name: one for one in devices_page(project).devices}
    if name in devices:
        return devices[name]
    hint = f"name one of the page, or add it to your own: mltrainer guide {DEVICES.removesuffix('.md')} --copy"
    raise InputError.unknown("device", name, devices, where="--device", hint=hint)


def memory_bytes(entry: Device) -> float | None:
    """Return a device's memory; None if its figure is blank."""
    return None if entry.memory_gib.value is None else entry.memory_gib.value * GIB


def blanks(entry: Device) -> list[str]:
    """Return the figures of a device that are blank on the page."""
    plain = {"memory": entry.memory_gib, "bandwidth": entry.bandwidth_gb_s}
    rates = {f"peak rate of {name}": figure for name, figure in entry.tflops.items()}
    return [name for name, figure in {**plain, **rates}.items() if figure.value is None]
