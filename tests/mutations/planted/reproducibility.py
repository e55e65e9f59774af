"""Faults planted in `mltrainer/reproducibility`."""

from __future__ import annotations

from tests.mutations.fault import Fault

GRADES = "tests/reproducibility/test_grades.py"

FAULTS = (
    Fault(
        "places of a sample are drawn twice, and so fewer than asked",
        "mltrainer/reproducibility/drawn.py",
        "chosen.add(last if place in chosen else place)",
        "chosen.add(place)",
        "tests/gates/test_quantized.py::test_places_are_drawn_without_replacement",
    ),
    Fault(
        "the seed is no part of a draw's address",
        "mltrainer/reproducibility/seeds.py",
        'address = f"{seed}/{purpose}/',
        'address = f"{purpose}/',
        "tests/reproducibility/test_seeds.py",
    ),
    Fault(
        "the number of threads decides nothing",
        "mltrainer/reproducibility/environment.py",
        '        "threads": str(environment.threads),\n        "GPU":',
        '        "GPU":',
        "tests/reproducibility/test_environment.py",
    ),
    Fault(
        "the chain does not cover the entry before",
        "mltrainer/reproducibility/fingerprint.py",
        'f"{value} {entry}".encode()',
        'f"{entry}".encode()',
        "tests/reproducibility/test_fingerprint.py",
    ),
    Fault(
        "a chain's form of digests is told by its last line of weights",
        "mltrainer/reproducibility/fingerprint.py",
        'next((line for line in lines if line.startswith("w ")), None)',
        'next((line for line in reversed([*lines]) if line.startswith("w ")), None)',
        "tests/reproducibility/test_fingerprint.py",
    ),
    Fault(
        "another digest over chunks than the chain's at the end is no contradiction",
        "mltrainer/reproducibility/fingerprint.py",
        "step != str(steps) or expected == sha256",
        "step != str(steps) or expected",
        "tests/reproducibility/test_fingerprint.py",
    ),
    Fault(
        "a checkpoint's digest over chunks is not compared with the chain's",
        "mltrainer/reproducibility/evidence.py",
        "return all(same) and all(",
        "return all(",
        "tests/trainers/native/test_weights_in_chain.py::"
        "test_a_result_or_manifest_with_another_digest_than_the_chain_is_not_sound",
    ),
    Fault(
        "a difference that just meets the bound is too large",
        "mltrainer/reproducibility/grades.py",
        "difference <= limits.loss_bound",
        "difference < limits.loss_bound",
        GRADES,
    ),
    Fault(
        "losses alone make a run numerically equal, whatever its metric",
        "mltrainer/reproducibility/grades.py",
        "for difference in differences)",
        "for difference in differences[:1])",
        GRADES,
    ),
    Fault(
        "the fewest seeds that are asked for are too few",
        "mltrainer/reproducibility/grades.py",
        "if len(numbers.seeds) < limits.min_seeds:",
        "if len(numbers.seeds) <= limits.min_seeds:",
        GRADES,
    ),
    Fault(
        "the spread of the seeds that were trained is taken for that of all seeds",
        "mltrainer/reproducibility/grades.py",
        "statistics.stdev(numbers.seeds)",
        "statistics.pstdev(numbers.seeds)",
        GRADES,
    ),
    Fault(
        "a loss is compared relative to the original's alone",
        "mltrainer/reproducibility/grades.py",
        "max(abs(a), abs(b), 1e-6)",
        "max(abs(a), 1e-6)",
        GRADES,
    ),
    Fault(
        "losses that are as good as zero differ by their whole size",
        "mltrainer/reproducibility/grades.py",
        "max(abs(a), abs(b), 1e-6)",
        "max(abs(a), abs(b), 1e-60)",
        GRADES,
    ),
    Fault(
        "every epoch has the same order",
        "mltrainer/reproducibility/seeds.py",
        'return generator(seed, "order", epoch).permutation(np.arange(count))',
        'return generator(seed, "order").permutation(np.arange(count))',
        "tests/reproducibility/test_seeds.py",
    ),
    Fault(
        "a packed file may lie outside its run",
        "mltrainer/reproducibility/packs.py",
        'place.is_absolute() or ".." in place.parts',
        "False",
        "tests/runs/test_packing.py",
    ),
    Fault(
        "a run's folder goes file by file once it is packed",
        "mltrainer/reproducibility/packs.py",
        "            folder.rename(away)\n            shutil.rmtree(away)",
        "            shutil.rmtree(folder)",
        "tests/runs/test_packing.py",
    ),
    Fault(
        "the oldest pack has the last word",
        "mltrainer/reproducibility/packs.py",
        "for path in _packs(runs_dir) for",
        "for path in reversed(_packs(runs_dir)) for",
        "tests/runs/test_packing.py",
    ),
    Fault(
        "a stray folder hides a packed run",
        "mltrainer/reproducibility/packs.py",
        "if (runs_dir / run / JOB_FILE).exists() or (path",
        "if (runs_dir / run).exists() or (path",
        "tests/runs/test_packing.py",
    ),
    Fault(
        "a run that went on is removed once an older copy is packed",
        "mltrainer/reproducibility/packs.py",
        "if (folder / RESULT_FILE).read_bytes() == result:",
        "if True:",
        "tests/runs/test_packing.py",
    ),
)
