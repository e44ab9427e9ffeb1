#!/usr/bin/env python3
"""Writes a LoRA of random factors on all seven projections of a GGUF model, as a LoRA GGUF that Lamina and llama.cpp both take.

    python3 bench/make_lora.py model.gguf lora-r16.gguf --rank 16

The factors are float16, as llama.cpp's own converter writes them. The same seed gives the same file. Needs numpy and gguf.
"""
import argparse
import re

import gguf
import numpy as np

PROJECTIONS = re.compile(r"blk\.\d+\.(attn_q|attn_k|attn_v|attn_output|ffn_gate|ffn_up|ffn_down)\.weight$")
STRENGTH = 0.01  # of B: small beside the base's weights, so that activations stay in range


def text_of(reader, key):
    return bytes(reader.fields[key].parts[-1]).decode()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("base")
    p.add_argument("out")
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()

    base = gguf.GGUFReader(a.base)
    w = gguf.GGUFWriter(a.out, text_of(base, "general.architecture"))
    w.add_type(gguf.GGUFType.ADAPTER)
    w.add_string(gguf.Keys.Adapter.TYPE, "lora")
    w.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(a.rank))
    random = np.random.default_rng(a.seed)
    for tensor in base.tensors:
        if not PROJECTIONS.match(tensor.name):
            continue
        cols, rows = (int(d) for d in tensor.shape)  # the row's length comes first
        down = random.standard_normal((a.rank, cols), dtype=np.float32) / np.sqrt(cols)
        up = random.standard_normal((rows, a.rank), dtype=np.float32) * STRENGTH
        w.add_tensor(tensor.name + ".lora_a", down.astype(np.float16))
        w.add_tensor(tensor.name + ".lora_b", up.astype(np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
