/* The list of commands and their help. */
#include "commands.h"

#include "suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *const run_options[] = {"model", "store", "search", "adapter", "owner", "policy", "waive", "accept-tokenizer", "trust",
    "template", "prompt", "token-ids", "system", "raw", "echo", "allow-base", "draft", "save-session",
                                          "restore-session", "prefix-cache", "tokens", "temp",
    "top-k", "top-p", "min-p", "repeat-penalty", "seed", "ctx", "threads", "budget", "kv", "verify", "json", "quiet", "help", NULL};
static const char *const import_options[] = {"model", "store", "search", "output", "quantise", "accept-tokenizer", "json", "quiet", "help", NULL};
static const char *const inspect_options[] = {"tensors", "json", "help", NULL};
static const char *const plain_options[] = {"json", "quiet", "help", NULL};
static const char *const cache_options[] = {"json", "help", NULL};
static const char *const export_options[] = {"model", "store", "search", "output", "json", "quiet", "help", NULL};
static const char *const logits_options[] = {"model", "store", "search", "adapter", "owner", "policy", "waive", "accept-tokenizer", "trust",
    "template", "prompt", "token-ids", "raw", "allow-base", "output", "chunk", "ctx", "threads", "kv",
    "verify", "json", "quiet", "help", NULL};
static const char *const tokenize_options[] = {"model", "store", "search", "prompt", "raw", "json", "quiet", "help", NULL};
static const char *const detokenize_options[] = {"model", "store", "search", "token-ids", "raw", "json", "quiet", "help", NULL};
static const char *const perplexity_options[] = {"model", "store", "search", "adapter", "owner", "policy", "waive", "accept-tokenizer", "trust",
    "allow-base", "ctx", "threads", "budget", "kv", "verify", "json", "quiet", "help", NULL};
static const char *const bench_options[] = {"model", "store", "search", "adapter", "owner", "policy", "waive", "accept-tokenizer", "trust", "only",
    "prefill", "tokens", "sessions", "ctx", "runs", "threads", "budget", "kv",
    "verify", "json", "quiet", "help", NULL};

static const char *const plan_options[] = {"model", "store", "search", "adapter", "owner", "policy", "waive", "accept-tokenizer", "from", "draft",
    "prefix-cache", "ctx", "kv", "threads", "budget", "json", "quiet", "help", NULL};
static const char *const merge_options[] = {"model", "store", "search", "adapter", "owner", "waive", "accept-tokenizer", "dtype", "strict",
    "output", "threads", "verify", "json", "quiet", "help", NULL};
static const char *const diff_options[] = {"method", "density", "drop", "seed", "dtype", "output", "threads", "json", "quiet", "help",
    NULL};

static const char *const compose_options[] = {"model", "store", "search", "adapter", "owner", "policy", "waive", "accept-tokenizer", "kv",
    "template", "system", "temp", "top-k", "top-p", "min-p", "repeat-penalty", "seed",
    "receipt", "trust", "output", "verify", "json", "quiet", "help", NULL};
static const char *const check_options[] = {"model", "store", "search", "adapter", "owner", "policy", "waive", "accept-tokenizer", "kv", "template",
    "trust", "verify", "json", "quiet", "help", NULL};
static const char *const receipt_options[] = {"model", "store", "search", "adapter", "owner", "policy", "waive", "accept-tokenizer", "kv",
    "template", "figures", "by", "key", "trust", "output", "verify", "json",
    "quiet", "help", NULL};

static const char *const store_options[] = {"store", "name", "model", "adapter", "waive", "accept-tokenizer", "reason", "repair", "user", "cacert", "verify",
    "json", "quiet", "help", NULL};
static const char *const pull_options[] = {"name", "list", "source", "connections", "limit-rate", "user", "cacert", "plain-http", "trust", "store", "json", "quiet", "help", NULL};
static const char *const push_options[] = {"limit-rate", "user", "cacert", "plain-http", "store", "json", "quiet", "help", NULL};
static const char *const seed_options[] = {"output", "default", "key", "store", "json", "quiet", "help", NULL};

static const char import_model_help[] = "the base of an adapter, which needs one: .slm, GGUF, or a Hugging\nFace folder";
static const char run_notes[] =
    "MODEL may be a manifest (lamina compose), which says what is composed, or a name in the store (lamina store).\n"
    "FILE=WEIGHT: the last '=' counts if a number follows and no file has the whole text as its name.\n"
    "In a chat, `rlwrap lamina run ...` (a program of its own) lets you edit and recall lines.\n";

static const char store_notes[] =
    "add SOURCE…           .slm, GGUF, Hugging Face or PEFT folder, manifest; under --name, else the source's name\n"
    "list, show REF        what there is; * is active\n"
    "activate REF          a composition, or a base with the adapters of -a; run without a MODEL then takes it\n"
    "deactivate [ADAPTER]  the same without one adapter (name, place, digest), or without all\n"
    "rollback              the composition that was active before\n"
    "remove NAME, gc       take a name away; free what neither a name nor the active composition nor the one before needs\n"
    "fsck [--repair]       find everything that is wrong, byte for byte; put right what can be\n"
    "log [--verify]        who changed what, when and why; whether the log was changed\n"
    "export REF FOLDER, import FOLDER    copies, as OCI layouts\n"
    "REF is a name, a digest (sha256:…) or its first digits, 6 at least. A store is an OCI image layout: skopeo and oras read it.\n";

static const char bench_notes[] =
    "Decoding begins at position 128 of every session. GB/s are those of the weights, which a pass reads once for all its\n"
    "sessions; share is their part of the bandwidth, measured by reading the same bytes in the same run with as many threads.\n"
    "With adapters prefill and decode are measured without them, too, and compared run by run. Every history begins with the\n"
    "invocations of the activated ones; before it holds them whole, the base answers.\n";

static const struct command commands[] = {
    {"run", cmd_run, "[MODEL]", "write text, or chat on a terminal", run_options, run_notes,
     "  lamina run model.gguf -p \"Why is the sky blue?\"\n"
     "  lamina run model.slm -a poet.slm=0.7 --raw --echo -p \"Once upon a time\" -n 100 --seed 1\n"
     "  lamina run model.gguf                    a chat; /help lists its commands\n"
     "  echo \"Name three rivers.\" | lamina run model.gguf --json\n"},
    {"import", cmd_import, "SOURCE", "GGUF, Hugging Face folder, PEFT folder or LoRA GGUF to .slm", import_options,
     "Without -o the file is called as SOURCE is, with .slm, in this folder; then nothing is replaced.\n"
     "An adapter is bound to the base of -m (.slm, or what can be imported); so is an adapter's .slm that is bound to none.\n"
     "--quantise takes Hugging Face folders and GGUF files with F32, F16 or BF16 weights. Matrices whose rows are no multiple of 64\n"
     "long, norms and biases stay as they are. Options stand behind a colon, between commas: outliers=FRACTION (0.05 at most),\n"
     "keep=embedding, keep=output. The same source gives the same base_digest.\n",
     "  lamina import model.gguf -o model.slm\n  lamina import ./SmolLM2-135M --quantise q4_64:outliers=0.005 -o smol-q4.slm\n  lamina import ./my-lora -m model.slm -o my-lora.slm\n"},
    {"inspect", cmd_inspect, "FILE", "what a file or folder holds", inspect_options,
     "FILE is a model, an adapter, a saved session, a manifest or a receipt, or a folder of a model or an adapter.\n",
     "  lamina inspect model.slm\n  lamina inspect model.gguf --tensors\n  lamina inspect my-lora.slm --json\n  lamina inspect talk.session\n"},
    {"verify", cmd_verify, "FILE", "hash every byte of a .slm against its tree", plain_options, NULL,
     "  lamina verify model.slm\n  lamina verify model.slm --json\n"},
    {"export", cmd_export, "[MODEL]", "a base back to GGUF", export_options,
     "Tensors that came from GGUF have the same bytes as there. A manifest of a base alone may stand for it.\n", "  lamina export model.slm -o model.gguf\n"},
    {"logits", cmd_logits, "[MODEL]", "a digest of the logits at every position, or the logits (-o)", logits_options,
     "-o writes float32, little endian, a row of the vocabulary's size for every position.\n",
     "  lamina logits model.slm -p \"Hello\"\n  lamina logits model.slm --token-ids 1,2,3 -o logits.f32\n"},
    {"tokenize", cmd_tokenize, "[MODEL] [TEXT]", "text to token ids", tokenize_options,
     "Control tokens in the text are found, and BOS stands first where the model wants it; --raw does neither.\n",
     "  lamina tokenize model.slm \"Hello\"\n  lamina tokenize model.slm --json < letter.txt\n"},
    {"detokenize", cmd_detokenize, "[MODEL] [LIST]", "token ids to text", detokenize_options,
     "Control tokens are written, too; --raw leaves them out.\n",
     "  lamina detokenize model.slm 15496,11\n  lamina tokenize model.slm \"Hello\" | lamina detokenize model.slm\n"},
    {"perplexity", cmd_perplexity, "[MODEL] FILE", "perplexity of a text, windows as llama.cpp's", perplexity_options,
     "The text is cut into windows of -c tokens; the second half of each is scored.\n",
     "  lamina perplexity model.gguf wikitext.txt -c 512\n  lamina perplexity model.slm -a poet.slm poems.txt --json\n"},
    {"bench", cmd_bench, "[MODEL]", "prefill, decode, switch and load times", bench_options, bench_notes,
     "  lamina bench model.gguf\n  lamina bench model.gguf -a poet.slm -n 64 -t 4 --json\n"
     "  lamina bench model.slm --only decode,batch --sessions 1,2,4,8,16,32,64\n  lamina bench model.slm --only context -c 8192\n"},
    {"plan", cmd_plan, "[MODEL]", "how much memory a composition will take", plan_options,
     "Of both policies, or of the one of --policy. Nothing of it is allocated: the files tell. A GGUF file or a\n"
     "folder is imported for it first, once, as by lamina run.\n",
     "  lamina plan model.gguf -a poet.slm -c 4096\n  lamina plan model.slm -a poet.slm --from base --budget 2G\n"
     "  lamina plan model.slm -a poet.slm --draft base --prefix-cache 64\n"},
    {"merge", cmd_merge, "[MODEL]", "a base with its adapters as a new base", merge_options,
     "Writes OUT.slm or OUT.gguf and tells what encoding the changed weights again lost of them, and of the change. Laid over a base\n"
     "an adapter loses nothing of the kind, and can be taken off again.\n",
     "  lamina merge model.slm -a poet.slm -o poet-model.slm\n  lamina merge model.gguf -a poet.slm=0.7 --dtype q8_0 -o poet.gguf\n"},
    {"diff", cmd_diff, "BASE TUNED", "what a tuned model changed of its base, as an adapter", diff_options,
     "BASE and TUNED are .slm, GGUF or Hugging Face folders of one architecture and tokenizer. Where one is quantised its decoded weights\n"
     "count. New norms and biases become the adapter's, too. With --drop the seed says what is dropped.\n",
     "  lamina diff ./SmolLM2-135M ./SmolLM2-135M-Instruct --method lora:32 -o instruct.slm\n"
     "  lamina diff base.slm tuned.slm --method sparse --density 0.1 --drop 0.5 --seed 7 -o tuned-sparse.slm\n"},
    {"compose", cmd_compose, "[MODEL]", "a manifest of a base and its adapters", compose_options,
     "The manifest names every digest, and the files relative to its own folder; without -o it goes to standard output. Wherever a\n"
     "MODEL is taken a manifest may stand. --receipt puts receipts into it; MODEL may be the manifest itself. --template puts a chat\n"
     "template into it, --system and the sampling options what lamina run takes where its own options say nothing.\n",
     "  lamina compose model.gguf -a poet.slm=0.5 -a critic.slm,replace -o both.json\n"
     "  lamina compose model.slm -a a.slm,replace -a b.slm,replace --owner 'blk.0.*=b' --owner a -o ab.json\n"
     "  lamina run both.json -p \"Once\"\n"},
    {"check", cmd_check, "[MODEL]", "everything that is wrong with a manifest, or with a base and adapters", check_options,
     "Goes on after the first fault and prints all of them as a table.\n", "  lamina check both.json\n  lamina check model.slm -a poet.slm -a critic.slm --json\n"},
    {"receipt", cmd_receipt, "make | check | keygen", "statements that a composition was evaluated", receipt_options,
     "make [MODEL]: that the composition has these figures; with --key signed (Ed25519), else a bare hash.\n"
     "check RECEIPT [MODEL]: whether it is sound, who says so, and whether it is about MODEL's composition. Exit status: 0 a key that you\n"
     "trust vouches for it, 3 it is only claimed, 1 it is not sound or about another composition.\n"
     "keygen NAME: writes NAME-private.pem, and NAME.pem, which who trusts you puts into a trust list.\n",
     "  lamina perplexity both.json wiki.txt --json > figures.json\n"
     "  lamina receipt make both.json --figures figures.json --key me-private.pem --by Me -o receipt.json\n"
     "  lamina receipt check receipt.json both.json\n  lamina receipt keygen me\n"},
    {"store", cmd_store, "add | list | activate …", "models and adapters that are kept, and what is active", store_options, store_notes,
     "  lamina store add model.gguf --name smol\n  lamina store add ./my-lora -m smol --name poet\n"
     "  lamina store activate smol -a poet=0.7 --reason \"release 2\"\n  lamina run -p \"Hello\"\n  lamina store rollback\n"
     "  lamina store fsck --repair\n  skopeo copy oci:$HOME/.local/share/lamina:smol oci:/mnt/store:smol\n"},
    {"pull", cmd_pull, "REFERENCE [MODEL]", "a model or composition from another machine into the store", pull_options,
     "REFERENCE: the URL of a .slm, or of a seed (ends in / or .json; MODEL says which of its models, else its default); or a registry's\n"
     "oci://HOST/NAME[:TAG]. Behind # or @ may stand what it must be, sha256:…; else a signed index says it, else what was pulled from there\n"
     "before, else it is taken as it comes, and recorded. An interrupted pull goes on where it was. Proxies are taken from the environment.\n",
     "  lamina pull https://example.org/smol.slm#sha256:…\n  lamina pull https://example.org/smol.slm --source https://mirror.example.org/smol.slm\n"
     "  lamina pull https://example.org/seed/ --list\n  lamina pull registry.example.org/team/poet:v1 --name poet\n"},
    {"push", cmd_push, "REFERENCE REGISTRY", "something of the store to a registry", push_options,
     "REFERENCE: a name or digest of the store. Blobs that the registry has are not sent.\n",
     "  lamina push poet registry.example.org/team/poet:v1\n  lamina push poet oci://localhost:5000/poet\n"},
    {"seed", cmd_seed, "[NAME...]", "a folder that any web server can serve to lamina pull", seed_options,
     "Of these names of the store, or of all. Without -o it only tells what would be served. --key signs the index.\n",
     "  lamina seed smol poet -o /srv/www/seed --key me-private.pem\n  lamina pull https://example.org/seed/ poet\n"},
    {"cache", cmd_cache, "list | clear [ENTRY]", "models imported for direct use", cache_options,
     "ENTRY is a source's path or the beginning of a key, of 8 digits at least; without it all are meant.\nWhat is in use stays.\n",
     "  lamina cache list\n  lamina cache clear model.gguf\n  lamina cache clear\n"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

const struct command *command_find(const char *name, const struct command **near)
{
    const char *best = NULL;
    *near = NULL;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) return &commands[i];
        const char *nearer = nearer_word(name, best, commands[i].name);
        if (nearer != best) *near = &commands[i];
        best = nearer;
    }
    return NULL;
}

void commands_print_overview(void)
{
    printf("lamina %s: quantised models with adapters laid over them, exactly and reversibly\n\n", lam_version());
    printf("Usage: lamina COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++) printf("  %-11s %-21s %s\n", commands[i].name, commands[i].arguments, commands[i].summary);
    printf("\nlamina help COMMAND, or lamina COMMAND --help, tells its options and gives examples; lamina --version.\n\n"
           "Environment:\n"
           "  LAMINA_MODEL      the model if none is given (else the store's active composition, else the small one that ships here)\n"
           "  LAMINA_CACHE      folder of imported models (default: $XDG_CACHE_HOME/lamina, else ~/.cache/lamina)\n"
           "  LAMINA_CACHE_MAX  its size in bytes, or with k, M, G, T (default 20G)\n"
           "  LAMINA_ISA        instruction set, such as scalar, avx2, avx512, neon (default: the fastest here; results are the same)\n"
           "  LAMINA_STORE      the store (default: $XDG_DATA_HOME/lamina, else ~/.local/share/lamina)\n"
           "  LAMINA_SEED_URL   where `lamina run` gets a first model from if none is installed; empty: nowhere\n"
           "  LAMINA_TRUST      trusted public keys of receipts (default: $XDG_CONFIG_HOME/lamina/trust, else ~/.config/lamina/trust)\n"
           "  NO_COLOR          no colours\n\n"
           "Exit status: 0 done, 1 an error, 2 wrong use, 3 a receipt that is only claimed (receipt check), 130 after Ctrl-C.\n");
}

void command_print_help(const struct command *c)
{
    printf("Usage: lamina %s %s [OPTIONS]\n\n%c%s.\n%s", c->name, c->arguments, toupper((unsigned char)c->summary[0]), c->summary + 1,
           c->notes ? c->notes : "");
    options_print_help(c->name, c->options, c->run == cmd_import ? import_model_help : NULL);
    printf("\nExamples:\n%s", c->examples);
}
