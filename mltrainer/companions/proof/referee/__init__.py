"""The referee: somebody else's training judged by its code and config alone, on rows that its author never had.

table, share --held_places--> two tables   `rows.py`, `hold_out.py`: the author's rows, and those that the referee keeps
source --clean_copy--> Copy                `copying.py`: what is committed, and the referee's own data in its place
Copy --trained--> checkpoint               `referee.py`: in a process that is closed off, by `closing.py`
checkpoint, held rows --scored--> Scored   `replay/scoring.py`: the weights measured, closed off again
record, Scored --checked--> Verdict        `checking.py`, pure: the same bits, within an interval, or neither; `words.py`
Verdict --add--> the author's project      `add.py`: its card and its report show it
"""
