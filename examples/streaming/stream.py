"""Generate text token by token with the Python API, showing the update fraction m of each step.

    python examples/streaming/stream.py [MODEL] [PRIME]

`Model.generate` streams ids and runs its loop in native code. The second half does the same with `Model.run`, one step
per call, carrying the state from call to call, for programs that choose each token themselves.
"""

import sys

import numpy as np

import vcdeploy


def main(name: str = "english", prime: str = "The prime min") -> None:
    model = vcdeploy.load(name)
    tokens = model.vocab.encode(prime)

    print(prime, end="")
    streamed = []
    for token in model.generate(tokens, length=40, temperature=0):
        streamed.append(token)
        print(model.vocab.decode([token]), end="", flush=True)
    print(f"\n{len(streamed)} tokens, {model.backend}\n")

    logits, state, _ = model.run(tokens[:, None])  # [T, 1, vocab], [S, 1, D], [T, 1, layers]
    chosen = []
    for _ in range(40):
        token = int(logits[-1, 0].argmax())
        logits, state, compute = model.run(np.array([[token]]), state)
        chosen.append(token)
        print(f"{model.vocab.decode([token])!r:5} m {compute[0, 0, 0]:.2f} {'#' * round(40 * compute[0, 0, 0])}")
    if chosen != streamed:
        sys.exit("the two loops chose different tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
