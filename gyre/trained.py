"""From a run to what it holds."""

from torch import Tensor

from errors import UserError
from model.config import ModelConfig
from model.transformer import Transformer


def load_model(config: ModelConfig, weights: dict[str, Tensor]) -> Transformer:
    """The model that `weights` belong to.

    Raises UserError that names missing, unexpected and misshapen tensors.
    """
    model = Transformer(config)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        words = " ".join(str(error).split())
        raise UserError(f"the weights do not fit config.yaml: {words}") from None
    return model
