"""vcdeploy: recurrent models that spend only the computation each step needs.

>>> import vcdeploy
>>> model = vcdeploy.load("english")
>>> ids = model.generate(model.vocab.encode("The prime min"), 100)
>>> model.vocab.decode(list(ids))

load runs a pretrained model, an exported file or a checkpoint; VCRNN, VCGRU and VCLSTM are PyTorch modules for your own
networks; attach_functions completes an ONNX file that contains them; from_torch imports a model of nn.GRU or nn.LSTM.
The subpackages are listed in docs/design.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vcdeploy._lazy_ops import register

__version__ = "0.2.0"

if TYPE_CHECKING:
    from vcdeploy.errors import VcdeployError as VcdeployError
    from vcdeploy.format.from_torch import from_torch as from_torch
    from vcdeploy.format.functions import attach_functions as attach_functions
    from vcdeploy.runtime.model import Model as Model
    from vcdeploy.runtime.model import load as load
    from vcdeploy.runtime.sampling import Sampling as Sampling
    from vcdeploy.runtime.sampling import Token as Token
    from vcdeploy.units import VCGRU as VCGRU
    from vcdeploy.units import VCLSTM as VCLSTM
    from vcdeploy.units import VCRNN as VCRNN
    from vcdeploy.vocabulary import Vocabulary as Vocabulary

# The public API and where it lives: imported on first use, so that `import vcdeploy` is quick and needs no PyTorch.
_PUBLIC = {
    "Model": "vcdeploy.runtime.model",
    "Sampling": "vcdeploy.runtime.sampling",
    "Token": "vcdeploy.runtime.sampling",
    "VCGRU": "vcdeploy.units",
    "VCLSTM": "vcdeploy.units",
    "VCRNN": "vcdeploy.units",
    "VcdeployError": "vcdeploy.errors",
    "Vocabulary": "vcdeploy.vocabulary",
    "attach_functions": "vcdeploy.format.functions",
    "from_torch": "vcdeploy.format.from_torch",
    "load": "vcdeploy.runtime.model",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'vcdeploy' has no attribute {name!r}")
    try:
        return getattr(import_module(_PUBLIC[name]), name)
    except ModuleNotFoundError as error:
        raise AttributeError(
            f"vcdeploy.{name} needs {error.name}, which is not installed: see `vcdeploy doctor`"
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)


register()
