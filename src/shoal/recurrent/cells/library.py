"""The cells of the literature. Each function makes one; the names of gates are those of the papers.

Matrices and biases are named by `linear`: `i.x`, `i.h`, `i.b`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from shoal.recurrent.cells.activations import RELU, SIGMOID, TANH, Activation
from shoal.recurrent.cells.cell import Cell, checked
from shoal.recurrent.cells.symbols import (
    PROJECTION,
    Expression,
    dot,
    exp,
    linear,
    log,
    make,
    maximum,
    mean,
    minimum,
    parameter,
    sigmoid,
    sqrt,
    tanh,
)

_X, _H, _C = make("input", name="x"), make("state", name="h"), make("state", name="c")
_EPSILON = 1e-5  # of layer normalisation, as in PyTorch


def _cell(name: str, **updates: Expression) -> Cell:
    return checked(Cell(name, MappingProxyType(updates)))


def _clipped(value: Expression, clip: float) -> Expression:
    return maximum(minimum(value, clip), -clip) if clip else value


def lstm(
    *,
    peepholes: bool = False,
    projection: bool = False,
    coupled: bool = False,
    clip: float = 0.0,
    f: Activation = SIGMOID,
    g: Activation = TANH,
    h: Activation = TANH,
) -> Cell:
    """Long short-term memory. `coupled`: the forget gate is 1 - i. `peepholes`: gates see the cell. `projection`: the
    output is a matrix times the hidden units (Sak et al., 2014). `clip` bounds what goes into an activation."""
    i_gate, o_gate, c_gate = linear("i", _X, _H), linear("o", _X, _H), linear("c", _X, _H)
    f_gate = linear("f", _X, _H)
    if peepholes:
        i_gate, f_gate = i_gate + parameter("i.p") * _C, f_gate + parameter("f.p") * _C
    keep = f(_clipped(f_gate, clip))
    i = f(_clipped(i_gate, clip))
    if coupled:
        keep = 1.0 - i
    c = keep * _C + i * g(_clipped(c_gate, clip))
    if peepholes:
        o_gate = o_gate + parameter("o.p") * c
    out = f(_clipped(o_gate, clip)) * h(c)
    return _cell("LSTM", h=dot("projection", out, PROJECTION) if projection else out, c=c)


def gru(*, reset_after: bool = True, clip: float = 0.0, f: Activation = SIGMOID, g: Activation = TANH) -> Cell:
    """Gated recurrent unit. `reset_after`: the reset gate scales the product with the state (PyTorch; in ONNX
    `linear_before_reset`), else the state before it (Cho et al., 2014)."""
    z = f(_clipped(linear("z", _X, _H), clip))
    r = f(_clipped(linear("r", _X, _H), clip))
    if reset_after:
        inner = linear("n", _X) + r * (dot("n.h", _H) + parameter("n.rb"))
    else:
        inner = linear("n", _X, r * _H) + parameter("n.rb")
    n = g(_clipped(inner, clip))
    return _cell("GRU", h=(1.0 - z) * n + z * _H)


def rnn(*, clip: float = 0.0, f: Activation = TANH) -> Cell:
    """The simple recurrent network (Elman, 1990)."""
    return _cell("RNN", h=f(_clipped(linear("h", _X, _H), clip)))


def layer_norm_lstm() -> Cell:
    """Layer normalisation of the input's part, of the state's part and of the cell (Ba et al., 2016)."""

    def normed(value: Expression, name: str) -> Expression:
        centred = value - mean(value)
        scaled = centred / sqrt(mean(centred * centred) + _EPSILON)
        return scaled * parameter(f"{name}.g") + parameter(f"{name}.b")

    gate = {
        name: normed(dot(f"{name}.x", _X), f"{name}.nx") + normed(dot(f"{name}.h", _H), f"{name}.nh") for name in "ifco"
    }
    c = sigmoid(gate["f"]) * _C + sigmoid(gate["i"]) * tanh(gate["c"])
    return _cell("LayerNormLSTM", h=sigmoid(gate["o"]) * tanh(normed(c, "cell")), c=c)


def ind_rnn(*, f: Activation = RELU) -> Cell:
    """Independently recurrent network: a unit sees its own state alone (Li et al., 2018)."""
    return _cell("IndRNN", h=f(linear("h", _X) + parameter("u") * _H))


def min_gru() -> Cell:
    """minGRU: gate and candidate see the input alone (Feng et al., 2024)."""
    z = sigmoid(linear("z", _X))
    return _cell("minGRU", h=(1.0 - z) * _H + z * linear("n", _X))


def slstm() -> Cell:
    """sLSTM of xLSTM (Beck et al., 2024): exponential gates, kept in range by the stabiliser state m. Its state n
    starts at 0, so the first output divides by what the first input gate added."""
    n_state, m_state = make("state", name="n"), make("state", name="m")
    i_gate, f_gate = linear("i", _X, _H), linear("f", _X, _H)
    log_keep = -maximum(-f_gate, 0.0) - log(1.0 + exp(-abs(f_gate)))  # the logarithm of sigmoid(f)
    m = maximum(log_keep + m_state, i_gate)
    i, keep = exp(i_gate - m), exp(log_keep + m_state - m)
    c = keep * _C + i * tanh(linear("z", _X, _H))
    n = keep * n_state + i
    return _cell("sLSTM", h=sigmoid(linear("o", _X, _H)) * c / maximum(n, 1e-30), c=c, n=n, m=m)


CELLS: MappingProxyType[str, Callable[[], Cell]] = MappingProxyType(
    {
        "lstm": lstm,
        "gru": gru,
        "rnn": rnn,
        "rnn-relu": lambda: rnn(f=RELU),
        "layer-norm-lstm": layer_norm_lstm,
        "ind-rnn": ind_rnn,
        "min-gru": min_gru,
        "slstm": slstm,
    }
)
"""By the name that commands take."""
