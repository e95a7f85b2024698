"""GGUF files, written for llama.cpp.

Its `llama` architecture rotates the same pairs of channels as we do, so all tensors go as they are.
(ggml, docs/gguf.md)
"""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from tqdm import tqdm

from errors import UserError
from formats.names import theta_and_scaling
from formats.run import Exported
from formats.tokenizers import to_gguf_fields
from model.config import ModelConfig
from model.rope import rope_frequencies, scaled_frequencies

# The tensor by which llama.cpp divides the frequencies of RoPE.
ROPE_FACTORS = "rope_freqs.weight"

# Sizes: ours, and llama.cpp's behind "llama.".
SIZES = {
    "vocab_size": "vocab_size",
    "max_positions": "context_length",
    "dim": "embedding_length",
    "n_layers": "block_count",
    "hidden_dim": "feed_forward_length",
    "n_heads": "attention.head_count",
    "n_kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "norm_eps": "attention.layer_norm_rms_epsilon",
}


def write_file(exported: Exported, file: Path, dtype: str) -> None:
    """Write a GGUF. Matrices are of type `dtype`, vectors float32.

    Raises UserError where rows cannot be packed in that type, or the tokenizer cannot be expressed.
    """
    factors = rope_factors(exported.model)
    weights = {} if factors is None else {ROPE_FACTORS: factors}
    weights |= {theirs: exported.weights[name] for name, theirs in exported.names.items()}
    model_name = exported.run.path.name.encode(errors="replace").decode()
    write_weights(file, model_name, weights, dtype, {
        **general_fields(exported, model_name),
        **model_fields(exported.model),
        **to_gguf_fields(exported.run.path, exported.tokenizer, exported.model.vocab_size),
    })


def write_weights(
    file: Path, model_name: str, weights: dict[str, Tensor], dtype: str, fields: dict[str, Any]
) -> None:
    """Write a GGUF of weights, by llama.cpp's names, and of the fields of a model and a
    tokenizer."""
    import gguf  # only this target needs it

    types = {key: gguf.GGMLQuantizationType[dtype.upper() if weight.ndim > 1 else "F32"]
             for key, weight in weights.items()}
    file_type = "ALL_F32" if dtype == "f32" else f"MOSTLY_{dtype.upper()}"
    fields = {"general.name": model_name, "general.file_type": gguf.LlamaFileType[file_type].value,
              "general.quantization_version": gguf.GGML_QUANT_VERSION, **fields}
    with closing(gguf.GGUFWriter(file, "llama")) as writer:
        add: dict[type, Any] = {
            bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32,
            str: writer.add_string, list: writer.add_array,
        }
        for key, value in fields.items():
            add[type(value)](key, value)
        for name, weight in weights.items():
            block, size = gguf.GGML_QUANT_SIZES[types[name]]
            if weight.shape[-1] % block:
                raise UserError(f"--dtype {dtype} packs rows in blocks of {block}, and {name} has "
                                f"rows of {weight.shape[-1]}: choose f16, bf16 or f32")
            writer.add_tensor_info(name, weight.shape, np.dtype("float32"),
                                   weight.numel() // block * size, types[name])
        file.parent.mkdir(parents=True, exist_ok=True)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        assert writer.fout is not None
        stream = writer.fout[0]
        for name, weight in tqdm(weights.items(), "writing", unit="tensor", delay=2):
            data = gguf.quants.quantize(weight.float().numpy(), types[name])
            # Not write_tensor_data, which loses the last error of a disk that fills up.
            writer.write_padding(stream, stream.tell())
            stream.write(data.data)
        writer.write_padding(stream, stream.tell())


def general_fields(exported: Exported, model_name: str) -> dict[str, Any]:
    """The fields of a GGUF that sites and programs show beside the name of a model.

    The license is known of an imported model whose README.md stated one.
    """
    import gguf  # only this target needs it

    size = sum(weight.numel() for weight in exported.weights.values())
    components = gguf.Metadata.get_model_id_components(model_name, size)
    base = components[2]  # the name in front of a size such as 135M, or of a version; or None
    fields: dict[str, Any] = {
        "general.basename": model_name if base is None else base,
        "general.size_label": gguf.size_label(size, 0, 0, 0),
        "general.tags": ["text-generation"],
    }
    stated_license = exported.run.manifest.get("imported", {}).get("license")
    if stated_license is not None:
        fields["general.license"] = stated_license
    return fields


def model_fields(config: ModelConfig) -> dict[str, Any]:
    """The fields of a GGUF about the model, for the `llama` architecture."""
    theta, scaling = theta_and_scaling(config)
    fields: dict[str, Any] = {
        **{theirs: getattr(config, ours) for ours, theirs in SIZES.items()},
        "attention.value_length": config.head_dim,
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": float(theta),
    }
    if scaling is not None:
        # llama.cpp reads it with a scaling type of yarn only. gguf_in.py reads it always.
        fields["rope.scaling.original_context_length"] = scaling.original_positions
    if scaling is not None and scaling.type == "linear":
        fields["rope.scaling.type"] = scaling.type
        fields["rope.scaling.factor"] = float(scaling.factor)
    if scaling is not None and scaling.type == "yarn":
        # No scaling type: with yarn, llama.cpp would slow by a ramp with betas of its own, because
        # its `llama` architecture reads none from the file. `rope_factors` are the ramp.
        fields["rope.scaling.attn_factor"] = scaling.magnitude
    return {f"llama.{name}": value for name, value in fields.items()}


def rope_factors(config: ModelConfig) -> Tensor | None:
    """`rope_freqs.weight` (D/2,), by which llama.cpp divides the frequencies; None for no tensor.

    llama.cpp reads llama3's scaling only in this form, and YaRN with any betas as well.
    """
    scaling = config.rope_scaling
    if scaling is None or scaling.type not in ("llama3", "yarn"):
        return None
    plain = rope_frequencies(config.head_dim, config.theta)
    length = 0  # which only dynamic scaling reads
    return (plain / scaled_frequencies(scaling, length, config.head_dim, config.theta)).float()
