"""A worker without torch, for tests of engines: a file of the project says what its run does; it saves after each step.

Run as the real one is, `python -m ... WORKER.json DESCRIPTOR`, in the project's folder.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STOPPED: list[int] = []


def main() -> None:
    """Do what each job on standard input says."""
    descriptor = int(sys.argv[2])

    def say(**values: object) -> None:
        os.write(descriptor, json.dumps(values).encode() + b"\n")

    signal.signal(signal.SIGTERM, lambda number, _: STOPPED.append(number))
    parent = os.getppid()

    def is_stopped() -> bool:
        return bool(STOPPED) or os.getppid() != parent

    for line in sys.stdin:
        asked = json.loads(line)
        folder = Path(asked["job"]).parent
        job = json.loads((folder / "job.json").read_text())
        doing = json.loads(Path(f"do/{job['run']}.json").read_text())
        tries = Path(f"do/{job['run']}.tries")
        with open(tries, "a") as file:
            file.write(f"{os.getpid()}\n")
        first = sorted((folder / "checkpoints").glob("step-*"))
        begun = int(first[-1].name[5:]) if first else 0
        with open(f"do/{job['run']}.begun", "a") as file:
            file.write(f"{begun}\n")
        number = len(tries.read_text().split())
        for step in range(begun + 1, doing.get("steps", 3) + 1):
            (folder / f"checkpoints/step-{step:08d}").mkdir(parents=True)
            say(event="beat", step=step, steps=doing.get("steps", 3))
            if step == doing.get("dies_at") and number <= doing.get("times", 1):
                os.kill(os.getpid(), signal.SIGKILL)
            if step == doing.get("freezes_at") and number <= doing.get("times", 1):
                os.kill(os.getpid(), signal.SIGSTOP)
            waits = step >= doing.get("waits_at", 99) and number <= doing.get("times", 1)
            while waits and not is_stopped() and not Path("do/go").exists():
                time.sleep(0.02)
            if is_stopped():
                say(event="error", exit_code=143, message="stopped by SIGTERM", where=None, mend=None)
                sys.exit(143)
        weights = f"of attempt {number}" if doing.get("differs") else "w"
        steps = doing.get("steps", 3)
        files = [{"path": f"{job['folder']}/checkpoints/step-{steps:08d}"}]
        result = {"state": "finished", "stop_reason": "epochs", "steps": steps, "weights_sha256": weights, "checkpoints": files}
        result |= {key: doing[key] for key in ("numerics_class",) if key in doing}
        (folder / "result.json").write_text(json.dumps(result))
        say(event="end", nr=asked["nr"], reason=doing.get("reason"))


if __name__ == "__main__":
    main()
