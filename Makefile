# Orrery.  `make help` lists the targets.  SAN=1 builds with sanitizers in a folder of its own; V=1 shows commands.
# (FUZZ=1, for `make fuzz` alone: with clang's libFuzzer and sanitizers, without OpenMP.)
#
# Sources are found, not listed: a new file in ref/, emulated_devices/ or tests/ is built without touching this file.

SHELL    := /bin/bash
CC       ?= cc
MPICC    := $(or $(shell command -v mpicc.mpich),mpicc)
MPIEXEC  := $(or $(shell command -v mpiexec.mpich),mpiexec)
PREFIX   ?= /usr/local
PYTHON   ?= python3
MAKEFLAGS += --no-builtin-rules
B        := build$(if $(FUZZ),-fuzz)$(if $(SAN),-san)
Q        := $(if $(V),,@)

# OpenMP's OpenBLAS shares its threads with ours; Debian keeps that variant in a folder of its own.
BLAS_LIB := $(firstword $(wildcard /usr/lib/*/openblas-openmp))
BLAS_INC := $(firstword $(wildcard /usr/include/*/openblas-openmp))

OPT      ?= -O3 -march=native
CFLAGS   ?= -g
# No -ffast-math: NaN must stay NaN.  Contraction to fused multiply-add only makes results more exact.
override CFLAGS += -std=c11 -D_POSIX_C_SOURCE=200809L -I. $(if $(BLAS_INC),-I$(BLAS_INC)) $(if $(FUZZ),,-fopenmp) -fno-math-errno \
            -ffp-contract=fast -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes $(if $(CI),-Werror) -MMD -MP
SANITIZE := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
override CFLAGS += $(if $(FUZZ),$(SANITIZE) -fsanitize=fuzzer-no-link -DFUZZING -Wno-unknown-pragmas -Wno-unused-function,$(if $(SAN),$(SANITIZE),$(OPT) -DNDEBUG))
, := ,
# Plug-ins call functions of the program that loads them.
PLUGINS  := -DORRERY_CC='"$(CC)"' -DORRERY_SOURCES='"$(CURDIR)"'
LDLIBS   := $(if $(BLAS_LIB),-L$(BLAS_LIB) -Wl$(,)-rpath$(,)$(BLAS_LIB)) -lopenblas -lcjson -lm -lrt -ldl -pthread

# ---- what there is ---------------------------------------------------------------------------------------------
FORMATS  := F32 F64
OPS_SRC  := $(filter-out ref/ops/ops.c ref/ops/widened.c ref/optim/optimizer.c ref/optim/galore.c ref/optim/galore_parts.c ref/optim/loss_scale.c ref/optim/conventions.c ref/optim/factors.c ref/optim/outer%.c,$(wildcard ref/ops/*.c ref/optim/*.c))   # once per format
REF_SRC  := $(filter-out $(OPS_SRC),$(wildcard ref/*.c ref/*/*.c))
DEV_SRC  := $(filter-out emulated_devices/cli/$(if $(FUZZ),%,main.c),$(wildcard emulated_devices/*/*.c emulated_devices/*/*/*.c))
LESSONS  := $(sort $(wildcard tutorials/*/check.c))       # each defines struct lesson lesson_NN_name
TEST_SRC := $(wildcard tests/*/test_*.c)

REF_OBJ  := $(REF_SRC:%.c=$(B)/%.o) $(foreach f,$(FORMATS),$(OPS_SRC:%.c=$(B)/%.$(f).o))
CLUSTERS := $(sort $(wildcard emulated_devices/device/clusters/*.json))
DEV_OBJ  := $(DEV_SRC:%.c=$(B)/%.o) $(LESSONS:%.c=$(B)/%.o) $(B)/clusters.o $(B)/lessons.o
SAN_OBJ  := $(if $(SAN),$(B)/tests/sanitizers.o)
TESTS    := $(TEST_SRC:%.c=$(B)/%)
ORRERY   := $(if $(SAN),$(B)/orrery,orrery)

## make            build ./orrery
all: deps
	$(Q)$(MAKE) -j$$(nproc) --no-print-directory $(ORRERY)

## make run        install what is missing, build, train a small GPT on 8 emulated devices beside one device
run: all
	$(Q)./$(ORRERY) train --model small --dp 2 --tp 2 --pp 2 --steps 100 --lr 2e-3 --check ref --sample 200

## make check      the quickest tests of every room, in less than a minute: before each commit
## make test       install what is missing, build and run the tests, a few minutes (SAN=1: under ASan and UBSan)
## make verify     all there is: every mesh and algorithm, every fault, the fuzzers; an hour or so
check test verify: deps
	$(Q)$(MAKE) -j$$(nproc) --no-print-directory $(ORRERY) $$(TIER=$@ bash tests/run.sh $(B) --programs)
	$(Q)TIER=$@ ORRERY="$(CURDIR)/$(ORRERY)" MPIEXEC="$(MPIEXEC)" bash tests/run.sh $(B)

## make bench      speed of this machine: one training step, and the matrix product it is held against
bench: all
	$(Q)./$(ORRERY) bench step

## make golden     regenerate golden/ with numpy and PyTorch and compare; a changed bit names the tensor (PYTHON=python3)
golden:
	$(Q)$(PYTHON) golden/make_collectives.py --check
	$(Q)$(PYTHON) golden/make_schedules.py --check
	$(Q)$(PYTHON) golden/make_golden.py --check
	$(Q)$(PYTHON) golden/make_float16.py --check
	$(Q)$(PYTHON) golden/make_galore.py --check
	$(Q)$(PYTHON) golden/make_profiles.py --check
	$(Q)$(PYTHON) golden/make_quantised.py --check
	$(Q)$(PYTHON) golden/make_mezo.py --check
	$(Q)$(PYTHON) golden/make_local.py --check
	$(Q)$(PYTHON) golden/make_spatial.py --check
	$(Q)$(PYTHON) golden/make_routers.py --check
	$(Q)$(PYTHON) golden/make_mixtures.py --check
	$(Q)$(PYTHON) golden/make_shared.py --check
	$(Q)$(PYTHON) golden/make_encoders.py --check

## make frameworks let PyTorch, DeepSpeed, JAX and Megatron-Core train on the CPU, and check what they compute (NAMES='ddp fsdp2' BUGS=only|no)
frameworks: all
	$(Q)PYTHON=$(PYTHON) bash golden/frameworks/setup.sh $(B)/frameworks-venv
	$(Q)$(B)/frameworks-venv/bin/python -m unittest discover -q -s golden/frameworks/tests
	$(Q)$(B)/frameworks-venv/bin/python golden/frameworks/run.py --orrery ./$(ORRERY) --work $(B)/frameworks $(if $(BUGS),--bugs $(BUGS)) $(NAMES)

## make faults     break the program on purpose, in every way of tests/faults, and see who notices (FAULTS='tp-*' JOBS=n)
faults: deps
	$(Q)$(MAKE) -j$$(nproc) --no-print-directory $(ORRERY) $(TESTS)
	$(Q)ORRERY="$(CURDIR)/$(ORRERY)" MPIEXEC="$(MPIEXEC)" bash tests/faults/run.sh $(B) $(FAULTS)
# How a file is compiled and a program linked, for tests/faults/run.sh.
test verify faults: export HOW_REF   = $(CC) $(CFLAGS)
test verify faults: export HOW_DEV   = $(MPICC) $(CFLAGS) -DORRERY_MPIEXEC='"$(notdir $(MPIEXEC))"'
test verify faults: export HOW_LIBS  = $(LDLIBS)
test verify faults: export HOW_TWICE = $(OPS_SRC)
test verify faults: export HOW_FORMATS = $(FORMATS)

## make fuzz       let clang's libFuzzer attack every reader of files for a while (SECONDS=60 each, NAMES='json schedule')
fuzz:
	$(Q)$(MAKE) --no-print-directory deps DEPS_FOR=fuzz
	$(Q)$(MAKE) -j$$(nproc) --no-print-directory FUZZ=1 CC=clang MPICC='MPICH_CC=clang OMPI_CC=clang $(MPICC)' fuzzers
	$(Q)bash tests/fuzz/run.sh build-fuzz $(or $(SECONDS),60) $(NAMES)
fuzzers: $(filter $(B)/tests/fuzz/%,$(TESTS))

## make golden-check   hold the one-device model to golden/ and to the bounds stored there; needs no Python
golden-check: all
	$(Q)./$(ORRERY) golden

## make course     a course of the lessons in tutorials/: OUT/student and OUT/teacher (OUT=dir SEED=n: a variant)
course: all
	$(if $(OUT),,$(error make course: OUT=dir is missing))
	$(Q)mkdir -p $(OUT)
	$(Q)./$(ORRERY) course --student $(OUT)/student --teacher $(OUT)/teacher --variant $(or $(SEED),0)
	$(Q)bash tutorials/teacher/kit.sh $(OUT)/teacher $(or $(SEED),0)
	@echo "  COURSE $(OUT)/student $(OUT)/teacher"

## make docs       the manual, in build/docs/html (needs Doxygen)
docs:
	$(Q)$(MAKE) --no-print-directory deps DEPS_FOR=docs
	$(Q)mkdir -p $(B)/docs
	$(Q)doxygen docs/Doxyfile
	@echo "  DOCS $(B)/docs/html/index.html"

## make install    copy orrery to PREFIX/bin, and the headers for plug-ins to PREFIX/include/orrery (PREFIX=/usr/local)
install: all
	install -D -m 755 $(ORRERY) $(DESTDIR)$(PREFIX)/bin/orrery
	$(Q)for f in $$(find tutorials -type f); do install -D -m 644 $$f $(DESTDIR)$(PREFIX)/share/orrery/$$f || exit; done
	$(Q)for f in $$(find ref emulated_devices -name '*.h'); do install -D -m 644 $$f $(DESTDIR)$(PREFIX)/include/orrery/$$f || exit; done

## make clean      remove everything built
clean:
	rm -rf build build-san build-fuzz orrery

## make help       this list
help:
	@sed -n 's/^## //p' $(firstword $(MAKEFILE_LIST))

# ---- what the machine must have ----------------------------------------------------------------------------------
deps:
	@bash docs/requirements.sh $(DEPS_FOR)

# ---- how it is built ---------------------------------------------------------------------------------------------
define compile
@mkdir -p $(@D)
$(if $(V),,@echo '  CC   $@')
$(Q)$(1) $(CFLAGS) $(2) -c $< -o $@
endef

define compile_format
$(B)/ref/%.$(1).o: ref/%.c Makefile
	$$(call compile,$$(CC),-DREAL=$(1))
endef
$(foreach f,$(FORMATS),$(eval $(call compile_format,$(f))))

$(B)/ref/%.o: ref/%.c Makefile
	$(call compile,$(CC))
$(B)/%.o: %.c Makefile
	$(call compile,$(MPICC),-DORRERY_MPIEXEC='"$(notdir $(MPIEXEC))"')

$(B)/emulated_devices/cli/plugin.o $(B)/emulated_devices/course/build.o: override CFLAGS += $(PLUGINS)

# The shipped cluster descriptions become strings of the program, so that an installed one has them.
$(B)/clusters.c: $(CLUSTERS) Makefile
	@mkdir -p $(@D)
	$(Q){ echo '#include "emulated_devices/device/cluster.h"'; echo 'const char *const cluster_texts[] = {'; \
	  for f in $(CLUSTERS); do sed 's/["\\]/\\&/g; s/.*/"&\\n"/' $$f; echo ','; done; echo 'NULL };'; } >$@
$(B)/clusters.o: $(B)/clusters.c
	$(call compile,$(MPICC))

# The list of lessons: a folder of tutorials/ with a check.c is one.
LESSON_NAMES := $(patsubst tutorials/%/check.c,lesson_%,$(LESSONS))
$(B)/lessons.c: $(LESSONS) Makefile
	@mkdir -p $(@D)
	$(Q){ echo '#include "emulated_devices/course/lesson.h"'; printf 'extern const struct lesson %s;\n' $(LESSON_NAMES); \
	  echo 'const struct lesson *const lessons[] = {'; printf '&%s,\n' $(LESSON_NAMES); echo 'NULL };'; } >$@
$(B)/lessons.o: $(B)/lessons.c
	$(call compile,$(MPICC))

define archive
$(if $(V),,@echo '  AR   $@')
@rm -f $@
$(Q)ar rcs $@ $^
endef
$(B)/libref.a: $(REF_OBJ)
	$(archive)
$(B)/libdevices.a: $(DEV_OBJ)
	$(archive)

define link
@mkdir -p $(@D)
$(if $(V),,@echo '  LINK $@')
$(Q)$(MPICC) $(CFLAGS) $(filter %.o,$^) $(filter %/libdevices.a,$^) $(filter %/libref.a,$^) -o $@ $(1) $(LDLIBS)
endef
$(ORRERY): $(B)/emulated_devices/cli/main.o $(SAN_OBJ) $(B)/libdevices.a $(B)/libref.a
	$(call link,-rdynamic)
$(TESTS): $(B)/%: $(B)/%.o $(SAN_OBJ) $(B)/libdevices.a $(B)/libref.a
	$(call link,$(if $(FUZZ),-fsanitize=fuzzer,-lcmocka))

-include $(shell find $(B) -path $(B)/faults -prune -o -name '*.d' -print 2>/dev/null)
.PHONY: all run check test verify bench golden golden-check frameworks faults fuzz fuzzers course docs install clean help deps
.SECONDARY:
