"""The delivered model behind HTTP.

A request's path: `guard` refuses clients without the token, and too large or slow requests; `strict` reads the JSON;
`contract` checks it against types made from the model's `inference.json`; `predictor` turns its rows into arrays, as
`mltrainer predict` does, and runs them together with the rows of other waiting requests (`batching`); `application` sends the
answers with the model's identity.
Before any request, `admission` refuses a model whose checksums or gates fail, and `server` opens the port.
"""

from mltrainer.plugins import LOOK, Command

_FOLDER = "mltrainer.companions.serving"
_WATCH = "Compare a served model's requests and quality with its training."
COMMANDS = (
    Command("serve", f"{_FOLDER}.serve", "Answer requests with the delivered model over HTTP, with a form.", LOOK, "predict"),
    Command("watch", f"{_FOLDER}.watch", _WATCH, LOOK, "serve"),
    Command("integrate", f"{_FOLDER}.integrate", "Files for your own stack, and for agents.", LOOK, "watch"),
)
