# make fuzz: every fuzz/fuzz_X.c against the library, with libFuzzer under AddressSanitizer and UndefinedBehaviorSanitizer,
# FUZZ_SECONDS each. FUZZ=gguf runs one alone. What is found lies in $(B)/fuzz/; corpora stay in $(B)/fuzz/corpus and grow.

FUZZ_CC      ?= clang-19
FUZZ_SECONDS ?= 30
FB := $(B)/fuzz

FUZZ ?= $(patsubst fuzz/fuzz_%.c,%,$(sort $(wildcard fuzz/fuzz_*.c)))

# Parsers need no fast kernels: the portable list of variants serves on every machine.
FUZZ_NOT_HERE := %_wasi.c $(MACHINE_KERNELS) src/base/pool_serial.c src/base/sha256_portable.c src/compose/signature_portable.c
FUZZ_LIB_SRC := $(filter-out $(FUZZ_NOT_HERE),$(sort $(wildcard src/*/*.c)))
FUZZ_LIB_OBJ := $(FUZZ_LIB_SRC:%.c=$(FB)/%.o)

# The two warnings that are off meet sound code under clang alone; see wasm/wasm.mk.
FUZZ_CFLAGS = $(NUMERIC) -O1 -g -fno-omit-frame-pointer $(WARN) -Wno-tautological-constant-out-of-range-compare \
              -Wno-string-concatenation -Iinclude -Isrc -DLAM_VERSION='"$(VERSION)"' -fno-sanitize-recover=all

# Folders with files to begin from, besides fuzz/corpus/X where there is one.
FUZZ_SEEDS_gguf := tests/data/format
FUZZ_SEEDS_safetensors := tests/data/format
FUZZ_SEEDS_slm := tests/data/format
FUZZ_SEEDS_template := tests/data/templates
FUZZ_SEEDS_peft_config := tests/data/adapters/configs
FUZZ_SEEDS_spm_model := tests/golden/gemma3-caps
FUZZ_SEEDS_tokenizer_json := tests/golden/gemma3-caps tests/golden/qwen2-tied
FUZZ_SEEDS_hf_config := tests/golden/gemma3-caps tests/golden/llama-rope3 tests/golden/llama-yarn

.PHONY: fuzz fuzz-build
fuzz:
	@tools/deps.sh --fuzz
	@$(MAKE) --no-print-directory $(JOBS) fuzz-build
	@set -e; $(foreach f,$(FUZZ),$(call fuzz_run,$f))

fuzz-build: $(FUZZ:%=$(FB)/fuzz_%)

define fuzz_run
echo "fuzz_$1, $(FUZZ_SECONDS) s"; mkdir -p $(FB)/corpus/$1; \
$(FB)/fuzz_$1 -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=2048 -max_len=262144 -verbosity=0 -print_final_stats=1 \
    -artifact_prefix=$(FB)/$1- $(FB)/corpus/$1 $(wildcard fuzz/corpus/$1) $(FUZZ_SEEDS_$1);
endef

$(FB)/src/%.o: src/%.c
	@mkdir -p $(@D)
	@echo '  FUZZ-CC  $<'
	@$(FUZZ_CC) $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link,address,undefined -MMD -MP -c $< -o $@

$(FB)/liblamina.a: $(FUZZ_LIB_OBJ)
	@rm -f $@
	@ar rcs $@ $^

$(FB)/fuzz_%: fuzz/fuzz_%.c $(FB)/liblamina.a
	@echo '  FUZZ-LD  $@'
	@$(FUZZ_CC) $(FUZZ_CFLAGS) -fsanitize=fuzzer,address,undefined -MMD -MP -MF $@.d $< $(FB)/liblamina.a $(LIBS) -o $@

# The targets as plain tests (tests/mutate.c), with any compiler and the build's own flags, beginning from the small files among the same.
MUTATE_SEEDS_gguf := tests/data/format/*.gguf tests/golden/adapters/llama-gqa/head.gguf
MUTATE_SEEDS_safetensors := tests/data/format/*.safetensors
MUTATE_SEEDS_slm := fuzz/corpus/slm/*
MUTATE_SEEDS_vocab := fuzz/corpus/vocab/*
MUTATE_SEEDS_http := fuzz/corpus/http/*
MUTATE_SEEDS_remote_json := fuzz/corpus/remote_json/*.json
MUTATE_SEEDS_manifest := fuzz/corpus/manifest/*.json
MUTATE_SEEDS_session := fuzz/corpus/session/*
MUTATE_SEEDS_tokenize := fuzz/corpus/tokenize/*
MUTATE_SEEDS_template := tests/data/templates/LFM2*.jinja tests/data/templates/Kimi-K2-Instruct.jinja
MUTATE_SEEDS_peft_config := tests/data/adapters/configs/*_lora__*.json
MUTATE_SEEDS_spm_model := tests/golden/gemma3-caps/tokenizer.model tests/golden/llama-bias/tokenizer.model
MUTATE_SEEDS_tokenizer_json := tests/golden/gemma3-caps/tokenizer.json tests/golden/qwen2-tied/tokenizer.json
MUTATE_SEEDS_hf_config := tests/golden/*/config.json

# Beside each program lies the list of its seeds, for tools/run_tests.sh.
$(B)/tests/mutate_%: fuzz/fuzz_%.c $(B)/tests/mutate.o $(B)/liblamina.a fuzz/fuzz.mk
	@echo '  LD  $@'
	@$(CC) $(ALL_CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d $(filter-out %.mk,$^) $(LIBS) -o $@
	@echo $(or $(sort $(wildcard $(MUTATE_SEEDS_$*))),$(error fuzz/fuzz.mk: no MUTATE_SEEDS_$*)) >$@.seeds

-include $(FUZZ_LIB_OBJ:.o=.d) $(wildcard $(FB)/*.d)
