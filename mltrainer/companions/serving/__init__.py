"""The delivered model behind HTTP.

A request's way: `guard` refuses who may not ask and what is too large or too slow; `strict` reads the JSON; `contract` holds it
to types made from the model's own `inference.json`; `predictor` makes arrays of its rows, as `mltrainer predict` does, and runs
them with those of other requests that waited meanwhile (`batching`); `application` sends the answers with the model's identity.
Before that, `admission` refuses a model whose checksums or gates do not hold, and `server` listens.
"""

from mltrainer.plugins import LOOK, Command

_FOLDER = "mltrainer.companions.serving"
_WATCH = "Is what a served model is asked, and how right it is, still as in training?"
COMMANDS = (
    Command("serve", f"{_FOLDER}.serve", "Answer requests with the delivered model over HTTP, with a form.", LOOK, "predict"),
    Command(
        "watch", f"{_FOLDER}.watch", "Is what a served model is asked, and how right it is, still as in training?", LOOK, "serve"
    ),
    Command("integrate", f"{_FOLDER}.integrate", "Files for your own stack: FastAPI, Next.js, Supabase, Docker.", LOOK, "watch"),
)
