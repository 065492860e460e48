"""Generate text from an exported file with only NumPy and ONNX Runtime; vcdeploy is not imported.

    vcdeploy export english -o model.onnx
    python examples/onnxruntime_python/generate.py model.onnx "The prime min"

The file is self-contained: the vocabulary and the model's shape are in its metadata. Plain ONNX Runtime runs the
function body, which is dense; register our custom op to make it skip (plugins/onnxruntime/README.md).
"""

import json
import sys

import numpy as np
import onnxruntime


def main(path: str, prime: str, length: int = 40) -> None:
    session = onnxruntime.InferenceSession(path)
    vocab = json.loads(session.get_modelmeta().custom_metadata_map["vcdeploy.vocab"])
    ids = {symbol: index for index, symbol in enumerate(vocab)}
    rows, _, dim = session.get_inputs()[1].shape
    state = np.zeros((rows, 1, dim), np.float32)  # [S, B, D]

    tokens = np.array([[ids[symbol]] for symbol in prime], np.int64)  # [T, B]
    print(prime, end="")
    spent = []
    for _ in range(length):
        logits, state, m = session.run(None, {"tokens": tokens, "state": state})
        spent += m[:, 0, 0].tolist()
        tokens = logits[-1:].argmax(-1)  # the most likely symbol, [1, B]
        print(vocab[tokens[0, 0]], end="", flush=True)
    print(f"\nmean m {np.mean(spent):.3f}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
