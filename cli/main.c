/* lamina: the command line. Each command is a file of its own, cmd_<name>.c. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct command {
    const char *name;
    int (*run)(struct options *o);
    const char *arguments, *summary;
    const char *const *options;
    const char *examples;
};

static const char *const run_options[] = {"model", "adapter", "waive", "prompt", "system", "raw", "echo", "tokens", "temp", "top-k",
    "top-p", "min-p", "repeat-penalty", "seed", "threads", "ctx", "verify", "token-ids", "json", "quiet", "help", NULL};
static const char *const import_list[] = {"model", "output", "json", "quiet", "help", NULL};
static const char *const inspect_list[] = {"tensors", "json", "help", NULL};
static const char *const plain_list[] = {"json", "quiet", "help", NULL};
static const char *const export_list[] = {"model", "output", "json", "quiet", "help", NULL};
static const char *const logits_list[] = {"model", "adapter", "waive", "prompt", "raw", "token-ids", "chunk", "threads", "ctx",
    "verify", "output", "json", "quiet", "help", NULL};
static const char *const text_list[] = {"model", "prompt", "token-ids", "raw", "json", "help", NULL};
static const char *const perplexity_list[] = {"model", "adapter", "waive", "threads", "ctx", "verify", "json", "quiet", "help", NULL};
static const char *const bench_list[] = {"model", "adapter", "waive", "prompt", "tokens", "threads", "verify", "json", "help", NULL};

static const struct command commands[] = {
    {"run", cmd_run, "[MODEL]", "write text, or chat on a terminal", run_options,
     "  lamina run model.gguf -p \"Why is the sky blue?\"\n"
     "  lamina run model.slm -a poet.slm=0.7 --raw --echo -p \"Once upon a time\" -n 100 --seed 1\n"
     "  lamina run model.gguf                    a chat; /help lists its commands\n"
     "  echo \"Name three rivers.\" | lamina run model.gguf --json\n"},
    {"import", cmd_import, "SOURCE", "GGUF, Hugging Face folder, PEFT folder or LoRA GGUF to .slm", import_list,
     "  lamina import model.gguf -o model.slm\n  lamina import ./my-lora -m model.slm -o my-lora.slm\n"},
    {"inspect", cmd_inspect, "FILE", "what a file or folder holds", inspect_list, "  lamina inspect model.slm --tensors\n"},
    {"verify", cmd_verify, "FILE", "hash every byte of a .slm against its tree", plain_list, "  lamina verify model.slm\n"},
    {"export", cmd_export, "MODEL", "a base back to GGUF", export_list, "  lamina export model.slm -o model.gguf\n"},
    {"logits", cmd_logits, "[MODEL]", "a digest of the logits at every position, or the logits themselves (-o)", logits_list,
     "  lamina logits model.slm -p \"Hello\"\n  lamina logits model.slm --token-ids 1,2,3 -o logits.f32\n"},
    {"tokenize", cmd_tokenize, "[MODEL]", "text to token ids", text_list, "  lamina tokenize model.slm -p \"Hello\"\n"},
    {"detokenize", cmd_detokenize, "[MODEL]", "token ids to text", text_list, "  lamina detokenize model.slm --token-ids 15496,11\n"},
    {"perplexity", cmd_perplexity, "[MODEL] FILE", "perplexity of a text, windows as llama.cpp's", perplexity_list,
     "  lamina perplexity model.gguf wikitext.txt -c 512\n"},
    {"bench", cmd_bench, "[MODEL]", "prefill, decode, switch and load times", bench_list, "  lamina bench model.gguf -n 128 --json\n"},
    {"cache", cmd_cache, "list | clear [ENTRY]", "models imported for direct use", plain_list,
     "  lamina cache list\n  lamina cache clear\n"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void print_overview(FILE *to)
{
    fprintf(to, "lamina %s: quantised models with adapters laid over them, exactly and reversibly\n\nUsage: lamina COMMAND [OPTIONS]\n\n",
            lam_version());
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-11s %-22s %s\n", commands[i].name, commands[i].arguments, commands[i].summary);
    fprintf(to, "\nlamina COMMAND --help tells a command's options. LAMINA_ISA forces an instruction set (scalar, avx2, avx512).\n");
}

static void print_help(const struct command *c)
{
    printf("Usage: lamina %s %s [OPTIONS]\n\n%c%s.\n", c->name, c->arguments, c->summary[0] - ('a' <= c->summary[0] && c->summary[0] <= 'z' ? 32 : 0),
           c->summary + 1);
    options_print_help(c->options);
    printf("\nExamples:\n%s", c->examples);
}

#ifndef __wasi__
/* A mapped file that was truncated under us: the library cannot tell in time, so the program ends cleanly here. */
static void on_bus_error(int number)
{
    static const char message[] = "\nlamina: a model file was truncated or its disk failed while in use (LAM_E_CHANGED)\n";
    (void)number;
    if (write(STDERR_FILENO, message, sizeof message - 1) < 0) _exit(1);
    _exit(1);
}
#endif

static int run_command(const struct command *c, int argc, char **argv)
{
    struct options o;
    int status = 2;
    if (options_parse(argc, argv, 2, &o)) {
        if (o.help) {
            print_help(c);
            status = 0;
        } else {
            status = c->run(&o);
        }
    }
    options_release(&o);
    return status;
}

int main(int argc, char **argv)
{
#ifndef __wasi__
    signal(SIGBUS, on_bus_error);
#endif
    if (argc < 2) {
        print_overview(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_overview(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("lamina %s\n", lam_version());
        return 0;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return run_command(&commands[i], argc, argv);
    fprintf(stderr, "lamina: no command %s; see lamina --help\n", argv[1]);
    return 2;
}
