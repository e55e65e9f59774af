"""Files with which a team's own stack calls the delivered model, made from the types of its requests and answers.

`schemas` has these types as JSON Schema, `languages` writes them in Python, TypeScript and SQL, `rendering` fills the templates
in this folder, and `writing` puts the files into the project; a file that a person changed is not overwritten.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["fastapi", "nextjs", "supabase", "docker"]
KINDS: tuple[Kind, ...] = ("fastapi", "nextjs", "supabase", "docker")
