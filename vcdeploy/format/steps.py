"""The units' equations in standard ONNX ops (docs/design.md, section 1), op for op as in vcdeploy.reference.cells.

Shapes: x, h, c, e [B, d]; m [B]; the weights of a step [G·d, d], gates stacked by rows. d is D, or the size of a
prefix that covers every active dimension: past it the mask is 0, so both give the same result.
"""

from typing import NamedTuple

import numpy as np

from vcdeploy.format.nodes import Nodes
from vcdeploy.format.precision import LEAST_RANGE, TANH_DENOMINATOR, TANH_END, TANH_NUMERATOR
from vcdeploy.format.wire import DOUBLE, FLOAT
from vcdeploy.spec import INT8_LEVELS


class Scheduler(NamedTuple):
    """The values a mask needs, the same at every step; all but u, v, b are computed once, before the first step."""

    u: str
    v: str
    b: str
    dim: str  # scalar D
    places: str  # [D]: 1 … D
    sharpness: str  # scalars from here on
    epsilon: str
    upper: str  # 1 - epsilon
    zero: str
    one: str

    @classmethod
    def prepare(cls, nodes: Nodes, u: str, v: str, b: str, sharpness: str, epsilon: str) -> "Scheduler":
        """Cast everything to the float type of u, so that one function serves float32 and float64."""
        size = nodes.add("Squeeze", nodes.add("Shape", u))
        first = nodes.constant(1, np.int64)
        index = nodes.add("Range", first, nodes.add("Add", size, first), first)
        zero = nodes.cast_like(nodes.constant(0, np.float32), u)
        one = nodes.cast_like(nodes.constant(1, np.float32), u)
        epsilon = nodes.cast_like(epsilon, u)
        upper = nodes.add("Sub", one, epsilon)
        dim, places = nodes.cast_like(size, u), nodes.cast_like(index, u)
        return cls(u, v, b, dim, places, nodes.cast_like(sharpness, u), epsilon, upper, zero, one)

    def update_fraction(self, nodes: Nodes, x: str, h: str, int8: "Int8 | None" = None) -> str:
        """m [B] = sigmoid(u·h + v·x + b)"""
        if int8:
            u, v, b, x, h = (nodes.add("Cast", each, to=DOUBLE) for each in (self.u, self.v, self.b, x, h))
        else:
            u, v, b = self.u, self.v, self.b
        from_h, from_x = nodes.add("MatMul", h, u), nodes.add("MatMul", x, v)
        logit = nodes.add("Add", nodes.add("Add", from_h, from_x), b)
        return int8.sigmoid(nodes, nodes.add("Cast", logit, to=FLOAT)) if int8 else nodes.add("Sigmoid", logit)

    def mask(self, nodes: Nodes, m: str, int8: "Int8 | None" = None) -> str:
        """e [B, D]: exactly 1 above 1 - epsilon, exactly 0 below epsilon; NaN stays NaN."""
        last = nodes.constant([-1], np.int64)
        reach = nodes.add("Mul", nodes.add("Unsqueeze", m, last), self.dim)  # [B, 1]: m·D
        x = nodes.add("Mul", self.sharpness, nodes.add("Sub", reach, self.places))
        soft = int8.sigmoid(nodes, x) if int8 else nodes.add("Sigmoid", x)
        soft = nodes.add("Where", nodes.add("Greater", soft, self.upper), self.one, soft)
        return nodes.add("Where", nodes.add("Less", soft, self.epsilon), self.zero, soft)


class Matrix(NamedTuple):
    """A matrix, gates stacked by rows. In int8: integer levels, held as double, and the scale of each row."""

    values: str  # [R, C]
    scale: str = ""  # [R], in int8


class Vector(NamedTuple):
    """Vectors [..., D] as integer levels, held as double, and the value of one level in each, [..., 1]."""

    levels: str
    unit: str


Range = tuple[str, str]  # of vectors [..., D]: levels per unit, and the value of a level, [..., 1] each


class Int8(NamedTuple):
    """The int8 arithmetic: integer products, and every operation rounded separately in float32.

    Each runtime thus gets the same bits (docs/design.md, section 2; plugins/cpu/kernels/activations.h). Values are
    scalars.
    """

    levels: str  # per range
    least_state: str  # smallest range of a state
    least_input: str  # smallest range of an input
    half: str
    end: str  # where tanh is 1
    least: str  # -end
    numerator: list[str]  # of tanh: coefficients, the highest first
    denominator: list[str]

    @classmethod
    def prepare(cls, nodes: Nodes, levels: str) -> "Int8":
        """Add the constants. levels: a number of any type."""

        def scalar(value: float) -> str:
            return nodes.constant(value, np.float32)

        return cls(
            levels=nodes.add("Cast", levels, to=FLOAT),
            least_state=scalar(1),
            least_input=scalar(LEAST_RANGE),
            half=scalar(0.5),
            end=scalar(TANH_END),
            least=scalar(-TANH_END),
            numerator=[scalar(value) for value in TANH_NUMERATOR],
            denominator=[scalar(value) for value in TANH_DENOMINATOR],
        )

    def tanh(self, nodes: Nodes, x: str) -> str:
        x = nodes.add("Clip", x, self.least, self.end)
        y = nodes.add("Mul", x, x)

        def polynomial(coefficients: list[str]) -> str:
            value = coefficients[0]
            for each in coefficients[1:]:
                value = nodes.add("Add", nodes.add("Mul", value, y), each)
            return value

        return nodes.add("Div", nodes.add("Mul", x, polynomial(self.numerator)), polynomial(self.denominator))

    def sigmoid(self, nodes: Nodes, x: str) -> str:
        halved = self.tanh(nodes, nodes.add("Mul", x, self.half))
        return nodes.add("Add", nodes.add("Mul", halved, self.half), self.half)

    @staticmethod
    def matrix(nodes: Nodes, wide: str) -> Matrix:
        """Levels and scales of a float32 matrix [R, C]; if it is the product of stored ones, exactly those."""
        least, steps, factor = (nodes.constant(value, np.float32) for value in (LEAST_RANGE, INT8_LEVELS, 2**7 + 1))
        largest = nodes.add("ReduceMax", nodes.add("Abs", wide), nodes.constant([1], np.int64))  # [R, 1]
        exact = nodes.add("Div", nodes.add("Max", largest, least), steps)
        # Drop the last seven bits, so that scale times level is exact in float32.
        scaled = nodes.add("Mul", exact, factor)
        scale = nodes.add("Sub", scaled, nodes.add("Sub", scaled, exact))
        levels = nodes.add("Round", nodes.add("Div", wide, scale))
        flat = nodes.add("Squeeze", scale, nodes.constant([1], np.int64))
        return Matrix(nodes.add("Cast", levels, to=DOUBLE), flat)

    def _range(self, nodes: Nodes, value: str, least: str) -> Range:
        last = nodes.constant([-1], np.int64)
        reach = nodes.add("Max", nodes.add("ReduceMax", nodes.add("Abs", value), last), least)
        return nodes.add("Div", self.levels, reach), nodes.add("Div", reach, self.levels)

    def of_input(self, nodes: Nodes, x: str) -> Range:
        """The range of xbar: that of all of x, regardless of the mask."""
        return self._range(nodes, x, self.least_input)

    def of_state(self, nodes: Nodes, h: str) -> Range:
        return self._range(nodes, h, self.least_state)

    @staticmethod
    def round(nodes: Nodes, value: str, scale: Range) -> Vector:
        levels = nodes.add("Round", nodes.add("Mul", value, scale[0]))  # half to even
        return Vector(nodes.add("Cast", levels, to=DOUBLE), scale[1])

    @staticmethod
    def product(nodes: Nodes, matrix: Matrix, vector: Vector) -> str:
        """matrix [R, C] times vectors [..., C]: [..., R] float32. The sums are integers, exact in any order."""
        sums = nodes.add("MatMul", vector.levels, nodes.add("Transpose", matrix.values, perm=[1, 0]))
        return nodes.add("Mul", nodes.add("Cast", sums, to=FLOAT), nodes.add("Mul", matrix.scale, vector.unit))


def weights_of_step(nodes: Nodes, unit: str, U: Matrix, V: Matrix) -> list[Matrix]:
    """The matrices a step multiplies by: VCGRU needs r and z separate from g, the others use U and V whole."""
    if unit != "vcgru":
        return [U, V]

    def gates(matrix: Matrix, *places: int) -> Matrix:
        """Those gates of a matrix and of its scale."""
        return Matrix(*(each and nodes.join_parts(each, 3, places, axis=0) for each in matrix))

    return [gates(U, 0, 1), gates(U, 2), gates(V, 0, 1), gates(V, 2)]


def advance(
    nodes: Nodes,
    unit: str,
    scheduler: Scheduler,
    e: str,
    x: str,
    state: list[str],
    weights: list[Matrix],
    int8: Int8 | None = None,
    of_input: Range = ("", ""),
) -> list[str]:
    """The state after a step: h, or h and c for VCLSTM. of_input: the result of int8.of_input for all of x."""
    h = state[0]
    hbar, xbar = nodes.add("Mul", e, h), nodes.add("Mul", e, x)
    of_state = int8.of_state(nodes, hbar) if int8 else ("", "")
    whole_input = int8.round(nodes, xbar, of_input) if int8 else None

    def products(U: Matrix, left: str, V: Matrix) -> str:
        """U left + V xbar [B, G·d]"""
        if int8 and whole_input:
            from_h = int8.product(nodes, U, int8.round(nodes, left, of_state))
            return nodes.add("Add", from_h, int8.product(nodes, V, whole_input))
        return nodes.add("Gemm", left, U.values, nodes.add("Gemm", xbar, V.values, transB=1), transB=1)

    def sigmoid(x: str) -> str:
        return int8.sigmoid(nodes, x) if int8 else nodes.add("Sigmoid", x)

    def tanh(x: str) -> str:
        return int8.tanh(nodes, x) if int8 else nodes.add("Tanh", x)

    def blend(e: str, new: str, old: str) -> str:
        """e ⊙ new + (1 - e) ⊙ old; where e = 0, exactly the bits of old, whatever new is.

        Subtracting +0 there keeps -0. Selecting old with Where would not: ONNX Runtime's loses the sign.
        """
        kept = nodes.add("Mul", nodes.add("Sub", scheduler.one, e), old)
        negated = nodes.add("Mul", nodes.add("Neg", e), new)
        untouched = nodes.add("Equal", e, scheduler.zero)
        return nodes.add("Sub", kept, nodes.add("Where", untouched, scheduler.zero, negated))

    if unit == "vcrnn":
        U, V = weights
        return [blend(e, tanh(products(U, hbar, V)), h)]
    if unit == "vcgru":
        U_rz, U_g, V_rz, V_g = weights
        r, z = nodes.split(sigmoid(products(U_rz, hbar, V_rz)), 2, axis=1)
        g = tanh(products(U_g, nodes.add("Mul", r, hbar), V_g))
        return [blend(nodes.add("Mul", e, z), g, h)]
    U, V = weights
    i, f, g, o = nodes.split(products(U, hbar, V), 4, axis=1)
    kept = nodes.add("Mul", sigmoid(f), state[1])
    written = nodes.add("Mul", sigmoid(i), tanh(g))
    c = blend(e, nodes.add("Add", kept, written), state[1])
    return [blend(e, nodes.add("Mul", sigmoid(o), tanh(c)), h), c]
