"""The delivered model behind HTTP.

A request's way: `guard` refuses who may not ask and what is too large or too slow; `strict` reads the JSON; `contract` holds it
to types made from the model's own `inference.json`; `predictor` makes arrays of its rows, as `mltrainer predict` does, and runs
them with those of other requests that waited meanwhile (`batching`); `application` sends the answers with the model's identity.
Before that, `admission` refuses a model whose checksums or gates do not hold, and `server` listens.
"""
