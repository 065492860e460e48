"""Generate text token by token with the Python API, showing the update fraction m of each step.

    python examples/streaming/stream.py [MODEL] [PRIME]

`Model.generate` streams ids and runs its loop in native code. The second half does the same with a session, one step
per call, for programs that choose each token themselves.
"""

import sys

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

    session = model.session()
    session.feed(tokens)
    chosen: list[int] = []
    while len(chosen) < 40:
        chosen.append(int(session.logits.argmax()))
        session.step(chosen[-1])
        m = session.m[0, 0]
        print(f"{model.vocab.decode(chosen[-1:])!r:5} m {m:.2f} {'#' * round(40 * m)}")
    if chosen != streamed:
        sys.exit("the two loops chose different tokens")


if __name__ == "__main__":
    main(*sys.argv[1:])
