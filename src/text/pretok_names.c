/* The pre-tokenizers that GGUF files name. The expressions are those of the models' own tokenizer.json files; the names
 * are llama.cpp's. */
#include "text/pretok.h"

#include <string.h>

const char lam_pretok_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define LLAMA3(digits)                                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* CJK as DeepSeek cuts it. */
#define DEEPSEEK_CJK "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"

static const char *const gpt2[] = {lam_pretok_gpt2, NULL};
static const char *const llama3[] = {LLAMA3("\\p{N}{1,3}"), NULL};
static const char *const qwen2[] = {LLAMA3("\\p{N}"), NULL};
static const char *const digits_gpt2[] = {"\\p{N}", lam_pretok_gpt2, NULL};
static const char *const falcon[] = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", lam_pretok_gpt2, "[0-9][0-9][0-9]", NULL};
static const char *const deepseek_coder[] = {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}", NULL};
static const char *const deepseek3[] = {
    "\\p{N}{1,3}", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+", NULL};
static const char *const deepseek_llm[] = {
    "[\r\n]",
    "\\s?["
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373"
    "\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481"
    "\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B"
    "\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B"
    "\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB"
    "\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128"
    "\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4"
    "\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF"
    "\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF"
    "\U0001E900-\U0001E943"
    "]+",
    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+", "\\s+$", DEEPSEEK_CJK, "\\p{N}+", NULL};

static const struct lam_pretok table[] = {
    {.name = "gpt-2", .expressions = gpt2},
    {.name = "mpt", .expressions = gpt2},
    {.name = "olmo", .expressions = gpt2},
    {.name = "llama-bpe", .ignore_merges = true, .add_bos = true, .expressions = llama3},
    {.name = "llama3", .ignore_merges = true, .add_bos = true, .expressions = llama3},
    {.name = "llama-v3", .ignore_merges = true, .add_bos = true, .expressions = llama3},
    {.name = "qwen2", .nfc = true, .expressions = qwen2},
    {.name = "deepseek-r1-qwen", .expressions = qwen2},
    {.name = "smollm", .expressions = digits_gpt2},
    {.name = "starcoder", .expressions = digits_gpt2},
    {.name = "refact", .expressions = digits_gpt2},
    {.name = "falcon", .expressions = falcon},
    {.name = "deepseek-llm", .expressions = deepseek_llm},
    {.name = "deepseek-coder", .expressions = deepseek_coder},
    {.name = "deepseek-v3", .expressions = deepseek3},
};
#define N_NAMES (sizeof table / sizeof *table)

const struct lam_pretok *lam_pretok_find(const char *name, size_t len)
{
    for (size_t i = 0; i < N_NAMES; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0) return &table[i];
    return NULL;
}

static bool has_steps(const struct lam_vocab *v, const struct lam_pretok *p)
{
    size_t at = 0;
    struct lam_step step;
    if (p->nfc && (!lam_vocab_next_step(v, &at, &step) || step.kind != LAM_STEP_NFC)) return false;
    for (size_t i = 0; p->expressions[i]; i++)
        if (!lam_vocab_next_step(v, &at, &step) || step.kind != LAM_STEP_SPLIT_REGEX || step.flags != LAM_SPLIT_ISOLATED ||
            strlen(p->expressions[i]) != step.a_len || memcmp(p->expressions[i], step.a, step.a_len) != 0)
            return false;
    return !lam_vocab_next_step(v, &at, &step);
}

const struct lam_pretok *lam_pretok_match(const struct lam_vocab *v, const char *name, size_t len)
{
    const struct lam_pretok *wanted = name ? lam_pretok_find(name, len) : NULL;
    for (size_t i = 0; i < N_NAMES; i++)
        if ((!name || &table[i] == wanted) && has_steps(v, &table[i]) && table[i].ignore_merges == ((v->flags & LAM_VOCAB_IGNORE_MERGES) != 0))
            return &table[i];
    return NULL;
}
