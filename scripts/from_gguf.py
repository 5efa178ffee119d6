"""Make a folder of Hugging Face from a GGUF file of a decoder such as Llama: float32, for `expert.model`.

Its quantized weights are brought to float32, and its tokenizer is written beside them.
Needs: pip install gguf accelerate

usage: scripts/from_gguf.py SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2
"""

import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(source: Path, target: Path) -> None:
    """Leave the model and the tokenizer of a GGUF file in a folder."""
    file = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    read = AutoModelForCausalLM.from_pretrained(**file, dtype="float32")
    del read.config.quantization_config  # else it counts as quantized, and is not saved
    plain = AutoModelForCausalLM.from_config(read.config)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(target)
    AutoTokenizer.from_pretrained(**file).save_pretrained(target)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
