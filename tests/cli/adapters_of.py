"""Makes of a LoRA's PEFT folder a DoRA of the same factors, and an adapter that saves whole attention inputs:  adapters_of.py LORA DORA SAVED
Their values are of no matter: it is for measurements of memory."""
import json
import os
import struct
import sys

SAVED = ("q_proj", "k_proj", "v_proj")


def read(folder):
    with open(os.path.join(folder, "adapter_config.json")) as f:
        config = json.load(f)
    with open(os.path.join(folder, "adapter_model.safetensors"), "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    header.pop("__metadata__", None)
    return config, {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def write(folder, config, tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    os.mkdir(folder)
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def constant(*shape):
    n = 1
    for d in shape:
        n *= d
    return "F32", list(shape), struct.pack("<f", 0.25) * n


def main():
    config, lora = read(sys.argv[1])
    dora, saved = dict(lora), {}
    for name, (_, shape, _) in lora.items():
        module, part = name.rsplit(".lora_", 1)
        if part == "B.weight":
            dora[module + ".lora_magnitude_vector"] = constant(shape[0])
        if module.endswith(SAVED) and part == "B.weight":
            saved[module + ".weight"] = constant(shape[0], lora[module + ".lora_A.weight"][1][1])
        if module.endswith("o_proj"):
            saved[name] = lora[name]
    write(sys.argv[2], dict(config, use_dora=True), dora)
    write(sys.argv[3], dict(config, target_modules=["o_proj"], modules_to_save=list(SAVED)), saved)


main()
