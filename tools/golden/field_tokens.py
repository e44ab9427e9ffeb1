#!/usr/bin/env python3
"""Writes tests/data/tokenizer/field.json: what transformers makes of texts and chats over which tokenizers have been seen to differ.

    python tools/golden/field_tokens.py             (made with requirements.txt; needs the zstd program)

Of each tokenizer.json: the marks at which a text may be cut wrongly (control tokens beside words, white space at both ends, CJK, emoji,
added tokens), as `plain` without and as `begun` with the special tokens that the tokenizer puts around a text; and chats through a
template that writes BOS itself, whose tokens are those of apply_chat_template: one BOS.
"""
import json
import subprocess
import tempfile
from pathlib import Path

from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]
FOLDER, TEMPLATES = ROOT / "tests" / "data" / "tokenizer", ROOT / "tests" / "data" / "templates"

TEXTS = ["G", "<s>G", "<s> G", "x<s>G", "x<|im_start|>user", "<|im_start|>user\nHi<|im_end|>", "x <|im_start|> user", " G", "  G", "G ", "G  ",
         " ", "\nG\n", "\tG", "你好，世界", "x你好 <s>你", "日本語のテキスト", "한국어 문장", "🙂", "x🙂👩‍👩‍👧<s>🙂", "🇩🇪 flag", "a<think>b</think>c",
         "<|begin_of_text|>G", "x<|eot_id|>y", "<unk>", "</s>G"]

# tokenizer, BOS, EOS, template
CASES = [("llama2", "<s>", "</s>", None), ("llama3", "<|begin_of_text|>", "<|eot_id|>", "meta-llama-Llama-3.1-8B-Instruct.jinja"),
         ("qwen3", None, "<|im_end|>", "Qwen-Qwen3-0.6B.jinja")]
PLAIN_TEMPLATE = "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"
CHATS = [[{"role": "user", "content": "Hi"}], [{"role": "user", "content": " 你好 🙂 "}],
         [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x<b>y"}]]


def main() -> None:
    result = []
    for name, bos, eos, template in CASES:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            subprocess.run(["zstd", "-dqc", FOLDER / f"{name}.tokenizer.json.zst"], stdout=file, check=True)
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=file.name, bos_token=bos, eos_token=eos)
        tokenizer.chat_template = (TEMPLATES / template).read_text() if template else PLAIN_TEMPLATE
        chats = [{"messages": messages, "tokens": tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)}
                 for messages in CHATS]
        if bos:
            assert all(c["tokens"].count(tokenizer.bos_token_id) == 1 for c in chats)
        texts = [{"text": t, "plain": tokenizer.encode(t, add_special_tokens=False), "begun": tokenizer.encode(t)} for t in TEXTS]
        result.append({"tokenizer": name, "bos": bos, "template": template, "inline": None if template else PLAIN_TEMPLATE,
                       "texts": texts, "chats": chats})
    (FOLDER / "field.json").write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")).replace('{"t', '\n{"t') + "\n")


if __name__ == "__main__":
    main()
