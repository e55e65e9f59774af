"""Files with which a team's own stack calls the delivered model, made from the types of its requests and answers.

`languages` writes these types, which it has as JSON Schema, in Python, TypeScript and SQL; `rendering` fills the templates in
this folder and puts the files into the project; a file that a person changed is not overwritten.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["fastapi", "nextjs", "supabase", "docker"]
KINDS: tuple[Kind, ...] = ("fastapi", "nextjs", "supabase", "docker")
