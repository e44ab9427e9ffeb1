"""Trains the two specialist adapters of the default model with PEFT, on one CPU thread in a few minutes each.

    python tools/train_adapters.py --base stories260K-f32.gguf --shakespeare tinyshakespeare.txt --oz wizard-of-oz.txt

Needs the packages of tools/golden/requirements.txt. Both texts are in the public domain. Writes data/adapters/<name>/
(a PEFT folder) with the held-out losses in its README.md.
"""
import argparse
import json
import math
import time
from pathlib import Path

import gguf
import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

OUT = Path(__file__).resolve().parents[1] / "data" / "adapters"
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WINDOW = 256


class Tokenizer:
    """SentencePiece BPE by scores, from a GGUF's tokenizer keys. Pieces hold '▁' only in front, so words are independent."""

    def __init__(self, reader: gguf.GGUFReader):
        self.pieces = reader.fields["tokenizer.ggml.tokens"].contents()
        self.scores = reader.fields["tokenizer.ggml.scores"].contents()
        self.ids = {p: i for i, p in enumerate(self.pieces)}
        self.cache: dict[str, list[int]] = {}
        assert not any("▁" in p[1:] and p.strip("▁") for p in self.pieces)

    def word(self, text: str) -> list[int]:
        if text not in self.cache:
            parts = list(text)
            while True:
                best = None
                for i in range(len(parts) - 1):
                    idx = self.ids.get(parts[i] + parts[i + 1])
                    if idx is not None and (best is None or self.scores[idx] > best[0]):
                        best = (self.scores[idx], i)
                if best is None:
                    break
                parts[best[1]:best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
            out = []
            for part in parts:
                out += [self.ids[part]] if part in self.ids else [self.ids[f"<0x{b:02X}>"] for b in part.encode()]
            self.cache[text] = out
        return self.cache[text]

    def encode(self, text: str) -> list[int]:
        return [t for word in text.split(" ") for t in self.word("▁" + word)]

    def decode(self, ids) -> str:
        raw = b"".join(bytes([int(p[3:5], 16)]) if p.startswith("<0x") else p.replace("▁", " ").encode()
                       for p in (self.pieces[i] for i in ids if i > 2))
        return raw.decode("utf-8", "replace")


def load_base(path: str):
    reader = gguf.GGUFReader(path)

    def field(name):
        return reader.fields["llama." + name].contents()

    heads, kv = field("attention.head_count"), field("attention.head_count_kv")
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    config = LlamaConfig(hidden_size=field("embedding_length"), intermediate_size=field("feed_forward_length"),
                         num_hidden_layers=field("block_count"), num_attention_heads=heads, num_key_value_heads=kv,
                         vocab_size=len(tensors["token_embd.weight"]), max_position_embeddings=field("context_length"),
                         rms_norm_eps=field("attention.layer_norm_rms_epsilon"), rope_theta=field("rope.freq_base"),
                         tie_word_embeddings="output.weight" not in tensors, attn_implementation="eager")

    def half_split(w, n):  # GGUF keeps llama's rotary rows interleaved, transformers keeps them in halves
        return w.reshape(n, w.shape[0] // n // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)

    names = {"attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm"}
    state = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"]}
    for i in range(config.num_hidden_layers):
        for short, long in names.items():
            state[f"model.layers.{i}.{long}.weight"] = tensors[f"blk.{i}.{short}.weight"]
        state[f"model.layers.{i}.self_attn.q_proj.weight"] = half_split(tensors[f"blk.{i}.attn_q.weight"], heads)
        state[f"model.layers.{i}.self_attn.k_proj.weight"] = half_split(tensors[f"blk.{i}.attn_k.weight"], kv)
    model = LlamaForCausalLM(config).float()
    missing, unexpected = model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in state.items()}, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model, Tokenizer(reader)


def batches(ids: np.ndarray, starts: np.ndarray) -> torch.Tensor:
    rows = np.stack([np.concatenate([[1], ids[s:s + WINDOW - 1]]) for s in starts])
    return torch.from_numpy(rows.astype(np.int64))


def narrative(raw: str) -> str:
    """The file's first two parts, Oz and Alice. (Other novels follow; lines of brackets or dots stand between the parts.)
    Lines are joined to paragraphs, and quotation marks and dashes are made plain: the vocabulary has 512 pieces."""
    raw = "\n".join(raw.replace("\r\n", "\n").split("\n    ...\n")[:2])
    raw = raw.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'", 0x2014: " - ", 0x60: "'"})
    out = []
    for line in raw.split("\n"):
        line = line.strip()
        if line.strip('[]",. '):
            out.append(line + (" " if len(line) > 50 else "\n"))
    return "".join(out)


def split(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every tenth block of ten windows is held out."""
    block = 10 * WINDOW
    held = (np.arange(len(ids)) // block) % 10 == 5
    return ids[~held], ids[held]


@torch.no_grad()
def held_out_loss(model, ids: np.ndarray) -> float:
    starts = np.arange(0, len(ids) - WINDOW, WINDOW - 1)
    losses = [model(b, labels=b).loss.item() for b in (batches(ids, starts[i:i + 16]) for i in range(0, len(starts) - 15, 16))]
    return float(np.mean(losses))


@torch.no_grad()
def sample(model, tok: Tokenizer, prompt: str, count: int = 80) -> str:
    ids = [1] + tok.encode(prompt)
    for _ in range(count):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tok.decode(ids).strip()


def train(args, name: str, title: str, text: str, config: LoraConfig) -> None:
    torch.manual_seed(7)
    gen = np.random.default_rng(7)
    model, tok = load_base(args.base)
    ids = np.array(tok.encode(text))
    train_ids, test_ids = split(ids)
    newline = tok.ids["<0x0A>"]
    lines = np.flatnonzero(train_ids[:-WINDOW] == newline) + 1  # a window starts at a line half the time
    before = held_out_loss(model.eval(), test_ids)
    print(name, f"{len(ids)} tokens, held-out loss {before:.3f}; base says:", sample(model, tok, args.prompt), flush=True)
    peft = get_peft_model(model, config)
    params = [p for p in peft.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=args.rate, weight_decay=0.01)
    start, step, peft_loss = time.time(), 0, []
    while step < args.steps:
        for group in optimizer.param_groups:
            warm = min(1.0, (step + 1) / 50)
            group["lr"] = args.rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / args.steps)))
        from_lines = gen.choice(lines, args.batch // 2)
        anywhere = gen.integers(0, len(train_ids) - WINDOW, args.batch - args.batch // 2)
        batch = batches(train_ids, np.concatenate([from_lines, anywhere]))
        loss = peft.train()(batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        peft_loss.append(loss.item())
        if step % 50 == 0:
            print(f"  step {step}: train {np.mean(peft_loss[-50:]):.3f}, held-out "
                  f"{held_out_loss(peft.eval(), test_ids):.3f}, {time.time() - start:.0f} s", flush=True)
    after = held_out_loss(peft.eval(), test_ids)
    said = sample(peft, tok, args.prompt)
    print(name, f"held-out loss {before:.3f} -> {after:.3f}; adapter says:", said, flush=True)
    folder = OUT / name
    peft.peft_config["default"].base_model_name_or_path = "stories260K"
    peft.save_pretrained(str(folder), save_embedding_layers=False)
    scaling = "rsLoRA" if config.use_rslora else "LoRA"
    (folder / "README.md").write_text(f"""# {title}

A {scaling} adapter (rank {config.r}, alpha {config.lora_alpha}, all linear layers) for stories260K, trained with PEFT by
`tools/train_adapters.py` ({args.steps} steps of {args.batch} windows of {WINDOW} tokens).

- Text: {args.sources[name]}
- Mean loss per token on a tenth of the text, which it never saw: {before:.3f} without the adapter, {after:.3f} with it.
- Licence of the adapter: MIT, as the base (see `../../LICENSE.stories260K`).

Greedy after "{args.prompt}": {json.dumps(said)}
""")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True)
    parser.add_argument("--shakespeare")
    parser.add_argument("--oz")
    parser.add_argument("--steps", type=int, default=2000, help="2000 for Shakespeare; 150 for the much shorter Oz")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=5e-3, help="5e-3 for Shakespeare; 3e-3 for Oz")
    parser.add_argument("--prompt", default="Once upon a time")
    args = parser.parse_args()
    args.sources = {"shakespeare": "William Shakespeare's plays (the 'tiny Shakespeare' selection), public domain.",
                    "oz": "Openings of L. Frank Baum, The Wonderful Wizard of Oz (1900) and Lewis Carroll, Alice in Wonderland (1865), "
                          "public domain."}
    torch.set_num_threads(1)
    if args.shakespeare:
        text = Path(args.shakespeare).read_text()
        train(args, "shakespeare", "Shakespeare's dialogue", text,
              LoraConfig(r=16, lora_alpha=16, target_modules=MODULES, task_type="CAUSAL_LM"))
    if args.oz:
        text = narrative(Path(args.oz).read_text())
        train(args, "oz", "Oz and Wonderland", text,
              LoraConfig(r=8, lora_alpha=8, use_rslora=True, lora_dropout=0.1, target_modules=MODULES, task_type="CAUSAL_LM"))


if __name__ == "__main__":
    main()
