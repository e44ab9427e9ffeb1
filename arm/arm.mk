# make arm-tests: the kernels' test and the table of tests/test_invariance.c as programs for 64-bit ARM, which
#     tests/arm.sh runs under qemu (docs/decisions/2026-11-30-neon-under-qemu.md).
# Built from another machine by a cross compiler, with the third-party sources and the stand-in for cmocka of wasm/wasm.mk. A build on
# such a machine needs none of this: there `make` takes the same kernels.

ARM_CC ?= aarch64-linux-gnu-gcc
ARM_AR ?= aarch64-linux-gnu-ar
AB := $(B)/arm
AT := $(AB)/third_party

ARM_CFLAGS = $(NUMERIC) $(CFLAGS) $(WARN) -Iinclude -Isrc -DLAM_VERSION='"$(VERSION)"' $(EXTRA) -isystem $(WT)/include \
             -isystem wasm/config/jansson

ARM_NOT_HERE := %_wasi.c %_openssl.c src/store/%.c src/base/pool_serial.c src/kernels/variants_portable.c \
                $(filter-out $(KERNELS_aarch64),$(MACHINE_KERNELS))
ARM_LIB_OBJ := $(patsubst %.c,$(AB)/%.o,$(filter-out $(ARM_NOT_HERE),$(sort $(wildcard src/*/*.c))))
ARM_THIRD_PARTY := $(THIRD_PARTY:$(WT)/%=$(AT)/%)
ARM_TESTS := $(AB)/tests/test_kernels $(AB)/tests/test_invariance

.PHONY: arm-tests
arm-tests: $(ARM_TESTS)

$(AB)/src/kernels/%_neondot.o: ISA = -march=armv8.2-a+dotprod

$(AT)/libzstd/%.o: FLAGS = $(ZSTD_FLAGS)
$(AT)/jansson/%.o: FLAGS = $(JANSSON_FLAGS)
$(AT)/pcre2/%.o: FLAGS = $(PCRE2_FLAGS)
$(AT)/utf8proc/%.o: FLAGS = $(UTF8PROC_FLAGS)

# No speed is measured here, and -O1 compiles faster.
$(ARM_THIRD_PARTY): $(AT)/%.o: $(WT)/%.c
	@mkdir -p $(@D)
	@echo "$(ARM_CC) $(<F)"
	@$(ARM_CC) -std=c11 -O1 $(FLAGS) -w -c $< -o $@

$(AB)/%.o: %.c | $(WT)/ready
	@mkdir -p $(@D)
	@echo "$(ARM_CC) $<"
	@$(ARM_CC) $(ARM_CFLAGS) $(ISA) -MMD -MP -c $< -o $@

$(AB)/liblamina.a: $(ARM_LIB_OBJ)
	@rm -f $@
	@$(ARM_AR) rcs $@ $^

# Static: qemu then needs no libraries of that machine.
$(AB)/tests/test_%: tests/test_%.c tests/support.c wasm/cmocka/cmocka.h $(AB)/liblamina.a $(ARM_THIRD_PARTY)
	@mkdir -p $(@D)
	@echo "$(ARM_CC) -o $@"
	@$(ARM_CC) $(ARM_CFLAGS) -static -isystem wasm/cmocka $(filter-out %.h,$^) -lpthread -lm -o $@

-include $(ARM_LIB_OBJ:.o=.d)
