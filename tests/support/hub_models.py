"""Tiny models of transformers with tokenizers of their own, at random and made in a moment."""

from pathlib import Path
from typing import Any

import torch

from mein.hub.networks import transformers_quietly

WORDS = [
    "a",
    "the",
    "film",
    "was",
    "good",
    "bad",
    "dull",
    "great",
    "and",
    "not",
    "very",
    "plot",
    "so",
    "long",
    "##",
    "##s",
    "##ly",
    "##er",
    ".",
    ",",
    "!",
]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
DISTIL_SIZES = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48}
GPT_SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 24}
LLAMA_SIZES = {**SIZES, "num_key_value_heads": 1}
SIZES_OF: dict[str, dict[str, Any]] = {
    "Bert": SIZES,
    "Roberta": SIZES,
    "DistilBert": DISTIL_SIZES,
    "GPT2": GPT_SIZES,
    "Llama": LLAMA_SIZES,
}
KINDS = tuple(SIZES_OF)
DECODERS = ("GPT2", "Llama")


def build(kind: str, folder: Path, classes: int | None = 2, **more: Any) -> Path:
    """Save a model of this kind, with a head for so many classes or without one, and its tokenizer."""
    sizes = {**SIZES_OF[kind], **more}
    tokenizer = word_pieces() if kind.endswith("Bert") else byte_pieces(kind == "Roberta")
    if kind != "GPT2":
        sizes |= {"max_position_embeddings": 24}
    if kind in DECODERS:
        sizes |= {"eos_token_id": 2, "bos_token_id": 0}
    else:
        sizes |= {"pad_token_id": tokenizer.pad_token_id}
    with transformers_quietly() as transformers, torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = getattr(transformers, f"{kind}Config")(vocab_size=len(tokenizer), **sizes)
        # Random weights of the usual size leave every document with nearly the same logits.
        config.initializer_range = 0.2
        if classes is None:
            network = getattr(transformers, f"{kind}Model")(config)
        else:
            config.num_labels = classes
            network = getattr(transformers, f"{kind}ForSequenceClassification")(config)
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def word_pieces() -> Any:
    """A tokenizer like BERT's."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*specials, *WORDS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return wrapped(tokenizer, mask_token="[MASK]", **names)


def byte_pieces(has_ends: bool) -> Any:
    """A tokenizer like RoBERTa's, over bytes; like GPT-2's, without special tokens, if it has no ends."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: number for number, piece in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if has_ends:
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return wrapped(tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def wrapped(tokenizer: Any, **specials: str) -> Any:
    """A tokenizer as transformers saves it."""
    with transformers_quietly() as transformers:
        return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)
