"""Small but complete tokenizers in the two families the models use: byte-level BPE and SentencePiece BPE."""
import io
import json
from pathlib import Path

import sentencepiece as spm
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers, Regex

TEXT = """A lamp stood on the table and the table stood in the room. The room was small; the lamp was smaller.
When the light went out, nobody saw the room, the table or the lamp, though all three were still there.
Numbers: 1, 2, 3, 10, 100, 2024. Code: for (int i = 0; i < n; i++) { sum += x[i]; } return sum;
The tailor's thread isn't the weaver's thread; they'll say it's theirs, and we've heard them before.
"""

# SentencePiece keeps every letter it sees, so its text uses few of them; other letters become byte pieces.
FEW_LETTERS = "the lamp at the stool met a tall man\nthe man sat on the stool as the lamp came on\n" * 4

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(folder: Path, size: int, pattern: str, bos: str | None, eos: str, specials: list[str],
               add_bos: bool, template: str | None) -> dict:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size - len(specials), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    assert tok.get_vocab_size() == size, tok.get_vocab_size()
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos, "add_bos_token": add_bos,
              "clean_up_tokenization_spaces": False}
    if bos:
        config["bos_token"] = bos
    if template:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return {"bos": tok.token_to_id(bos) if bos else None, "eos": tok.token_to_id(eos)}


def sentencepiece_bpe(folder: Path, size: int, order: list[str], prefix: bool, keep_model: bool) -> dict:
    """`order` names the control pieces by id, such as ['<unk>', '<s>', '</s>'] or Gemma's four."""
    bos = next(p for p in order if p in ("<s>", "<bos>"))
    eos = next(p for p in order if p in ("</s>", "<eos>"))
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(FEW_LETTERS.splitlines()), model_writer=out, model_type="bpe", vocab_size=size,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=prefix, hard_vocab_limit=False, minloglevel=2,
        unk_id=order.index("<unk>"), bos_id=order.index(bos), eos_id=order.index(eos),
        pad_id=order.index("<pad>") if "<pad>" in order else -1, bos_piece=bos, eos_piece=eos)
    proto = out.getvalue()
    sp = spm.SentencePieceProcessor(model_proto=proto)
    assert sp.get_piece_size() == size, sp.get_piece_size()
    if keep_model:
        (folder / "tokenizer.model").write_bytes(proto)
    vocab = {sp.id_to_piece(i): i for i in range(size)}
    ranked = []
    for piece, idx in vocab.items():
        if sp.is_control(idx) or sp.is_byte(idx) or sp.is_unknown(idx):
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocab and right in vocab:
                ranked.append((-sp.get_score(idx), vocab[left], vocab[right], [left, right]))
    ranked.sort()
    normal = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    normal.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    decode = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if prefix:
        decode.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    special = [{"id": i, "content": p, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, p in enumerate(order)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": normal}, "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                    {"SpecialToken": {"id": bos, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {bos: {"id": bos, "ids": [vocab[bos]], "tokens": [bos]}}},
        "decoder": {"type": "Sequence", "decoders": decode},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": vocab, "merges": [r[3] for r in ranked]}}, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "LlamaTokenizer" if bos == "<s>" else "GemmaTokenizer", "bos_token": bos, "eos_token": eos,
         "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False}))
    Tokenizer.from_file(str(folder / "tokenizer.json"))
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in range(size)]
    return {"bos": vocab[bos], "eos": vocab[eos], "unk": vocab["<unk>"], "pieces": [sp.id_to_piece(i) for i in range(size)],
            "scores": [sp.get_score(i) for i in range(size)], "kinds": kinds}
