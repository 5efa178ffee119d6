"""Train a Hugging Face encoder on raw text, as a masked language model: a folder for `expert.model`.

The text has one document per line; long documents become several passages.

usage: scripts/adapt.py path/to/MiniLM raw.txt adapted [epochs, 3] [learning rate, 1e-4]
"""

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling


def adapt(source: str, text: Path, target: Path, epochs: int = 3, rate: float = 1e-4) -> None:
    """Leave encoder and tokenizer in a folder; print the mean loss of each epoch."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer, encoder = AutoTokenizer.from_pretrained(source), AutoModel.from_pretrained(source)
    model = AutoModelForMaskedLM.from_pretrained(source).to(device).train()
    longest = min(128, tokenizer.model_max_length, model.config.max_position_embeddings - 2)
    documents = [line for line in text.read_text(encoding="utf-8").split("\n") if line.strip()]
    found = tokenizer(documents, truncation=True, max_length=longest, return_overflowing_tokens=True)
    passages = [{"input_ids": ids} for ids in found["input_ids"]]
    mask = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    batches = DataLoader(passages, batch_size=32, shuffle=True, collate_fn=mask)

    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=epochs * len(batches))
    for epoch in range(epochs):
        total = 0.0
        for batch in batches:
            loss = model(**batch.to(device)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(batches):.3f}", flush=True)

    encoder.load_state_dict(model.base_model.cpu().state_dict(), strict=False)  # keeps its pooling layer
    encoder.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 6:
        sys.exit(__doc__)
    source, text, target, *more = sys.argv[1:]
    adapt(source, Path(text), Path(target), *map(int, more[:1]), *map(float, more[1:]))
