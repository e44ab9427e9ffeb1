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
NOT_HERE := %_wasi.c %_portable.c src/base/pool_serial.c
ifneq ($(ARCH),x86_64)
NOT_HERE := %_wasi.c src/base/sha256_portable.c src/base/pool_serial.c %_avx2.c %_avx512.c src/kernels/variants_x86.c
endif

LIB_SRC := $(filter-out $(NOT_HERE),$(sort $(wildcard src/*/*.c)))
CLI_SRC := $(sort $(wildcard cli/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(B)/%.o)
TESTS   := $(patsubst tests/%.c,$(B)/tests/%,$(sort $(wildcard tests/test_*.c)))

.PHONY: all run test check deps wasm fuzz mutants bench install clean
.SECONDARY:

all: $(B)/lamina $(B)/liblamina.a $(B)/liblamina.so $(B)/examples/hello

# One instruction set a file; the flags never reach another file.
$(B)/src/kernels/%_avx2.o: ISA = -mavx2 -mf16c
$(B)/src/kernels/%_avx512.o: ISA = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mf16c

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

# Tests that hold parsers to a memory bound (tests/alloc_meter.h).
$(addprefix $(B)/tests/test_,gguf safetensors slm): TEST_LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=free

include wasm/wasm.mk

clean:
	rm -rf $(B)

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TESTS:%=%.d)
