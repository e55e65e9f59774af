"""Proof for somebody who trusts nobody: audits that train parts of a run again.

The data flow of an audit, each step pure but for the first and the last two:

    record, checkpoints --committed--> CommittedRun    `committed.py`: the run, and the checkpoints that the ledger binds
    CommittedRun --segments--> Segment          `segments.py`: the parts of the run between two checkpoints
    Segment, nonce --drawn--> Segment           `segments.py`: those to train again, which only the auditor's nonce decides
    Segment --replay--> Replay                  `replay/segments.py`, in a separate process: trained, compared bit for bit
    Replay --audit--> Audit                     `audit.py`: the answer, with the probability that a forgery was missed

A dispute takes one step again the same way, and notes its operators: `replay/operators.py`, compared in `dispute.py`. The first
one that differs is a file that a third party computes again: `replay/cases.py`, `verify_case.py`.

A referee trains all of it again from code and config alone, and measures it on rows that the author never had: `referee/`.

A project is trained again without some training samples, and its old model marked: `forget.py`.

A number in a user's own text is bound to a record: `citations.py`, pure, and `cite.py`.

Signatures are made and verified in `signatures/`, documents that others ask for in `documents/`.

Only `replay/` imports torch.
"""

from mltrainer.plugins import LOOK, TRAIN, Command

_FOLDER = "mltrainer.companions.proof"
_FORGET = "Train again as if some rows had never been there."
_VERIFY = "Compute a disputed operator again: which party is right?"
_REFEREE = "Judge somebody's project from its code and config alone."
_VERDICT = "Add a referee's verdict to your project: its card shows it."
_HOLD_OUT = "Divide a table: the author's rows, and rows that a referee keeps."
_SIGN = "Sign gates, origin and model with your key."
_PACKAGE = "Write documents that others ask for: ML-BOM, card, checklists."
_CITE = "Fill numbers of your README or paper from the records."
COMMANDS = (
    Command("forget", f"{_FOLDER}.forget", _FORGET, TRAIN),
    Command("verify-case", f"{_FOLDER}.verify_case", _VERIFY, LOOK, "reproduce"),
    Command("cite", f"{_FOLDER}.cite", _CITE, LOOK),
    Command("referee", f"{_FOLDER}.referee.referee", _REFEREE, LOOK, "verify-case"),
    Command("verdict", f"{_FOLDER}.referee.add", _VERDICT, LOOK, "referee"),
    Command("hold-out", f"{_FOLDER}.referee.hold_out", _HOLD_OUT, LOOK, "verdict"),
    Command("package", f"{_FOLDER}.documents.package", _PACKAGE, LOOK),
    Command("sign", f"{_FOLDER}.signatures.sign", _SIGN, LOOK),
)
PARTS = {
    "reproduce": {"audit": f"{_FOLDER}.audit:audited", "dispute": f"{_FOLDER}.dispute:disputed"},
    # Lines for what a gate does not look at.
    "gate check": {"cited": f"{_FOLDER}.cite:faults", "superseded": f"{_FOLDER}.forget:superseded"},
    "gate check --trust": {"signatures": f"{_FOLDER}.signatures.verify:untrusted"},
}
SCRATCH = frozenset({"audits", "disputes"})
