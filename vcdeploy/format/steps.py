"""The ops VCRNN, VCGRU and VCLSTM in standard ONNX ops (docs/design.md, section 1), as vcdeploy.reference.cells.

The equations are text, which `Nodes.run` turns into nodes. They compute in one of two arithmetics, FLOAT or INT8, which
define sigmoid, tanh, products and so on. An op is a Scan over T, in an ONNX function.

Shapes: x, h, c, e [B, d]; m [B]; the weights of a step [G·d, d], gates stacked by rows. d is D, or the size of a
prefix that covers every active dimension: past it the mask is 0, so both give the same result.
"""

from functools import cache
from typing import Any

from vcdeploy.format.nodes import FLOAT as FLOAT32
from vcdeploy.format.nodes import Nodes, Reference, function_message
from vcdeploy.format.precision import LEAST_RANGE, TANH_DENOMINATOR, TANH_END, TANH_NUMERATOR
from vcdeploy.spec import UNITS, VARIABLE_UNITS, WEIGHT_LEVELS

DOMAIN = "vcdeploy"
OP_VERSION = 1
OPS = {UNITS[name].op: name for name in VARIABLE_UNITS}
LEVELS = "activation_levels"
EARLY = 0  # in place of a type: the form of graphs and bodies that version 0.2 wrote, which is still read

COMMON = """
def blend(e, new, old):  # e ⊙ new + (1 - e) ⊙ old; where e = 0, exactly the bits of old, whatever new is
    kept = Mul(Sub(one, e), old)
    negated = Mul(Neg(e), new)
    untouched = Equal(e, zero)
    # Subtracting +0 keeps -0. Selecting old with Where would not: ONNX Runtime's loses the sign.
    return Sub(kept, Where(untouched, zero, negated))

def rows_rz(stacked):  # of the gates r, z and h
    r, z, h = Split(stacked, axis=0, num_outputs=3)
    return Concat(r, z, axis=0)

def rows_h(stacked):
    r, z, h = Split(stacked, axis=0, num_outputs=3)
    return Concat(h, axis=0)
"""

FLOAT = f"""{COMMON}
def sigmoid(x): return Sigmoid(x)

def tanh(x): return Tanh(x)

def logit(x, h): return Add(Add(MatMul(h, u), MatMul(x, v)), b)

def gates_rz(matrix): return rows_rz(matrix)

def gate_h(matrix): return rows_h(matrix)

def products(U, left, V):  # U left + V xbar [B, G·d]
    return Gemm(left, U, Gemm(xbar, V, transB=1), transB=1)
"""

# Integer products, and every operation rounded separately in float32, so that each runtime gets the same bits
# (docs/design.md, section 2; plugins/cpu/kernels/activations.h). A matrix is a pair: its levels, integers held as
# double, and the scale of each row [R]. Vectors [..., d], too: their levels, and the value of one, [..., 1]. A range
# of vectors is also a pair: levels per unit, and the value of a level, [..., 1] each. Starts from `levels`, a number.
INT8 = f"""{COMMON}
levels = Cast(levels, to=float32)  # per range
least_state = 1.0  # smallest range of a state
least_input = {LEAST_RANGE}
half = 0.5
end = {TANH_END}  # where tanh is 1
least = -{TANH_END}
p3 = {TANH_NUMERATOR[0]}
p2 = {TANH_NUMERATOR[1]}
p1 = {TANH_NUMERATOR[2]}
p0 = {TANH_NUMERATOR[3]}
q3 = {TANH_DENOMINATOR[0]}
q2 = {TANH_DENOMINATOR[1]}
q1 = {TANH_DENOMINATOR[2]}
q0 = {TANH_DENOMINATOR[3]}

def polynomial(y, a3, a2, a1, a0): return Add(Mul(Add(Mul(Add(Mul(a3, y), a2), y), a1), y), a0)

def tanh(x):
    x = Clip(x, least, end)
    y = Mul(x, x)
    return Div(Mul(x, polynomial(y, p3, p2, p1, p0)), polynomial(y, q3, q2, q1, q0))

def sigmoid(x): return Add(Mul(tanh(Mul(x, half)), half), half)

def logit(x, h):
    u = Cast(u, to=float64)
    v = Cast(v, to=float64)
    b = Cast(b, to=float64)
    x = Cast(x, to=float64)
    h = Cast(h, to=float64)
    return Cast(Add(Add(MatMul(h, u), MatMul(x, v)), b), to=float32)

def quantized(wide):  # a float32 matrix; if it is the product of stored levels and scales, exactly those
    least = {LEAST_RANGE}
    steps = {float(WEIGHT_LEVELS)}
    factor = {float(2**7 + 1)}
    largest = ReduceMax(Abs(wide), [1])  # [R, 1]
    exact = Div(Max(largest, least), steps)
    scaled = Mul(exact, factor)  # to drop the last seven bits, so that scale times level is exact in float32
    scale = Sub(scaled, Sub(scaled, exact))
    rows = Round(Div(wide, scale))
    flat = Squeeze(scale, [1])
    return Cast(rows, to=float64), flat

def range_of(value, least):
    last = [-1]
    reach = Max(ReduceMax(Abs(value), last), least)
    return Div(levels, reach), Div(reach, levels)

def rounded(value, range):
    per_unit, unit = range
    return Cast(Round(Mul(value, per_unit)), to=float64), unit  # half to even

def product(matrix, vector):  # [R, C] times [..., C]: [..., R] float32; the sums are integers, exact in any order
    rows, scale = matrix
    columns, unit = vector
    sums = MatMul(columns, Transpose(rows, perm=[1, 0]))
    return Mul(Cast(sums, to=float32), Mul(scale, unit))

def gates_rz(matrix):
    rows, scale = matrix
    return rows_rz(rows), rows_rz(scale)

def gate_h(matrix):
    rows, scale = matrix
    return rows_h(rows), rows_h(scale)

def products(U, left, V):  # U left + V xbar [B, G·d]
    from_h = product(U, rounded(left, of_state))
    return Add(from_h, product(V, rounded_xbar))
"""

# What a mask needs, the same at every step. `real` casts to the float type of u.
SCHEDULER = """
size = Squeeze(Shape(u))
first = 1
index = Range(first, Add(size, first), first)
zero = real(0.0)
one = real(1.0)
epsilon = real(epsilon)
upper = Sub(one, epsilon)
dim = real(size)  # D
places = real(index)  # [D]: 1 … D
sharpness = real(sharpness)
"""

QUANTIZED = """
U = quantized(U)
V = quantized(V)
"""

FRACTION = """
m = sigmoid(logit(x, h))
"""

# e [B, D]: exactly 1 above 1 - epsilon, exactly 0 below epsilon; NaN stays NaN.
MASK = """
reach = Mul(Unsqueeze(m, [-1]), dim)  # [B, 1]: m·D
soft = sigmoid(Mul(sharpness, Sub(reach, places)))
soft = Where(Greater(soft, upper), one, soft)
e = Where(Less(soft, epsilon), zero, soft)
"""

# The range of xbar is that of all of x, regardless of the mask.
INPUT_RANGE = """
of_input = range_of(x, least_input)
"""

# The matrices a step multiplies by: VCGRU needs r and z separate from h, the others use U and V whole.
MATRICES = {
    "vcrnn": "",
    "vcgru": """
U_rz = gates_rz(U)
U_h = gate_h(U)
V_rz = gates_rz(V)
V_h = gate_h(V)
""",
    "vclstm": "",
}

MASKED = """
hbar = Mul(e, h)
xbar = Mul(e, x)
"""

ROUNDED = """
of_state = range_of(hbar, least_state)
rounded_xbar = rounded(xbar, of_input)
"""

UPDATE = {
    "vcrnn": """
h = blend(e, tanh(products(U, hbar, V)), h)
""",
    "vcgru": """
r, z = Split(sigmoid(products(U_rz, hbar, V_rz)), axis=1, num_outputs=2)
g = tanh(products(U_h, Mul(r, hbar), V_h))
h = blend(Mul(e, z), g, h)
""",
    "vclstm": """
i, f, g, o = Split(products(U, hbar, V), axis=1, num_outputs=4)
kept = Mul(sigmoid(f), c)
written = Mul(sigmoid(i), tanh(g))
c = blend(e, Add(kept, written), c)
h = blend(e, Mul(sigmoid(o), tanh(c)), h)
""",
}


def step(unit: str, int8: bool) -> str:
    """The equations of a step with the mask e: from x, h (and c) and the matrices to the new h (and c)."""
    return MASKED + (ROUNDED if int8 else "") + UPDATE[unit]


def op_attributes(sharpness: float, epsilon: float, levels: int | None = None) -> dict[str, Any]:
    """The attributes of an op node. levels: the activation levels, if quantized.

    TensorRT's parser prefers a plugin to the function only if plugin_version and plugin_namespace are both present.
    """
    attributes = {
        "sharpness": float(sharpness),
        "epsilon": float(epsilon),
        "plugin_version": "1",
        "plugin_namespace": "",
    }
    return attributes if levels is None else {**attributes, LEVELS: levels}


def scheduler(kind: int) -> str:
    """The equations SCHEDULER. kind: the type of u in onnx.TensorProto.DataType, or EARLY."""
    cast = "CastLike(x, u)" if kind == EARLY else f"Cast(x, to={kind})"
    return f"def real(x): return {cast}\n{SCHEDULER}"


@cache
def function(op: str, opset: int, rounded: bool = False, kind: int = FLOAT32) -> bytes:
    """The function body of one op type, for the given opset, as the bytes of a FunctionProto.

    rounded: for nodes with the attribute LEVELS. kind: the type of u in onnx.TensorProto.DataType. EARLY is the body
    that version 0.2 wrote: its nodes have no names, and its values have names that also occur in graphs.
    """
    unit, prefix = OPS[op], "" if kind == EARLY else f"{op}_"
    attributes = ["sharpness", "epsilon", *([LEVELS] if rounded else [])]
    state = UNITS[unit].state
    text = """
sharpness = Constant(value_float=sharpness)
epsilon = Constant(value_float=epsilon)
"""
    text += f"levels = Constant(value_int={LEVELS})\n{INT8}" if rounded else FLOAT
    text += scheduler(kind) + (QUANTIZED if rounded else "") + MATRICES[unit]
    of_step = FRACTION + (INPUT_RANGE if rounded else "") + MASK + step(unit, rounded) + "y = Identity(h)"
    given: dict[str, Any] = {name: f"{prefix}{name}" for name in (*UNITS[unit].weights, "x", *state)}
    of_body = [given[name] for name in (*state, "x")]
    given |= {name: Reference(name, name == LEVELS) for name in attributes}
    before, body = Nodes(prefix, kind != EARLY), Nodes(f"{prefix}step_", kind != EARLY)
    made = body.run(of_step, before.run(text, given))
    initial, final = ([f"{prefix}{row.upper()}{end}" for row in state] for end in ("0", ""))
    scan = body.graph(f"{prefix}step", of_body, [made[name] for name in (*state, "y", "m")])
    outputs = [*final, f"{prefix}Y", f"{prefix}M"]
    before.add_many("Scan", *initial, f"{prefix}X", outputs=outputs, body=scan, num_scan_inputs=1)
    if kind != EARLY:
        before.prune(outputs)
    return function_message(
        DOMAIN,
        op,
        [f"{prefix}{name}" for name in UNITS[unit].inputs],
        [f"{prefix}{name}" for name in UNITS[unit].outputs],
        before.nodes,
        opset,
        attributes=attributes,
        defaults={name: value for name, value in op_attributes(0, 0).items() if name.startswith("plugin")},
        doc=f"{op} over a sequence, computed densely: docs/design.md, section 1, of vcdeploy.",
    )
