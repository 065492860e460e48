"""Try the custom-op library on whichever ONNX Runtime is installed; needs only numpy, onnx and onnxruntime.

    python plugins/onnxruntime/try_version.py PATH/libvcdeploy_onnxruntime.so

Each unit runs alone in a graph, with constant and with changing weights, at every optimisation level, beside a function
body that is wrong, and from several threads; every step is compared with the equations of docs/design.md in float64,
from the op's own state and m. The exit code is 1 where something differs.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

GATES = {"VCRNN": 1, "VCGRU": 3, "VCLSTM": 4}
SHARPNESS, EPSILON = 1.0, float(np.float32(1e-3))
T, B, D = 6, 3, 97
NAMES = ["X", "H0", "U", "V", "u", "v", "b", "C0"]
# A sum of 2D products, weights about D^-0.5 and a state within 1, is off by a few √(2D)·2^-24 of itself.
TOLERANCE = 8 * (2 * D) ** 0.5 * 2.0**-24


def draw(unit, seed):
    """The op's inputs by name, in order."""
    random = np.random.default_rng(seed)
    gates, scale = GATES[unit], D**-0.5
    arrays = {
        "X": random.standard_normal((T, B, D)),
        "H0": np.tanh(random.standard_normal((B, D))),
        "U": random.standard_normal((gates * D, D)) * scale,
        "V": random.standard_normal((gates * D, D)) * scale,
        "u": random.standard_normal(D) * scale,
        "v": random.standard_normal(D) * scale,
        "b": np.zeros(1),
        "C0": random.standard_normal((B, D)),
    }
    if unit != "VCLSTM":
        del arrays["C0"]
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(unit, x, h, c, U, V, m):
    """Section 1 of docs/design.md, with m given: h and, for VCLSTM, c."""
    e = sigmoid(SHARPNESS * (m[:, None] * D - np.arange(1, D + 1)))
    e = np.where(e > 1 - EPSILON, 1, np.where(e < EPSILON, 0, e))
    hbar, from_x = e * h, (e * x) @ V.T
    if unit == "VCRNN":
        return [e * np.tanh(hbar @ U.T + from_x) + (1 - e) * h]
    if unit == "VCGRU":
        r, z = np.split(sigmoid(hbar @ U[: 2 * D].T + from_x[:, : 2 * D]), 2, 1)
        g = np.tanh((r * hbar) @ U[2 * D :].T + from_x[:, 2 * D :])
        return [e * z * g + (1 - e * z) * h]
    i, f, g, o = np.split(hbar @ U.T + from_x, 4, 1)
    c = e * (sigmoid(f) * c + sigmoid(i) * np.tanh(g)) + (1 - e) * c
    return [e * sigmoid(o) * np.tanh(c) + (1 - e) * h, c]


def difference(unit, inputs, run):
    """The largest difference of any step, of m, and between the steps and the whole sequence."""
    whole = run(inputs)
    h, c, largest = inputs["H0"], inputs.get("C0"), 0.0
    for t in range(T):
        given = {**inputs, "X": inputs["X"][t : t + 1], "H0": h, **({"C0": c} if c is not None else {})}
        y, after, m, *after_c = run(given)
        wide = {name: array.astype(np.float64) for name, array in given.items()}
        own_m = sigmoid(wide["H0"] @ wide["u"] + wide["X"][0] @ wide["v"] + wide["b"])
        wanted = step(unit, wide["X"][0], wide["H0"], wide.get("C0"), wide["U"], wide["V"], m[0].astype(np.float64))
        pairs = [(m[0], own_m), (whole[0][t], y[0]), (whole[2][t], m[0])]
        pairs += zip((after, *after_c), wanted, strict=True)
        largest = max(largest, *(float(np.abs(one - other).max()) for one, other in pairs))
        h, c = after, after_c[0] if after_c else None
    return largest


def graph(unit, inputs, constant, body):
    """A model of one node. body: with a function for the op, whose outputs are all wrong."""
    weights = [name for name in NAMES[2:7] if constant]
    outputs = ["Y", "H", "M", "C"][: 4 if unit == "VCLSTM" else 3]
    attributes = {"sharpness": SHARPNESS, "epsilon": EPSILON, "plugin_version": "1", "plugin_namespace": ""}
    node = helper.make_node(unit, list(inputs), outputs, domain="vcdeploy", **attributes)
    made = helper.make_graph(
        [node],
        unit,
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * array.ndim)
            for name, array in inputs.items()
            if name not in weights
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(inputs[name], name) for name in weights],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("vcdeploy", 1)]
    wrong = [helper.make_node("Identity", ["X"], [name]) for name in outputs]
    function = helper.make_function("vcdeploy", unit, list(inputs), outputs, wrong, opsets[:1], list(attributes))
    return helper.make_model(made, opset_imports=opsets, ir_version=9, functions=[function] if body else [])


def session(library, model, level):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    options.add_session_config_entry("vcdeploy.threads", "2")
    options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def runner(opened):
    names = {each.name for each in opened.get_inputs()}
    return lambda given: opened.run(None, {name: array for name, array in given.items() if name in names})


def largest_difference(unit, calls, run):
    """Of these calls, one by one and then four times over from four threads."""
    found = [difference(unit, call, run) for call in calls]
    with ThreadPoolExecutor(4) as pool:
        found += pool.map(lambda call: difference(unit, call, run), calls * 4)
    return max(found)


def main(library):
    level = onnxruntime.GraphOptimizationLevel
    failures = 0
    for unit in GATES:
        inputs, others = draw(unit, 1), draw(unit, 2)
        for constant in (True, False):
            for body in (False, True):
                for optimisation in (level.ORT_DISABLE_ALL, level.ORT_ENABLE_ALL):
                    run = runner(session(library, graph(unit, inputs, constant, body), optimisation))
                    found = largest_difference(unit, [inputs] if constant else [inputs, others, inputs], run)
                    right = found <= TOLERANCE
                    failures += not right
                    print(
                        f"{unit:6} {'constant' if constant else 'changing'} weights, "
                        f"{'with a body' if body else 'no body':11}, {optimisation.name:15} "
                        f"{found:.1e} {'ok' if right else f'WRONG, more than {TOLERANCE:.1e}'}"
                    )
        try:
            run({**inputs, "H0": inputs["H0"][:1]})
        except Exception as error:
            said = f"{unit}: H0 must have the shape [{B}, {D}], not [1, {D}]"
            if said not in str(error):
                failures += 1
                print(f"{unit:6} a wrong shape is said otherwise: {error}")
        else:
            failures += 1
            print(f"{unit:6} takes a wrong shape")
    print(f"ONNX Runtime {onnxruntime.__version__}: {f'{failures} WRONG' if failures else 'all right'}")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
