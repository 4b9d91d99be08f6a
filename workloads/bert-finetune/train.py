"""Fine-tuning of a bidirectional encoder on sentences of different lengths: padding to the longest of each batch."""

import os

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from perfci import phases

LAYERS, WIDTH, HEADS = (int(os.environ.get(name, "2")) for name in ("BERT_LAYERS", "BERT_WIDTH", "BERT_HEADS"))
BATCH, LONGEST = int(os.environ.get("BERT_BATCH", "8")), int(os.environ.get("BERT_LENGTH", "64"))
VOCABULARY, CLASSES, PAD = 2048, 2, 0


class Classifier(nn.Module):
    """Encoder and a classification head on the first token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH, padding_idx=PAD), nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (batch, classes) of padded token ids (batch, length)."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        return self.head(self.encoder(x, src_key_padding_mask=ids == PAD)[:, 0])


def collate(batch: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad to the longest sentence of the batch."""
    return pad_sequence([ids for ids, _ in batch], batch_first=True, padding_value=PAD), torch.tensor(
        [y for _, y in batch]
    )


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
lengths = torch.randint(LONGEST // 4, LONGEST + 1, (64 * BATCH,)).tolist()
sentences = [(torch.randint(1, VOCABULARY, (length,)), length % CLASSES) for length in lengths]
order = torch.Generator().manual_seed(1)
loader = torch.utils.data.DataLoader(
    sentences, batch_size=BATCH, shuffle=True, generator=order, collate_fn=collate, pin_memory=device.type == "cuda"
)
model = Classifier().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)

while True:  # perfci ends the process once it has measured
    for ids, labels in phases.loop(loader):
        with phases.phase("h2d"):
            ids, labels = ids.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with phases.phase("forward"), torch.autocast(device.type, torch.bfloat16):
            loss = functional.cross_entropy(model(ids).float(), labels)
        with phases.phase("backward"):
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with phases.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        phases.log_loss(loss)
        phases.samples(ids.shape[0])
    if not phases.measuring():
        break
