# make wasm: the library and the command line as one WebAssembly module for WASI, $(B)/wasm/lamina.wasm;
#     node wasm/lamina.mjs ARGUMENTS…
# Sources are the native program's own; a file X_posix.c, X_openssl.c or X_x86.c has its replacement beside it
# (docs/decisions/2026-11-29-webassembly-build.md).

WASM_CC      ?= clang-19
WASI_SYSROOT ?= /usr
WB := $(B)/wasm
WT := $(WB)/third_party

# -nostdlibinc: below /usr/include lie the native headers, too. Relaxed SIMD would not be the same bits everywhere.
WASM_TARGET := --target=wasm32-wasi --sysroot=$(WASI_SYSROOT)
WASM_FLAGS := $(WASM_TARGET) -nostdlibinc -isystem $(WASI_SYSROOT)/include/wasm32-wasi \
              -msimd128 -mbulk-memory -mnontrapping-fptoint -msign-ext -O3 $(NUMERIC)
# signal() may be called, and no signal ever comes.
# Two of clang's warnings meet sound code: a size_t's bound above 4 GiB, "\xEF" "end" cut after its escape.
WASM_CFLAGS = $(WASM_FLAGS) $(WARN) -Wno-tautological-constant-out-of-range-compare -Wno-string-concatenation \
              -Iinclude -Isrc -DLAM_VERSION='"$(VERSION)"' -D_WASI_EMULATED_SIGNAL $(EXTRA) \
              -isystem $(WT)/include -isystem wasm/config/jansson
# The stack lies first in memory, so that running out of it traps.
WASM_LDFLAGS := $(WASM_TARGET) -Wl,-z,stack-size=8388608 -Wl,--stack-first -Wl,--strip-debug -lwasi-emulated-signal

WASM_NOT_HERE := %_posix.c %_openssl.c %_avx2.c %_avx512.c %_x86.c
WASM_SRC := $(filter-out $(WASM_NOT_HERE),$(sort $(wildcard src/*/*.c cli/*.c))) wasm/folder.c
WASM_OBJ := $(WASM_SRC:%.c=$(WB)/%.o)

ZSTD_SRC := $(addprefix libzstd/lib/,$(addsuffix .c, \
    $(addprefix common/,debug entropy_common error_private fse_decompress xxhash zstd_common) \
    $(addprefix compress/,fse_compress hist huf_compress zstd_compress zstd_compress_literals zstd_compress_sequences \
        zstd_compress_superblock zstd_double_fast zstd_fast zstd_lazy zstd_ldm zstd_opt) \
    $(addprefix decompress/,huf_decompress zstd_ddict zstd_decompress zstd_decompress_block)))
JANSSON_SRC := $(patsubst %,jansson/src/%.c,dump error hashtable hashtable_seed load memory pack_unpack strbuffer strconv utf \
    value version)
PCRE2_SRC := $(patsubst %,pcre2/src/pcre2_%.c,auto_possess chartables compile config context convert dfa_match error extuni \
    find_bracket maketables match match_data newline ord2utf pattern_info script_run serialize string_utils study substitute \
    substring tables ucd valid_utf xclass)
UTF8PROC_SRC := utf8proc/utf8proc.c
THIRD_PARTY := $(patsubst %.c,$(WT)/%.o,$(ZSTD_SRC) $(JANSSON_SRC) $(PCRE2_SRC) $(UTF8PROC_SRC))

$(WT)/libzstd/%.o: FLAGS = -DXXH_NAMESPACE=ZSTD_ -DZSTD_DISABLE_ASM -DZSTD_LEGACY_SUPPORT=0
$(WT)/jansson/%.o: FLAGS = -DHAVE_CONFIG_H -Iwasm/config/jansson -D_DEFAULT_SOURCE
$(WT)/pcre2/%.o: FLAGS = -DHAVE_CONFIG_H -DPCRE2_CODE_UNIT_WIDTH=8 -Iwasm/config/pcre2 -I$(WT)/include
$(WT)/utf8proc/%.o: FLAGS = -DUTF8PROC_STATIC

wasm: $(WB)/lamina.wasm

.PHONY: wasm-deps
wasm-deps:
	@tools/deps.sh --wasm

# Fetched once; the headers of the four in one folder. PCRE2 brings two of its files under other names.
$(WT)/ready: | wasm-deps
	@wasm/sources.sh $(WT)
	@mkdir -p $(WT)/include
	@cp $(WT)/libzstd/lib/zstd.h $(WT)/libzstd/lib/zstd_errors.h $(WT)/jansson/src/jansson.h $(WT)/utf8proc/utf8proc.h $(WT)/include
	@cp $(WT)/pcre2/src/pcre2.h.generic $(WT)/include/pcre2.h
	@cp $(WT)/pcre2/src/pcre2_chartables.c.dist $(WT)/pcre2/src/pcre2_chartables.c
	@touch $@

$(WT)/%.c: | $(WT)/ready ;

$(THIRD_PARTY): $(WT)/%.o: $(WT)/%.c
	@echo "$(WASM_CC) $(<F)"
	@$(WASM_CC) $(WASM_FLAGS) $(FLAGS) -w -c $< -o $@

$(WASM_OBJ): $(WB)/%.o: %.c | $(WT)/ready wasm-deps
	@mkdir -p $(@D)
	@echo "$(WASM_CC) $<"
	@$(WASM_CC) $(WASM_CFLAGS) -MMD -MP -c $< -o $@

$(WB)/lamina.wasm: $(WASM_OBJ) $(THIRD_PARTY)
	@echo "$(WASM_CC) -o $@"
	@$(WASM_CC) $(WASM_LDFLAGS) $^ -o $@

# make wasm-test: unit tests that need nothing but memory and files, as 32-bit programs; wasm/cmocka stands in for cmocka.
# test_slm stays out: its memory bound does not count zstd's own buffers, which here are in the same program; and test_gguf,
# which expects of a tensor of 8 GiB that its size fits.
WASM_TESTS := invariance kernels merkle safetensors
WASM_TEST_SRC := tests/support.c wasm/cmocka/mkdtemp.c
WASM_LIB_OBJ = $(filter-out $(WB)/cli/%,$(WASM_OBJ)) $(THIRD_PARTY)
$(WB)/tests/test_safetensors.wasm: METERED := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free

$(WB)/tests/test_%.wasm: tests/test_%.c $(WASM_TEST_SRC) wasm/cmocka/cmocka.h $(WASM_LIB_OBJ)
	@mkdir -p $(@D)
	@echo "$(WASM_CC) -o $@"
	@$(WASM_CC) $(WASM_CFLAGS) -isystem wasm/cmocka $(WASM_LDFLAGS) $(METERED) $< $(WASM_TEST_SRC) $(WASM_LIB_OBJ) -o $@

.PHONY: wasm-test
wasm-test: $(WASM_TESTS:%=$(WB)/tests/test_%.wasm)
	@for test in $^; do echo $$test; LAMINA_WASM=$$test node wasm/lamina.mjs || exit 1; done

# make wasm-check: the same logits and imported files as the native program's.
.PHONY: wasm-check
wasm-check: $(B)/lamina $(WB)/lamina.wasm
	@tests/wasm_digests.sh $(B)

-include $(WASM_OBJ:.o=.d)
