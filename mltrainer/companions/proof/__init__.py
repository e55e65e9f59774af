"""Proof for somebody who trusts nobody: audits that train parts of a run again.

The data flow of an audit, each step pure but for the first and the last two:

    record, checkpoints --claim--> Claim        `claim.py`: what was committed, and the checkpoints that the ledger binds
    Claim --segments--> Segment                 `segments.py`: the parts of the run between two checkpoints
    Segment, nonce --drawn--> Segment           `segments.py`: those to train again, which only the auditor's nonce decides
    Segment --replay--> Replay                  `replay/segments.py`, in a process of its own: trained, compared bit for bit
    Replay --audit--> Audit                     `audit.py`: the answer, and by what chance a forgery would have escaped

Only `replay/` imports torch.
"""

_FOLDER = "mltrainer.companions.proof"
PARTS = {"reproduce": {"audit": f"{_FOLDER}.audit:audited"}}
SCRATCH = frozenset({"audits"})
