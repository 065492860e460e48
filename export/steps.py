"""The units' equations in standard ONNX ops (docs/design.md, section 1), op for op as in vcdeploy.units.cells.

Shapes: x, h, c, e [B, d]; m [B]; the weights of a step [G·d, d], gates stacked by rows. d is D, or the size of a
prefix that covers every active dimension: past it the mask is 0, so both give the same numbers.
"""

from dataclasses import dataclass

import numpy as np

from .nodes import Nodes

GATES = {"vcrnn": 1, "vcgru": 3, "vclstm": 4}


def state_names(unit: str) -> list[str]:
    """The parts of a layer's state."""
    return ["h", "c"] if unit == "vclstm" else ["h"]


@dataclass(frozen=True)
class Scheduler:
    """The values a mask needs, the same at every step: all but u, v, b are computed once, before the first."""

    u: str
    v: str
    b: str
    dim: str  # scalar D
    index: str  # [D]: 1 … D
    sharpness: str  # scalars from here on
    epsilon: str
    upper: str  # 1 - epsilon
    zero: str
    one: str

    @classmethod
    def prepare(cls, nodes: Nodes, u: str, v: str, b: str, sharpness: str, epsilon: str) -> "Scheduler":
        """Everything takes the float type of u, so that one function serves float32 and float64."""

        def like(value: str) -> str:
            return nodes.add("CastLike", value, u)

        size = nodes.add("Squeeze", nodes.add("Shape", u))
        first = nodes.constant(1, np.int64)
        index = nodes.add("Range", first, nodes.add("Add", size, first), first)
        zero, one = like(nodes.constant(0, np.float32)), like(nodes.constant(1, np.float32))
        epsilon = like(epsilon)
        upper = nodes.add("Sub", one, epsilon)
        return cls(u, v, b, like(size), like(index), like(sharpness), epsilon, upper, zero, one)

    def share(self, nodes: Nodes, x: str, h: str) -> str:
        """m [B] = sigmoid(u·h + v·x + b)"""
        from_h, from_x = nodes.add("MatMul", h, self.u), nodes.add("MatMul", x, self.v)
        return nodes.add("Sigmoid", nodes.add("Add", nodes.add("Add", from_h, from_x), self.b))

    def mask(self, nodes: Nodes, m: str) -> str:
        """e [B, D]: exactly 1 above 1 - epsilon, exactly 0 below epsilon; NaN stays NaN."""
        last = nodes.constant([-1], np.int64)
        reach = nodes.add("Mul", nodes.add("Unsqueeze", m, last), self.dim)  # [B, 1]: m·D
        soft = nodes.add("Sigmoid", nodes.add("Mul", self.sharpness, nodes.add("Sub", reach, self.index)))
        soft = nodes.add("Where", nodes.add("Greater", soft, self.upper), self.one, soft)
        return nodes.add("Where", nodes.add("Less", soft, self.epsilon), self.zero, soft)


@dataclass(frozen=True)
class Rounding:
    """What int8 does to a vector before a matrix multiplies it: whole levels (docs/design.md, section 2)."""

    levels: str  # scalars: how many a range has
    least_state: str  # the least range of a state, and that of an input
    least_input: str

    @classmethod
    def prepare(cls, nodes: Nodes, levels: str, like: str) -> "Rounding":
        """levels: a number of any type; `like` has the one to compute in."""
        least = [nodes.add("CastLike", nodes.constant(value, np.float32), like) for value in (1, 2.0**-64)]
        return cls(nodes.add("CastLike", levels, like), *least)

    def scale(self, nodes: Nodes, value: str, least: str) -> tuple[str, str]:
        """Of vectors [..., D]: levels to one, and the value of a level, [..., 1] each."""
        last = nodes.constant([-1], np.int64)
        reach = nodes.add("Max", nodes.add("ReduceMax", nodes.add("Abs", value), last), least)
        return nodes.add("Div", self.levels, reach), nodes.add("Div", reach, self.levels)

    @staticmethod
    def round(nodes: Nodes, value: str, scale: tuple[str, str]) -> str:
        levels = nodes.add("Round", nodes.add("Mul", value, scale[0]))  # half to even
        return nodes.add("Mul", levels, scale[1])

    def of_input(self, nodes: Nodes, x: str) -> tuple[str, str]:
        """The scale of xbar: that of all of x, whatever the mask leaves of it."""
        return self.scale(nodes, x, self.least_input)

    def of_state(self, nodes: Nodes, h: str) -> tuple[str, str]:
        return self.scale(nodes, h, self.least_state)


def weights_of_step(nodes: Nodes, unit: str, U: str, V: str) -> list[str]:
    """The matrices a step multiplies by: VCGRU needs those of r and z apart from g's, the others U and V whole."""
    if unit != "vcgru":
        return [U, V]
    matrices = []
    for stacked in (U, V):
        r, z, g = nodes.split(stacked, 3, axis=0)
        matrices += [nodes.add("Concat", r, z, axis=0), g]
    return matrices


def advance(
    nodes: Nodes,
    unit: str,
    scheduler: Scheduler,
    e: str,
    x: str,
    state: list[str],
    weights: list[str],
    rounding: Rounding | None = None,
    of_input: tuple[str, str] = ("", ""),
) -> list[str]:
    """The state after a step: h, for VCLSTM h and c. of_input: what rounding.of_input gave for all of x."""
    h = state[0]
    hbar, xbar = nodes.add("Mul", e, h), nodes.add("Mul", e, x)
    of_state = ("", "")
    if rounding:
        of_state = rounding.of_state(nodes, hbar)
        xbar = rounding.round(nodes, xbar, of_input)

    def products(U: str, left: str, V: str) -> str:
        """U left + V xbar [B, G·d]"""
        if rounding:
            left = rounding.round(nodes, left, of_state)
        return nodes.add("Gemm", left, U, nodes.add("Gemm", xbar, V, transB=1), transB=1)

    def blend(e: str, new: str, old: str) -> str:
        """e ⊙ new + (1 - e) ⊙ old, where e = 0 the very bits of old, whatever new is.

        What is subtracted there is +0, which keeps -0; choosing old by Where would not: ONNX Runtime's loses its sign.
        """
        kept = nodes.add("Mul", nodes.add("Sub", scheduler.one, e), old)
        negated = nodes.add("Mul", nodes.add("Neg", e), new)
        untouched = nodes.add("Equal", e, scheduler.zero)
        return nodes.add("Sub", kept, nodes.add("Where", untouched, scheduler.zero, negated))

    if unit == "vcrnn":
        U, V = weights
        return [blend(e, nodes.add("Tanh", products(U, hbar, V)), h)]
    if unit == "vcgru":
        U_rz, U_g, V_rz, V_g = weights
        r, z = nodes.split(nodes.add("Sigmoid", products(U_rz, hbar, V_rz)), 2, axis=1)
        g = nodes.add("Tanh", products(U_g, nodes.add("Mul", r, hbar), V_g))
        return [blend(nodes.add("Mul", e, z), g, h)]
    U, V = weights
    i, f, g, o = nodes.split(products(U, hbar, V), 4, axis=1)
    kept = nodes.add("Mul", nodes.add("Sigmoid", f), state[1])
    written = nodes.add("Mul", nodes.add("Sigmoid", i), nodes.add("Tanh", g))
    c = blend(e, nodes.add("Add", kept, written), state[1])
    return [blend(e, nodes.add("Mul", nodes.add("Sigmoid", o), nodes.add("Tanh", c)), h), c]
