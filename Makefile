# make           builds build/lamina, liblamina.a, liblamina.so and the examples
# make run       installs what is missing, builds, and shows the main job on the model that ships here
# make test      the same, and runs every test
# make wasm | fuzz | mutants | bench | install | clean: see CONTRIBUTING.md

B       ?= build
CC      ?= gcc
PREFIX  ?= /usr/local
VERSION := 0.1.0

# Strict arithmetic: see docs/numeric.md. No -march, no -ffast-math, no contraction.
NUMERIC := -std=c11 -ffp-contract=off
CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Werror
PKGS    := jansson libzstd libcrypto libpcre2-8 libutf8proc
ALL_CFLAGS = $(NUMERIC) $(CFLAGS) $(WARN) -fPIC -fvisibility=hidden -Iinclude -Isrc -DLAM_VERSION='"$(VERSION)"' $(EXTRA)
LIBS     = $(shell pkg-config --libs $(PKGS)) -lpthread -lm

ARCH    := $(shell uname -m)
# What one kind of machine alone has; any other takes the portable list of variants.
KERNELS_x86_64  := %_avx2.c %_avx2vnni.c %_avx512.c %_x86.c
KERNELS_aarch64 := %_neon.c %_neondot.c %_arm.c
KERNELS_wasm    := %_simd128.c %_relaxed.c %_wasm.c
MACHINE_KERNELS := $(KERNELS_x86_64) $(KERNELS_aarch64) $(KERNELS_wasm)
NOT_HERE := %_wasi.c %_web.c src/base/sha256_portable.c src/compose/signature_portable.c src/base/pool_serial.c $(filter-out $(KERNELS_$(ARCH)),$(MACHINE_KERNELS)) \
            $(if $(KERNELS_$(ARCH)),src/kernels/variants_portable.c)

# Where `lamina run` gets a first model from, and what its default must be, "sha256:…" (docs/pull.md): make SEED_URL=https://… SEED_ROOT=sha256:…
SEED_URL  ?=
SEED_ROOT ?=
$(B)/src/store/pull.o: ALL_CFLAGS += -DLAM_SEED_URL='"$(SEED_URL)"' -DLAM_SEED_ROOT='"$(SEED_ROOT:%=\#%)"'

LIB_SRC := $(filter-out $(NOT_HERE),$(sort $(wildcard src/*/*.c)))
CLI_SRC := $(filter-out %_wasi.c,$(sort $(wildcard cli/*.c)))
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)
TESTS   := $(patsubst tests/%.c,$(B)/tests/%,$(sort $(wildcard tests/test_*.c))) \
           $(patsubst fuzz/fuzz_%.c,$(B)/tests/mutate_%,$(sort $(wildcard fuzz/fuzz_*.c)))

.PHONY: all run test tests test-asan test-tsan soak deps wasm fuzz mutants bench install uninstall clean
.SECONDARY:

all: $(B)/lamina $(B)/liblamina.a $(B)/liblamina.so $(B)/examples/hello $(B)/examples/story

JOBS := -j$(shell nproc 2>/dev/null || echo 2)

deps:
	@tools/deps.sh

# The main job: the default model, its two specialists, and back.
DEMO := $(B)/demo
run: deps
	@$(MAKE) --no-print-directory $(JOBS) all
	@mkdir -p $(DEMO)
	@$(B)/lamina import data/stories260K-Q8_0.gguf -o $(DEMO)/stories.slm -q
	@$(B)/lamina import data/adapters/shakespeare -m $(DEMO)/stories.slm -o $(DEMO)/shakespeare.slm
	@$(B)/lamina import data/adapters/oz -m $(DEMO)/stories.slm -o $(DEMO)/oz.slm
	@echo
	@$(B)/examples/story $(DEMO)/stories.slm $(DEMO)/shakespeare.slm $(DEMO)/oz.slm

test:
	@tools/deps.sh --test --wasm --arm
	@$(MAKE) --no-print-directory $(JOBS) all tests wasm-programs arm-tests
	@tools/run_tests.sh $(B) $(TESTS)

tests: $(TESTS) $(B)/tests/memory

# The same suites under sanitizers, in build folders of their own.
SANITIZE_FLAGS := -O1 -g -fno-omit-frame-pointer
test-asan:
	@tools/deps.sh --test
	@$(MAKE) --no-print-directory $(JOBS) B=$(B)/asan CFLAGS="$(SANITIZE_FLAGS)" EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=all" \
	    LDFLAGS="-fsanitize=address,undefined" all tests
	@tools/run_tests.sh $(B)/asan $(TESTS:$(B)/%=$(B)/asan/%)

test-tsan:
	@tools/deps.sh --test
	@$(MAKE) --no-print-directory $(JOBS) B=$(B)/tsan CFLAGS="$(SANITIZE_FLAGS)" EXTRA="-fsanitize=thread" LDFLAGS="-fsanitize=thread" all tests
	@tools/run_tests.sh $(B)/tsan $(TESTS:$(B)/%=$(B)/tsan/%)

# Mixed decode by several callers for SOAK_SECONDS under each of the sanitizers.
SOAK_SECONDS ?= 1200
soak:
	@tools/deps.sh --test
	@$(MAKE) --no-print-directory $(JOBS) B=$(B)/tsan CFLAGS="$(SANITIZE_FLAGS)" EXTRA="-fsanitize=thread" LDFLAGS="-fsanitize=thread" $(B)/tsan/tests/soak
	@$(MAKE) --no-print-directory $(JOBS) B=$(B)/asan CFLAGS="$(SANITIZE_FLAGS)" EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=all" \
	    LDFLAGS="-fsanitize=address,undefined" $(B)/asan/tests/soak
	@SOAK_SECONDS=$(SOAK_SECONDS) $(B)/tsan/tests/soak
	@SOAK_SECONDS=$(SOAK_SECONDS) $(B)/asan/tests/soak

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/lamina
	install -m 755 $(B)/lamina $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(B)/liblamina.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(B)/liblamina.so $(DESTDIR)$(PREFIX)/lib/liblamina.so.$(VERSION)
	ln -sf liblamina.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/liblamina.so.0
	ln -sf liblamina.so.0 $(DESTDIR)$(PREFIX)/lib/liblamina.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@PKGS@|$(PKGS)|' lamina.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/lamina.pc
	install -m 644 include/lamina/*.h $(DESTDIR)$(PREFIX)/include/lamina/
	install -d $(DESTDIR)$(PREFIX)/share/lamina
	install -m 644 data/stories260K-Q8_0.gguf data/LICENSE.stories260K $(DESTDIR)$(PREFIX)/share/lamina/
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || echo "not root: run ldconfig, or set LD_LIBRARY_PATH=$(PREFIX)/lib"

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/lamina $(DESTDIR)$(PREFIX)/lib/liblamina.a $(DESTDIR)$(PREFIX)/lib/liblamina.so* \
	    $(DESTDIR)$(PREFIX)/lib/pkgconfig/lamina.pc
	rm -rf $(DESTDIR)$(PREFIX)/include/lamina $(DESTDIR)$(PREFIX)/share/lamina

# One instruction set a file; the flags never reach another file.
# UNSCOPED: unrolled as they are, the checks of scopes under -fsanitize=address take the compiler many minutes.
UNSCOPED := -fno-sanitize-address-use-after-scope
$(B)/src/kernels/%_avx2.o: ISA = -mavx2 -mf16c $(UNSCOPED)
$(B)/src/kernels/%_avx2vnni.o: ISA = -mavx2 -mf16c -mavxvnni $(UNSCOPED)
$(B)/src/kernels/%_avx512.o: ISA = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mf16c $(UNSCOPED)
$(B)/src/kernels/%_neondot.o: ISA = -march=armv8.2-a+dotprod

$(B)/%.o: %.c
	@mkdir -p $(@D)
	@echo '  CC  $<'
	@$(CC) $(ALL_CFLAGS) $(ISA) -MMD -MP -c $< -o $@

$(B)/liblamina.a: $(LIB_OBJ)
	@rm -f $@
	@ar rcs $@ $^

$(B)/liblamina.so: $(LIB_OBJ)
	@echo '  LD  $@'
	@$(CC) -shared -Wl,-soname,liblamina.so.0 $(LDFLAGS) $^ $(LIBS) -o $@

$(B)/lamina: $(CLI_OBJ) $(B)/liblamina.a
	@echo '  LD  $@'
	@$(CC) $(LDFLAGS) $^ $(LIBS) -o $@

$(B)/examples/%: examples/%.c $(B)/liblamina.a
	@mkdir -p $(@D)
	@echo '  CC  $<'
	@$(CC) $(NUMERIC) $(CFLAGS) $(WARN) $(EXTRA) -Iinclude $(LDFLAGS) $^ $(LIBS) -o $@

# Each tests/test_X.c is a program of its own.
$(B)/tests/test_%: $(B)/tests/test_%.o $(B)/tests/support.o $(B)/liblamina.a
	@echo '  LD  $@'
	@$(CC) $(LDFLAGS) $(TEST_LDFLAGS) $^ -lcmocka $(LIBS) -o $@

$(B)/tests/soak: $(B)/tests/soak.o $(B)/tests/support.o $(B)/liblamina.a
	@echo '  LD  $@'
	@$(CC) $(LDFLAGS) $^ -lcmocka $(LIBS) -o $@

# What tests/cli/peak.py measures.
$(B)/tests/memory: $(B)/tests/memory.o $(B)/liblamina.a
	@echo '  LD  $@'
	@$(CC) $(LDFLAGS) $^ $(LIBS) -o $@

# Tests that hold something to a memory bound (tests/alloc_meter.h), or take memory away.
$(addprefix $(B)/tests/test_,gguf safetensors slm hostile scarce overlays materialize runtime): TEST_LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free

# The store under faults: tests/faults/shim.c stands before the system's calls.
comma := ,
FAULTY := open stat lstat fstat mkdir unlink rmdir fchmod flock opendir realpath mmap write pwrite ftruncate fsync rename malloc calloc realloc \
          aligned_alloc time
$(B)/tests/test_store_faults: $(B)/tests/faults/shim.o
$(B)/tests/test_store_faults: TEST_LDFLAGS += $(FAULTY:%=-Wl$(comma)--wrap=%)

include wasm/wasm.mk
include web/web.mk
include arm/arm.mk
include fuzz/fuzz.mk

# Each promise broken on purpose, to show that its test notices.
mutants:
	@tools/deps.sh --test
	@$(MAKE) --no-print-directory $(JOBS) all tests
	@tools/mutants.sh $(B)

# Kernel by kernel, then the shipped model; beside llama.cpp: bench/versus_llamacpp.py, bench/versus_llama_server.py.
$(B)/bench/%: bench/%.c $(B)/liblamina.a
	@mkdir -p $(@D)
	@echo '  CC  $<'
	@$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@

bench: deps
	@$(MAKE) --no-print-directory $(JOBS) all $(B)/bench/bench_kernels
	@$(B)/bench/bench_kernels
	@$(B)/lamina bench data/stories260K-Q8_0.gguf

clean:
	rm -rf $(B)

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TESTS:%=%.d)
