# make web: the browser's package @lamina/web in $(B)/web/package: the library without the command line as WebAssembly modules, and the
# TypeScript in web/package that runs them in workers (docs/decisions/2026-11-30-browser.md).
# Objects are compiled once, with atomics, and linked four times: with and without shared memory, with and without relaxed SIMD.

XB  := $(B)/web
XWL := $(WT)/wasi-libc
XSYS := $(XB)/sysroot
XLIBC := $(XB)/libc

WEB_TARGET := --target=wasm32-wasi --sysroot=$(XSYS) -pthread
WEB_FLAGS  := $(WEB_TARGET) -nostdlibinc -isystem $(XSYS)/include -matomics -D_Thread_local= -msimd128 -mbulk-memory \
              -mnontrapping-fptoint -msign-ext \
              -ffunction-sections -fdata-sections -fvisibility=hidden $(NUMERIC)
WEB_CFLAGS  = $(WEB_FLAGS) $(WEB_SPEED) $(WARN) -Wno-tautological-constant-out-of-range-compare -Wno-string-concatenation \
              -Iinclude -Isrc -DLAM_VERSION='"$(VERSION)"' $(EXTRA) -isystem $(WT)/include -isystem wasm/config/jansson

WEB_SRC := $(filter-out $(WASM_NOT_HERE) src/base/pool_serial.c src/base/mutex_wasi.c src/base/footprint_wasi.c,$(sort $(wildcard src/*/*.c))) \
           src/base/pool_posix.c src/base/mutex_posix.c $(wildcard src/base/*_web.c) $(sort $(wildcard web/core/*.c))
WEB_OBJ := $(WEB_SRC:%.c=$(XB)/%.o)
WEB_PARTY := $(THIRD_PARTY:$(WT)/%=$(XB)/third_party/%)
WEB_RELAXED_OBJ := $(filter %_relaxed.o,$(WEB_OBJ))
WEB_PLAIN_OBJ   := $(XB)/src/kernels/variants_wasm.o
$(WEB_RELAXED_OBJ): WASM_ISA := -mrelaxed-simd
# What computes is compiled for speed, what a page must fetch besides for size.
WEB_SPEED := -Os
$(filter $(addsuffix /%,$(addprefix $(XB)/src/,base tensor kernels model adapter)),$(WEB_OBJ)): WEB_SPEED := -O3
$(XB)/third_party/libzstd/%.o: FLAGS = $(ZSTD_FLAGS)
$(XB)/third_party/jansson/%.o: FLAGS = $(JANSSON_FLAGS)
$(XB)/third_party/pcre2/%.o: FLAGS = $(PCRE2_FLAGS)
$(XB)/third_party/utf8proc/%.o: FLAGS = $(UTF8PROC_FLAGS)

# Debian's wasi-libc once more from its source, with atomics and with locks in malloc: its own makefile knows how. There is no archiver:
# objects are linked as they are. Without _REENTRANT, with which its functions for files are refused: those are the control worker's alone,
# and so is errno: no variable is a thread's own (linked without shared memory, wasm-ld 19 would put such a one at a wrong address).
$(XLIBC)/ready: $(WT)/ready
	@wasm/sources.sh $(WT) wasi-libc
	@echo "$(WASM_CC) wasi-libc with threads"
	@mkdir -p $(XLIBC)
	@$(MAKE) -C $(XWL) --no-print-directory CC=$(WASM_CC) AR=true THREAD_MODEL=posix SYSROOT=$(abspath $(XSYS)) OBJDIR=$(abspath $(XLIBC)) \
	    EXTRA_CFLAGS='-O2 -DNDEBUG -matomics -mbulk-memory -ffunction-sections -w -U_REENTRANT -DUSE_LOCKS=1 -D_Thread_local= -D__thread=' \
	    $(abspath $(XSYS))/lib/wasm32-wasi/libc.a >$(XLIBC)/log 2>&1 || { tail -5 $(XLIBC)/log; exit 1; }
	@touch $@

$(WEB_OBJ): $(XB)/%.o: %.c | $(XLIBC)/ready
	@mkdir -p $(@D)
	@echo "$(WASM_CC) $< (web)"
	@$(WASM_CC) $(WEB_CFLAGS) $(WASM_ISA) -MMD -MP -c $< -o $@

$(WEB_PARTY): $(XB)/third_party/%.o: $(WT)/%.c | $(XLIBC)/ready
	@mkdir -p $(@D)
	@echo "$(WASM_CC) $(<F) (web)"
	@$(WASM_CC) $(WEB_FLAGS) -Os $(FLAGS) -w -c $< -o $@

# The stack lies first in memory, so that running out of it traps. A thread gets its stack from the page's side.
WEB_LINK    = wasm-ld-19 --no-entry --gc-sections --strip-all -z stack-size=8388608 --stack-first --import-memory \
              @web/core/exports.txt
WEB_THREADS = --shared-memory --max-memory=4294967296 --export=__stack_pointer --export=lam_web_thread \
              --export=lam_web_threads_waiting --export=lam_web_threads_leave
WEB_LIBC    = --start-lib $$(find $(XLIBC) -name '*.o' | sort) --end-lib \
              /usr/lib/llvm-19/lib/clang/19/lib/wasi/libclang_rt.builtins-wasm32.a

$(XB)/lamina.wasm $(XB)/lamina-threads.wasm: $(XLIBC)/ready $(filter-out $(WEB_RELAXED_OBJ),$(WEB_OBJ)) $(WEB_PARTY) web/core/exports.txt
$(XB)/lamina-relaxed.wasm $(XB)/lamina-threads-relaxed.wasm: $(XLIBC)/ready $(filter-out $(WEB_PLAIN_OBJ),$(WEB_OBJ)) $(WEB_PARTY) web/core/exports.txt
$(XB)/lamina-threads.wasm $(XB)/lamina-threads-relaxed.wasm: WEB_MEMORY = $(WEB_THREADS)
WEB_MODULES := $(XB)/lamina.wasm $(XB)/lamina-relaxed.wasm $(XB)/lamina-threads.wasm $(XB)/lamina-threads-relaxed.wasm
$(WEB_MODULES):
	@echo "wasm-ld-19 -o $@"
	@$(WEB_LINK) $(WEB_MEMORY) $(filter %.o,$^) $(WEB_LIBC) -o $@

# ---- the package ----

WEB_NPM := web/package/node_modules/.package-lock.json
WEB_TS  := $(wildcard web/package/src/*.ts) web/package/build.mjs web/package/package.json web/package/tsconfig.json wasm/relaxed.mjs

$(WEB_NPM): web/package/package-lock.json
	@echo "npm: what the package is built and tested with"
	@cd web/package && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

$(XB)/package/index.js: $(WEB_MODULES) $(WEB_TS) $(WEB_NPM)
	@echo "esbuild -o $(@D)"
	@cd web/package && node_modules/.bin/tsc -p . --declaration --emitDeclarationOnly --stripInternal --outDir $(abspath $(@D))
	@cd web/package && node build.mjs $(abspath $(XB)) $(abspath $(@D))

.PHONY: web web-test
web: web-deps
	@$(MAKE) --no-print-directory $(JOBS) $(XB)/package/index.js

.PHONY: web-deps
web-deps:
	@tools/deps.sh --wasm --web

# make web-test: the package in headless Chromium against the native program.
web-test: web-deps
	@tools/deps.sh --test
	@$(MAKE) --no-print-directory $(JOBS) all $(XB)/package/index.js
	@tests/web.sh $(B) $(if $(ONLY),'$(ONLY)')

-include $(WEB_OBJ:.o=.d)
