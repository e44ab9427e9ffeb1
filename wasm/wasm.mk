# make wasm: the library and the command line as a WebAssembly module for WASI, $(B)/wasm/lamina.wasm, and once more with kernels of
# relaxed SIMD, $(B)/wasm/lamina-relaxed.wasm, since an engine without it refuses such a module as a whole. The launcher takes the right one:
#     node wasm/lamina.mjs ARGUMENTS…
# Sources are the native program's own; a file X_posix.c, X_openssl.c or X_x86.c has its replacement beside it
# (docs/decisions/2026-11-29-webassembly-build.md).

WASM_CC      ?= clang-19
WASI_SYSROOT ?= /usr
WB := $(B)/wasm
WT := $(WB)/third_party

# -nostdlibinc: below /usr/include lie the native headers, too.
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

WASM_NOT_HERE := %_posix.c %_openssl.c %_web.c src/store/%.c cli/cmd_store.c cli/held.c cli/cmd_pull.c cli/cmd_push.c cli/cmd_seed.c cli/transfer.c cli/first_launch.c src/kernels/variants_portable.c $(filter-out $(KERNELS_wasm),$(MACHINE_KERNELS))
WASM_SRC := $(filter-out $(WASM_NOT_HERE),$(sort $(wildcard src/*/*.c cli/*.c))) wasm/folder.c
WASM_OBJ := $(WASM_SRC:%.c=$(WB)/%.o)
# What the two modules differ in.
RELAXED_OBJ := $(filter %_relaxed.o,$(WASM_OBJ))
PLAIN_OBJ   := $(WB)/src/kernels/variants_wasm.o
# The only instruction taken from relaxed SIMD gives the same bits everywhere: see src/kernels/gemm_quant_relaxed.c.
$(RELAXED_OBJ): WASM_ISA := -mrelaxed-simd

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

# Of each library, for arm/arm.mk, too.
ZSTD_FLAGS     = -DXXH_NAMESPACE=ZSTD_ -DZSTD_DISABLE_ASM -DZSTD_LEGACY_SUPPORT=0
JANSSON_FLAGS  = -DHAVE_CONFIG_H -Iwasm/config/jansson -D_DEFAULT_SOURCE
PCRE2_FLAGS    = -DHAVE_CONFIG_H -DPCRE2_CODE_UNIT_WIDTH=8 -Iwasm/config/pcre2 -I$(WT)/include
UTF8PROC_FLAGS = -DUTF8PROC_STATIC
$(WT)/libzstd/%.o: FLAGS = $(ZSTD_FLAGS)
$(WT)/jansson/%.o: FLAGS = $(JANSSON_FLAGS)
$(WT)/pcre2/%.o: FLAGS = $(PCRE2_FLAGS)
$(WT)/utf8proc/%.o: FLAGS = $(UTF8PROC_FLAGS)

wasm: $(WB)/lamina.wasm $(WB)/lamina-relaxed.wasm

.PHONY: wasm-deps
wasm-deps:
	@tools/deps.sh --wasm

# Fetched once; the headers of the four in one folder. PCRE2 brings two of its files under other names.
$(WT)/ready: | wasm-deps
	@wasm/sources.sh $(WT) libzstd jansson pcre2 utf8proc
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
	@$(WASM_CC) $(WASM_CFLAGS) $(WASM_ISA) -MMD -MP -c $< -o $@

$(WB)/lamina.wasm: $(filter-out $(RELAXED_OBJ),$(WASM_OBJ)) $(THIRD_PARTY)
$(WB)/lamina-relaxed.wasm: $(filter-out $(PLAIN_OBJ),$(WASM_OBJ)) $(THIRD_PARTY)
$(WB)/lamina.wasm $(WB)/lamina-relaxed.wasm:
	@echo "$(WASM_CC) -o $@"
	@$(WASM_CC) $(WASM_LDFLAGS) $^ -o $@

# make wasm-test: unit tests that need nothing but memory and files, as 32-bit programs; wasm/cmocka stands in for cmocka.
# test_slm stays out: its memory bound does not count zstd's own buffers, which here are in the same program; and test_gguf,
# which expects of a tensor of 8 GiB that its size fits.
WASM_TESTS := invariance merkle safetensors
WASM_TEST_SRC := tests/support.c wasm/cmocka/mkdtemp.c
WASM_LIB_OBJ = $(filter-out $(WB)/cli/%,$(WASM_OBJ)) $(THIRD_PARTY)
PLAIN_LIB    = $(filter-out $(RELAXED_OBJ),$(WASM_LIB_OBJ))
RELAXED_LIB  = $(filter-out $(PLAIN_OBJ),$(WASM_LIB_OBJ))
$(WB)/tests/test_safetensors.wasm: METERED := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free

WASM_PROGRAM = mkdir -p $(@D) && echo "$(WASM_CC) -o $@" && \
    $(WASM_CC) $(WASM_CFLAGS) -isystem wasm/cmocka $(WASM_LDFLAGS) $(METERED) $(filter-out %.h,$^) -o $@

$(WB)/tests/test_%-relaxed.wasm: tests/test_%.c $(WASM_TEST_SRC) wasm/cmocka/cmocka.h $(RELAXED_LIB)
	@$(WASM_PROGRAM)
$(WB)/tests/test_%.wasm: tests/test_%.c $(WASM_TEST_SRC) wasm/cmocka/cmocka.h $(PLAIN_LIB)
	@$(WASM_PROGRAM)
$(WB)/bench/bench_kernels.wasm: bench/bench_kernels.c $(PLAIN_LIB)
	@$(WASM_PROGRAM)
$(WB)/bench/bench_kernels-relaxed.wasm: bench/bench_kernels.c $(RELAXED_LIB)
	@$(WASM_PROGRAM)

# Both modules' unit tests of what the two differ in.
.PHONY: wasm-programs
wasm-programs: wasm $(foreach test,invariance kernels,$(WB)/tests/test_$(test).wasm $(WB)/tests/test_$(test)-relaxed.wasm)

.PHONY: wasm-test
wasm-test: wasm-programs $(WASM_TESTS:%=$(WB)/tests/test_%.wasm)
	@for test in $(filter %.wasm,$^); do echo $$test; LAMINA_WASM=$$test node wasm/lamina.mjs || exit 1; done
	@tests/wasm_kernels.sh $(B)

# make wasm-check: the same logits and imported files as the native program's.
.PHONY: wasm-check
wasm-check: wasm-programs $(B)/lamina $(B)/tests/test_invariance
	@tests/wasm_digests.sh $(B)

# make wasm-bench: speed of each kernel in Node, on one thread. --no-liftoff: optimised from the start, as a long run is after a moment.
.PHONY: wasm-bench
wasm-bench: $(WB)/bench/bench_kernels-relaxed.wasm $(WB)/bench/bench_kernels.wasm
	@node=$$(wasm/node24.sh $(WB)/node24) && module=bench_kernels-relaxed || { node=node; module=bench_kernels; }; \
	    LAMINA_WASM=$(WB)/bench/$$module.wasm $$node --no-liftoff wasm/lamina.mjs

-include $(WASM_OBJ:.o=.d)
