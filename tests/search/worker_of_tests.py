"""A worker that trains nothing: its job says how it ends. Run as the real one is, `python -m ... JOB.json DESCRIPTOR`."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from mltrainer.errors import MachineError


def main() -> None:
    """Do what each job on standard input says."""
    descriptor = int(sys.argv[2])

    def say(**values: object) -> None:
        os.write(descriptor, json.dumps(values).encode() + b"\n")

    for line in sys.stdin:
        asked = json.loads(line)
        job = json.loads(Path(asked["job"]).read_text())
        Path(asked["job"]).with_suffix(f".{os.getpid()}").touch()
        tries = len(list(Path(asked["job"]).parent.glob(f"{Path(asked['job']).stem}.[0-9]*")))
        if os.environ.get("RANK", "0") != job.get("rank", os.environ.get("RANK", "0")):
            time.sleep(600)  # it waits for the one that the job is about
        do = job.get("do", "train")
        print(job.get("print", ""), flush=True)
        if do == "die" and tries <= job["times"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if do == "hang" and tries <= job["times"]:
            time.sleep(600)
        if do == "full":
            say(event="error", exit_code=MachineError.exit_code, message="no space left", where="disk", mend="make room")
            sys.exit(MachineError.exit_code)
        say(event="beat", **job.get("beat", {}))
        time.sleep(job.get("sleep", 0))
        say(event="end", nr=asked["nr"], reason=job.get("reason"))


if __name__ == "__main__":
    main()
