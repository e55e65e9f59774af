"""Faults planted in `mltrainer/observe`."""

from __future__ import annotations

from tests.mutations.fault import Fault

NATIVE, ROWS = "tests/observe/test_opened_files.py", "tests/observe/test_file_rows.py"
CHAIN, BY_HAND = "tests/wrap/test_chain.py", "tests/wrap/test_starting.py -k by_hand"

FAULTS = (
    Fault(
        "databases are not seen",
        "mltrainer/observe/files.py",
        '("sqlite3.connect", "ctypes.dlopen")',
        '("ctypes.dlopen",)',
        f"{NATIVE}::test_a_file_is_seen_whatever_reads_it[sqlite3]",
    ),
    Fault(
        "a second run of a process does not see the files of the first one",
        "mltrainer/observe/files.py",
        "        self._noted_files.clear()\n",
        "",
        f"{NATIVE}::test_each_run_of_a_process_sees_the_same_files",
    ),
    Fault(
        "a second run of a process does not see paths that it was given before",
        "mltrainer/observe/files.py",
        "        self._known_paths.clear()\n",
        "",
        f"{NATIVE}::test_each_run_of_a_process_sees_the_same_files",
    ),
    Fault(
        "a file that is opened both to be read and to be written is not seen",
        "mltrainer/observe/files.py",
        'return "written" if flags & ANEW else "changed"',
        'return "written"',
        f"{NATIVE}::test_a_file_is_seen_whatever_reads_it",
    ),
    Fault(
        "paths that are given by name are not seen",
        "mltrainer/observe/readers.py",
        "else next((named[name] for name in NAMED if name in named), None)",
        "else None",
        f"{NATIVE}::test_a_file_is_seen_whatever_reads_it[safe_open]",
    ),
    Fault(
        "what was fetched into a cache is no input",
        "mltrainer/observe/opened_files.py",
        'return first.startswith(".") and first != ".cache"',
        'return first.startswith(".")',
        f"{NATIVE}::test_hidden_files_of_the_home_are_no_inputs_but_what_was_fetched_into_its_cache_is",
    ),
    Fault(
        "another project's weights are no input",
        "mltrainer/observe/opened_files.py",
        'in path and not path.endswith(".safetensors")',
        "in path",
        f"{NATIVE}::test_another_projects_weights_are_an_input",
    ),
    Fault(
        "files of a known folder are told once more",
        "mltrainer/observe/opened_files.py",
        "if path in apart or any(str(parent) in apart for parent in Path(path).parents) or",
        "if path in apart or",
        f"{NATIVE}::test_what_is_no_input_or_is_bound_elsewhere_is_left_out",
    ),
    Fault(
        "a hundred files are a tree",
        "mltrainer/observe/file_rows.py",
        "len(found) > MANY}",
        "len(found) >= MANY}",
        ROWS,
    ),
    Fault(
        "a file with another digest counts as bound",
        "mltrainer/observe/file_rows.py",
        "known.get(row.path) != row.sha256 and",
        "row.path not in known and",
        ROWS,
    ),
    Fault(
        "a folder of a longer name is in the tree",
        "mltrainer/observe/file_rows.py",
        'f"{folder}/".startswith(f"{top}/")',
        "folder.startswith(top)",
        ROWS,
    ),
    Fault(
        "a tree has no digest of its own",
        "mltrainer/observe/file_rows.py",
        "sha256=tree_sha256(folder, ending), size=size)",
        "sha256=str(size), size=size)",
        ROWS,
    ),
    Fault(
        "of several groups of an optimizer only the first one's weights are summed",
        "mltrainer/observe/chain.py",
        "found += [start + min(part, key=sizes.__getitem__) for part in parts]",
        "found += [min(part, key=sizes.__getitem__) for part in parts]",
        CHAIN,
    ),
    Fault(
        "weights of a second group take the places of the first group's",
        "mltrainer/observe/chain.py",
        "order += [start + number for number in numbers]",
        "order += numbers",
        CHAIN,
    ),
    Fault(
        "weights stand in the order of their optimizer",
        "mltrainer/observe/chain.py",
        'in_model = sorted(own, key=lambda number: roots[root][id(group["params"][number])])',
        "in_model = own",
        CHAIN,
    ),
    Fault(
        "the update that no backward follows is no step",
        "mltrainer/observe/manual_steps.py",
        "        atexit.register(self._look)  # the last",
        "        # the last",
        BY_HAND,
    ),
    Fault(
        "of weights that are updated by hand the first one alone is watched",
        "mltrainer/observe/manual_steps.py",
        "if self._manual_optimizer is not None and (found := self._digest(self._leaves)) != self._last:",
        "if self._manual_optimizer is not None and (found := self._digest(self._leaves[:1])) != self._last:",
        BY_HAND,
    ),
    Fault(
        "folders are listed in their own order",
        "mltrainer/observe/listing_order.py",
        'os.listdir = lambda path=".": listdir(path)[::-1]',
        'os.listdir = lambda path=".": listdir(path)',
        "tests/wrap/test_starting.py::test_a_listing_is_whole_in_either_order",
    ),
    Fault(
        "the second of two clocks is not shifted",
        "mltrainer/observe/date.py",
        "now - EARLIER_S * 10**9",
        "now - EARLIER_S",
        "tests/observe/test_date.py",
    ),
    Fault(
        "libraries read another date, too",
        "mltrainer/observe/date.py",
        '_known[name] = not (is_library or name.startswith("<frozen"))',
        "_known[name] = True",
        "tests/observe/test_date.py",
    ),
    Fault(
        "a folder beside the project is taken for a part of it",
        "mltrainer/observe/renamed_folder.py",
        'path.startswith(os.path.join(true, ""))',
        "path.startswith(true)",
        "tests/observe/test_renamed_folder.py",
    ),
)
