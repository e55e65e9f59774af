"""Documents that others ask for, rendered from finalization's record and from what a person answered.

    answers.yaml --read_answers--> Answers            `answers.py`: what no record knows, such as a license
    record, Answers --ml_bom--> ml-bom.cdx.json       `ml_bom.py`: CycloneDX, the model and all that went into it
    model card, Answers --hub_card--> model_card.md   `hub_card.py`: for Hugging Face, with license, data sets and base model
    record, Answers --croissant--> croissant.json     `croissant.py`: the data, with its RAI properties
    record, Answers --filled_in--> neurips.md, ...    `checklists.py`: templates by section; `facts.py`: what the record says
    record, Answers --ro_crate--> ro-crate-...json    `ro_crate.py`: the project's folder as an RO-Crate
    record, Answers --kitfile--> Kitfile              `kitfile.py`: the project's folder as KitOps packs it

`package.py` is the command. A document claims no conformity: it says what was recorded, and leaves the rest blank.
"""
