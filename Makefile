# Orrery.  `make help` lists the targets.  SAN=1 builds with sanitizers in a folder of its own; V=1 shows commands.
# (FUZZ=1, for `make fuzz` alone: with clang's libFuzzer and sanitizers, without OpenMP.)
#
# Sources are found, not listed: a new file in ref/, emulated_devices/ or tests/ is built without touching this file.

SHELL    := /bin/bash
ifeq ($(filter else-if,$(.FEATURES)),)
$(error this make is too old, as macOS has it: on macOS say gmake, after brew install make)
endif
SYSTEM   := $(shell uname -s)
CC       ?= cc
# MPICH, unless it is Ubuntu 24.04's: it waits for PMIx, which its mpiexec does not speak, so each process is a job of its own.
LIBMPICH := $(firstword $(wildcard /usr/lib/*/libmpich.so.12))
MPI      := $(if $(and $(LIBMPICH),$(shell ldd $(LIBMPICH) | grep libpmix)),openmpi,mpich)
# Debian's names; then PATH; then the folders in which Fedora and openSUSE keep each MPI, which their modules put into PATH.
MPI_BIN  := $(firstword $(wildcard /usr/lib64/mpich/bin /usr/lib64/mpi/gcc/mpich*/bin /usr/lib64/openmpi/bin /usr/lib64/mpi/gcc/openmpi*/bin))
MPICC    := $(or $(shell command -v mpicc.$(MPI) || command -v mpicc),$(MPI_BIN:%=%/mpicc),mpicc)
MPIEXEC  := $(or $(shell command -v mpiexec.$(MPI) || command -v mpiexec),$(MPI_BIN:%=%/mpiexec),mpiexec)
# CROSS=aarch64-linux-gnu builds for that machine in a folder of its own: with that prefix's gcc, against the libraries of a Debian
# root of its kind in ROOT=.  A program of MPICH needs the same MPICH's mpiexec, of any machine.  `make check-aarch64` does it all.
# What mpicc calls to compile, asked once: each call of the script costs three times what its compiler's start does.
MPI_CC    = $(eval MPI_CC := $(or $(filter-out -l% -L% -Wl%,$(shell $(MPICC) -show 2>/dev/null)),$(MPICC)))$(MPI_CC)
ifdef CROSS
CC       := $(CROSS)-gcc --sysroot=$(ROOT)
MPICC    := $(CC) -isystem $(ROOT)/usr/include/$(CROSS)/mpich
MPI_LIBS := -lmpich
endif
PREFIX   ?= /usr/local
PYTHON   ?= python3
MAKEFLAGS += --no-builtin-rules
# VARIANT=NAME builds in a folder of its own, for other values of OPT= and BLAS=: tests/machines/run.sh.
B        := build$(if $(FUZZ),-fuzz)$(if $(SAN),-san)$(if $(PORTABLE),-portable)$(CROSS:%=-%)$(VARIANT:%=-%)
Q        := $(if $(V),,@)

, := ,

# OpenMP's OpenBLAS shares its threads with ours.  Debian keeps each variant of a BLAS in a folder of its own; BLAS= names another one.
ARCH     := $(or $(CROSS),*)
# Fedora calls OpenMP's variant openblaso, openSUSE openblas_openmp; there, and on Arch, the headers have a folder of their own.
BLAS     := $(or $(if $(wildcard $(ROOT)/usr/lib/$(ARCH)/openblas-openmp),openblas-openmp),\
              $(patsubst /usr/lib64/lib%.so,%,$(firstword $(wildcard /usr/lib64/libopenblaso.so /usr/lib64/libopenblas_openmp.so))),openblas)
BLAS_LIB := $(patsubst $(ROOT)%,%,$(firstword $(wildcard $(BLAS:%=$(ROOT)/usr/lib/$(ARCH)/%))))
BLAS_INC := $(firstword $(wildcard $(BLAS:%=$(ROOT)/usr/include/$(ARCH)/%) $(if $(filter openblas%,$(BLAS)),/usr/include/openblas)))
# OpenBLAS has LAPACK in it.  Beside another BLAS it is Netlib's; both paths are given by the old tag, by which LAPACK finds that BLAS, too.
LAPACK_LIB := $(if $(filter openblas% -%,$(BLAS)),,$(firstword $(wildcard /usr/lib/*/lapack)))
BLAS_LIBS := $(if $(LAPACK_LIB),-Wl$(,)--disable-new-dtags) $(foreach folder,$(BLAS_LIB) $(LAPACK_LIB),-L$(ROOT)$(folder) -Wl$(,)-rpath$(,)$(folder))
BLAS_LIBS += $(if $(filter -%,$(BLAS)),$(BLAS),-l$(firstword $(subst -, ,$(BLAS)))) $(if $(filter openblas% -%,$(BLAS)),,-llapack)

# What the compiler has for this machine's own processor: clang for ARM calls it -mcpu.  A program for another machine has neither.
ifeq ($(origin OPT),undefined)
OPT      := -O3 $(if $(CROSS),,$(firstword $(foreach flag,-march=native -mcpu=native,$(shell $(CC) $(flag) -E -x c /dev/null >/dev/null 2>&1 && echo $(flag)))))
endif
CFLAGS   ?= -g
# PORTABLE=1 builds in a folder of its own what macOS and others would have of the system, wherever it is built (ref/machine/system.h).
SYSTEM_FLAGS := $(if $(PORTABLE),-DORRERY_PORTABLE)
OPENMP   := -fopenmp
LINK_ALL := -rdynamic
SONAME    = -shared -Wl$(,)-soname$(,)liborrery.so.$(ABI) -Wl$(,)--version-script=$(LIBRARY)/exports.map -Wl$(,)--as-needed$(,)-z$(,)defs
SYSTEM_LIBS := -lrt -ldl
ifeq ($(SYSTEM),Darwin)
# Homebrew's libraries: OpenBLAS and libomp lie in folders of their own, since the system has a BLAS, and its clang no OpenMP.
BREW     := $(or $(HOMEBREW_PREFIX),$(shell brew --prefix 2>/dev/null))
SYSTEM_FLAGS += -D_DARWIN_C_SOURCE -I$(BREW)/opt/openblas/include -I$(BREW)/opt/libomp/include -I$(BREW)/include
OPENMP   := -Xpreprocessor -fopenmp
# Functions that only one BLAS has may be missing (blas.c).
SYSTEM_LIBS := -L$(BREW)/opt/openblas/lib -L$(BREW)/opt/libomp/lib -L$(BREW)/lib -lomp -Wl,-undefined,dynamic_lookup
SONAME    = -dynamiclib -Wl$(,)-install_name$(,)@rpath/liborrery.$(ABI).dylib -Wl$(,)-exported_symbol$(,)_orrery_*
endif
CORES    := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# No -ffast-math: NaN must stay NaN.  No fused multiply-adds, which not every processor has: what a run computes outside of its ordinary
# operations has the same bits on all of them.
# No vectors made of straight code: gcc 12.2 for AVX-512 passes some structs of constants, such as { 1, 1, 1, 0, 0 }, with other numbers
# in them (tests/ref/test_compiler.c).
# Position-independent, so that the same objects become the program and the shared library.
# gcc 11 would warn of fields that an initializer with names leaves out; newer ones do not.
override CFLAGS += -std=c11 -D_POSIX_C_SOURCE=200809L -I. $(SYSTEM_FLAGS) $(if $(BLAS_INC),-isystem $(BLAS_INC)) $(if $(FUZZ),,$(OPENMP)) -fno-math-errno \
            -ffp-contract=off -fno-tree-slp-vectorize -fPIC -fno-semantic-interposition -Wall -Wextra -Wno-missing-field-initializers -Wstrict-prototypes -Wmissing-prototypes $(if $(CI),-Werror) -MMD -MP
SANITIZE := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
override CFLAGS += $(if $(FUZZ),$(SANITIZE) -fsanitize=fuzzer-no-link -DFUZZING -Wno-unknown-pragmas -Wno-unused-function -Wno-format,$(if $(SAN),$(SANITIZE),$(OPT) -DNDEBUG))
# Plug-ins call functions of the program that loads them.
PLUGINS  := -DORRERY_CC='"$(CC)"' -DORRERY_SOURCES='"$(CURDIR)"'
# GLPK, if it is here, solves the integer programs of one planner (search/layers/integer.c); GLPK= builds without it.
GLPK     := $(firstword $(wildcard $(ROOT)/usr/include/glpk.h $(ROOT)/usr/include/glpk/glpk.h $(BREW:%=%/include/glpk.h)))
GLPK_FLAGS := $(if $(GLPK),-DORRERY_GLPK $(addprefix -isystem ,$(filter-out /usr/include/,$(dir $(GLPK)))))
# GNU libmicrohttpd is optional: without it `orrery serve --port` says so by name.
HTTP_LIB := $(shell printf '\043include <microhttpd.h>\n' | $(CC) $(SYSTEM_FLAGS) -E -x c - >/dev/null 2>&1 && echo -lmicrohttpd)
LDLIBS   := $(BLAS_LIBS) $(if $(GLPK),-lglpk) $(HTTP_LIB) -lcjson -lyaml -lpcre2-8 -lutf8proc -lm $(SYSTEM_LIBS) $(MPI_LIBS) -pthread

# Each object is compiled again when this file has changed, or the flags: those of CI=1 or OPT= are other ones.
ALSO     := Makefile $(B)/flags.is

# ---- what there is ---------------------------------------------------------------------------------------------
FORMATS  := F32 F64
# An operation's source includes real.h, and is compiled once per format.
OPS_SRC  := $(shell grep -l '^.include "ref/ops/real.h"' ref/ops/*.c ref/optim/*.c)
# Once more for each rule of exact sums, without fused multiply-adds: what ref/exact has itself is taken from there.
RULES    := X32 X32S2
EXACT_SRC := $(filter-out ref/ops/linear.c ref/ops/attention.c,$(filter ref/ops/%,$(OPS_SRC))) $(shell grep -l '^.include "ref/ops/real.h"' ref/exact/*.c)
REF_SRC  := $(filter-out $(OPS_SRC) $(EXACT_SRC),$(wildcard ref/*.c ref/*/*.c ref/*/*/*.c))
DEV_SRC  := $(filter-out emulated_devices/browser/% emulated_devices/device/cuda/% emulated_devices/collectives/nccl.c emulated_devices/cli/$(if $(FUZZ),%,main.c),$(sort $(shell find emulated_devices/*/ -name '*.c')))
LESSONS  := $(sort $(wildcard tutorials/*/check.c))       # each defines struct lesson lesson_NN_name
TEST_SRC := $(wildcard tests/*/test_*.c)

REF_OBJ  := $(B)/plays.o $(REF_SRC:%.c=$(B)/%.o) $(foreach f,$(FORMATS),$(OPS_SRC:%.c=$(B)/%.$(f).o)) $(foreach f,$(RULES),$(EXACT_SRC:%.c=$(B)/%.$(f).o))
LAYOUTS  := $(sort $(wildcard emulated_devices/schemes/tensor/layouts/*.sbp))
CLUSTERS := $(sort $(wildcard emulated_devices/device/clusters/*.json))
TABLES   := $(sort $(wildcard emulated_devices/device/kernels/tables/*.json))
SETS     := $(sort $(wildcard emulated_devices/device/kernels/sets/*.json))
CLAIMS   := $(sort $(wildcard golden/published/*.txt))
PAGE     := emulated_devices/draw/page/page.css $(sort $(wildcard emulated_devices/draw/page/script/*.js))
DEV_OBJ  := $(DEV_SRC:%.c=$(B)/%.o) $(LESSONS:%.c=$(B)/%.o) $(B)/clusters.o $(B)/kernel_tables.o $(B)/kernel_sets.o $(B)/layouts.o $(B)/claims.o $(B)/page_texts.o $(B)/lessons.o
OWN_FOLDER := $(or $(SAN),$(CROSS),$(PORTABLE),$(VARIANT))
SAN_OBJ  := $(if $(SAN),$(B)/tests/sanitizers.o)
TESTS    := $(TEST_SRC:%.c=$(B)/%)
ORRERY   := $(if $(OWN_FOLDER),$(B)/orrery,$(if $(filter judge,$(CUDA)),$(B)/cuda-judge/orrery,orrery))

## make            build ./orrery
all: deps
	$(Q)$(MAKE) -j$(CORES) --no-print-directory $(ORRERY)

## make CUDA=emulated  with the backend cuda-emulated: GPU kernels on this machine's cores; CUDA=1: with cuda, by nvcc (docs/authors/backends.md)

## make run        install what is missing, build, train a small GPT on 8 emulated devices beside one device
run: all
	$(Q)./$(ORRERY) train --model small --dp 2 --tp 2 --pp 2 --steps 100 --lr 2e-3 --check ref --sample 200

## make check      the quickest tests of every room, in less than a minute: before each commit
## make test       install what is missing, build and run the tests, a few minutes (SAN=1: under ASan and UBSan)
## make check-aarch64   the quickest tests in programs for ARM, under qemu, on Debian or Ubuntu of another machine (docs/using/installing.md)
check-aarch64:
	$(Q)bash tests/aarch64/run.sh $(FILES)

## make check-machines  the bits of exact sums in programs for several processors, ARM under qemu, and several BLAS (docs/checking/exact.md)
check-machines:
	$(Q)bash tests/machines/run.sh $(MACHINES)

## make check-portable  the quickest tests with what macOS and others have of the system, here
check-portable:
	$(Q)$(MAKE) --no-print-directory PORTABLE=1 check

## make verify     all there is: every mesh and algorithm, every fault, the fuzzers; hours (PART=2/8: the second of eight parts)
verify: DEPS_FOR := faults
check test verify: deps
	$(Q)$(MAKE) -j$(CORES) --no-print-directory $(ORRERY) $$(TIER=$@ bash tests/run.sh $(B) --programs) $(if $(filter verify,$@),$(OBJECTS_emulated))
	$(Q)TIER=$@ ORRERY="$(CURDIR)/$(ORRERY)" MPIEXEC="$(MPIEXEC)" bash tests/run.sh $(B)

## make bench      speed of this machine: one training step, and the matrix product it is held against
bench: all
	$(Q)./$(ORRERY) bench step

## make golden     regenerate golden/ with numpy and PyTorch and compare; a changed bit names the tensor (PYTHON=python3)
golden:
	$(Q)$(PYTHON) golden/make_collectives.py --check
	$(Q)$(PYTHON) golden/make_schedules.py --check
	$(Q)$(PYTHON) golden/make_rates.py --check
	$(Q)$(PYTHON) golden/make_tokenizers.py --check
	$(Q)$(PYTHON) golden/make_pipelines.py --check
	$(Q)$(PYTHON) golden/make_sampling.py --check
	$(Q)$(PYTHON) golden/make_chats.py --check
	$(Q)$(PYTHON) golden/make_golden.py --check
	$(Q)$(PYTHON) golden/make_float16.py --check
	$(Q)$(PYTHON) golden/make_galore.py --check
	$(Q)$(PYTHON) golden/make_predictor.py --check
	$(Q)$(PYTHON) golden/make_galore_codes.py --check
	$(Q)$(PYTHON) golden/make_optimizers.py --check
	$(Q)$(PYTHON) golden/make_moments.py --check
	$(Q)$(PYTHON) golden/make_token_files.py --check
	$(Q)$(PYTHON) golden/make_profiles.py --check
	$(Q)$(PYTHON) golden/make_quantised.py --check
	$(Q)$(PYTHON) golden/make_fp8.py --check
	$(Q)$(PYTHON) golden/make_mezo.py --check
	$(Q)$(PYTHON) golden/make_local.py --check
	$(Q)$(PYTHON) golden/make_spatial.py --check
	$(Q)$(PYTHON) golden/make_weather.py --check
	$(Q)$(PYTHON) golden/make_policies.py --check
	$(Q)$(PYTHON) golden/make_routers.py --check
	$(Q)$(PYTHON) golden/make_padding.py --check
	$(Q)$(PYTHON) golden/make_masks.py --check
	$(Q)$(PYTHON) golden/make_published_configs.py --check
	$(Q)$(PYTHON) golden/make_balance.py --check
	$(Q)$(PYTHON) golden/make_mixtures.py --check
	$(Q)$(PYTHON) golden/make_shared.py --check
	$(Q)$(PYTHON) golden/make_encoders.py --check
	$(Q)$(PYTHON) golden/make_adapters.py --check

## make frameworks let PyTorch, DeepSpeed, JAX and Megatron-Core train on the CPU, and check what they compute (NAMES='ddp fsdp2' BUGS=only|no)
frameworks: all
	$(Q)PYTHON="$(PYTHON)" bash golden/frameworks/setup.sh $(B)/frameworks-venv
	$(Q)$(B)/frameworks-venv/bin/python -m unittest discover -q -s golden/frameworks/tests
	$(Q)$(B)/frameworks-venv/bin/python golden/frameworks/run.py --orrery ./$(ORRERY) --work $(B)/frameworks $(if $(BUGS),--bugs $(BUGS)) $(NAMES)

## make clean-dumps let right programs train, and count what is called wrong (COUNT=300; needs Python with numpy)
clean-dumps: all
	$(Q)$(PYTHON) golden/clean/campaign.py $(or $(COUNT),300) --orrery ./$(ORRERY) --place $(B)/clean

## make faults     break the program on purpose, in every way of tests/faults, and see who notices (FAULTS='tp-*' JOBS=n)
faults: DEPS_FOR := faults
faults: deps
	$(Q)$(MAKE) -j$(CORES) --no-print-directory $(ORRERY) $(FAULT_TESTS) $(if $(CUDA_FAULTS),$(OBJECTS_emulated)) $(if $(JUDGE_FAULTS),$(B)/cuda-judge/tests/devices/cuda/test_judge)
	$(Q)ORRERY="$(CURDIR)/$(ORRERY)" MPIEXEC="$(MPIEXEC)" bash tests/faults/run.sh $(B) $(FAULTS)
## make faults-modes  which faults are found in ordinary arithmetic, and which with exact sums (FAULTS='loss-*')
faults-modes: DEPS_FOR := faults
faults-modes: deps
	$(Q)$(MAKE) -j$(CORES) --no-print-directory $(ORRERY)
	$(Q)ORRERY="$(CURDIR)/$(ORRERY)" MPIEXEC="$(MPIEXEC)" bash tests/faults/modes.sh $(B) $(FAULTS)
FAULT_FILES = $(patsubst %,tests/faults/%.fault,$(or $(FAULTS),*))
FAULT_TESTS = $(filter $(addprefix %/,$(sort $(shell sed -n 's/^caught by: .*\(test_[a-z0-9_]*\).*/\1/p' $(FAULT_FILES)))),$(TESTS))
CUDA_FAULTS = $(shell grep -l '^caught by: .*cuda-emulated' $(FAULT_FILES))
JUDGE_FAULTS = $(shell grep -l '^caught by: test_judge' $(FAULT_FILES))
# How a file is compiled and a program linked, for tests/faults/run.sh.
test verify faults faults-modes: export HOW_REF   = $(CC) $(CFLAGS)
test verify faults faults-modes: export HOW_DEV   = $(MPI_CC) $(CFLAGS) -DORRERY_MPIEXEC='"$(notdir $(MPIEXEC))"'
test verify faults faults-modes: export HOW_LINK  = $(MPICC) $(CFLAGS)
test verify faults faults-modes: export HOW_LIBS  = $(LDLIBS)
test verify faults faults-modes: export HOW_EMULATED = $(HOW_DEV) -I$(CUDA_DIR)/emulated -DCUDA_EMULATED
test verify faults faults-modes: export HOW_CUDA  = $(OBJECTS_emulated)
test verify faults faults-modes: export HOW_JUDGE = $(CXX) $(CXXFLAGS)
test verify faults faults-modes: export HOW_JUDGED = $(OBJECTS_judge) $(TEST_KERNELS:%=$(B)/cuda-judge/%.o) $(HALVES)
test verify faults faults-modes: export HOW_TWICE = $(OPS_SRC)
test verify faults faults-modes: export HOW_FORMATS = $(FORMATS)
test verify faults faults-modes: export HOW_EXACT = $(EXACT_SRC)
test verify faults faults-modes: export HOW_RULES = $(RULES)

## make fuzz       let clang's libFuzzer attack every reader of files for a while (SECONDS=60 each, NAMES='json schedule')
fuzz: fuzz-programs
	$(Q)bash tests/fuzz/run.sh build-fuzz $(or $(SECONDS),60) $(NAMES)
fuzz-programs:
	$(Q)$(MAKE) --no-print-directory deps DEPS_FOR=fuzz
	$(Q)$(MAKE) -j$(CORES) --no-print-directory FUZZ=1 CC=clang MPICC='MPICH_CC=clang OMPI_CC=clang $(MPICC)' fuzzers
fuzzers: $(filter $(B)/tests/fuzz/%,$(TESTS))

## make simgrid    patterns of messages by the clock, replayed, and by SimGrid, which is installed if it is missing
simgrid: deps
	$(Q)$(MAKE) --no-print-directory deps DEPS_FOR=simgrid
	$(Q)$(MAKE) -j$(CORES) --no-print-directory $(ORRERY) $(B)/simgrid/patterns $(B)/simgrid/smpi
	$(Q)ORRERY=./$(ORRERY) bash tests/simgrid/run.sh $(B)/simgrid
$(B)/simgrid/patterns: $(B)/tests/simgrid/patterns.o $(SAN_OBJ) $(B)/libdevices.a $(B)/libref.a
	$(call link)
$(B)/simgrid/smpi: tests/simgrid/smpi.c Makefile
	@mkdir -p $(@D)
	$(if $(V),,@echo '  CC   $@')
	$(Q)smpicc -std=c11 -O2 -Wall -Wextra $< -o $@

## make golden-check   hold the one-device model to golden/ and to the bounds stored there; needs no Python
golden-check: all
	$(Q)./$(ORRERY) golden

# `make course` is the teacher's: a student's tree has no such folder.
-include tutorials/teacher/course.mk

## make docs       the manual, in build/docs/html (needs Doxygen), and are all links alive; draws the pictures of docs/concepts again
docs: all
	$(Q)$(MAKE) --no-print-directory deps DEPS_FOR=docs
	$(Q)ORRERY=./$(ORRERY) bash docs/concepts/draw.sh docs/concepts
	$(Q)bash docs/site/make.sh
	@echo "  DOCS build/docs/html/index.html"

## make install    program, library, headers, goldens, lessons, man page and completion to PREFIX (PREFIX=/usr/local, DESTDIR=)
VERSION := $(shell sed -n 's/^.define ORRERY_VERSION "\(.*\)"/\1/p' ref/version.h)
ABI     := $(firstword $(subst ., ,$(VERSION)))
INSTALL := bash docs/install.sh
# The environment carries them to the shell, so that none of their letters means anything to it; make itself would replace what follows a $.
install uninstall place: export PREFIX  := $(PREFIX)
install uninstall place: export DESTDIR := $(DESTDIR)
place:
	$(if $(findstring $$,$(value PREFIX)$(value DESTDIR)),$(error PREFIX and DESTDIR cannot have a $$: make would replace it and what follows))
	$(Q)$(INSTALL) check
install: place all $(B)/liborrery.so $(B)/student/orrery
	@printf '  INSTALL %s\n' "$$DESTDIR$$PREFIX"
	$(Q)$(INSTALL) install $(B)/student/orrery ./$(ORRERY) $(B)/liborrery.so $(VERSION) $(CUDA_DIR) $(READY)

## make uninstall  remove what `make install` has put there, with the same PREFIX and DESTDIR
uninstall: place
	$(Q)$(INSTALL) uninstall

## make clean      remove everything built
clean:
	rm -rf build build-* orrery

## make help       this list
help:
	@sed -n 's/^## //p' $(firstword $(MAKEFILE_LIST)) $(wildcard tutorials/teacher/course.mk)

# ---- what surrounds kernels that are tried (docs/authors/backends.md, docs/using/teaching.md) ----------------------------------
# The emulator, the judge and the calls of lessons, so that `orrery learn` and `orrery kernel` compile the kernels alone.  They are the same
# with SAN=1; without a C++ compiler there are none, and they are compiled when they are needed.
CUDA_DIR  := emulated_devices/device/cuda
BUILD_ONE := $(CUDA_DIR)/emulated/judge/build.sh
CALLS     := $(wildcard tutorials/*/calls.cu)
READY     := $(if $(CROSS),,$(if $(shell command -v c++ $(CXX)),build/kernels/judge.o build/kernels/judge-openmp.o $(CALLS:tutorials/%/calls.cu=build/kernels/%.o)))
define make_ready
@mkdir -p $(@D)
$(if $(V),,@echo '  CXX  $@')
$(Q)sh $(BUILD_ONE) '$(CURDIR)' --ready '$(CURDIR)/$@' $(1) 2>$@.log || { [ $$? -eq 10 ] || cat $@.log; }
endef
$(READY): $(BUILD_ONE) $(CUDA_DIR)/emulated/judge/calls.txt $(wildcard $(CUDA_DIR)/emulated/*.h $(CUDA_DIR)/emulated/*.cpp $(CUDA_DIR)/emulated/judge/*.h $(CUDA_DIR)/emulated/judge/*.cpp)
build/kernels/judge.o build/kernels/judge-openmp.o:
	$(make_ready)
build/kernels/%.o: tutorials/%/calls.cu $(wildcard tutorials/*/*.h) $(wildcard $(CUDA_DIR)/kernels/*.h $(CUDA_DIR)/kernels/*.cuh) ref/numeric/float16.h
	$(call make_ready,'$(CURDIR)/$<')
# What is the same in all workers of lessons in C.  The key says of what compiler, options and texts (emulated_devices/course/compile).
WORKER    := tutorials/worker/worker.c tutorials/worker/cage.h tutorials/worker/calls.h tutorials/worker/protocol.h tutorials/worker/streams.h tutorials/course.h
WORKER_BY := $(CC) -std=c11 -O2 -g -ffp-contract=off -fno-stack-protector -fno-lto -O1 -g0
build/course/worker.o: $(WORKER) Makefile
	@mkdir -p $(@D)
	$(if $(V),,@echo '  CC   $@')
	$(Q)rm -f $@.key; $(WORKER_BY) -Itutorials -c $< -o $@ && { echo '$(WORKER_BY)'; cat $(WORKER); } >$@.key
ready: $(READY) $(if $(CROSS),,build/course/worker.o)

# ---- the CUDA backend (docs/authors/backends.md) -------------------------------------------------------------------------
# CUDA=emulated links the backend cuda-emulated into ./orrery, CUDA=judge with kernels that are watched into another program, CUDA=1 the
# backend cuda, with nvcc.  Each kind has objects and tests in a folder of its own.
KERNELS   := $(wildcard $(CUDA_DIR)/kernels/*.cu)
CUDA_HOST := $(wildcard $(CUDA_DIR)/*.c)
NCCL_SRC  := emulated_devices/collectives/nccl.c
EMULATOR  := $(wildcard $(CUDA_DIR)/emulated/*.cpp $(CUDA_DIR)/emulated/*.c)
CUDA_KIND := $(if $(CUDA),$(or $(filter emulated judge,$(CUDA)),nvcc))
CXXFLAGS  := -std=gnu++17 -fno-tree-slp-vectorize -fno-extern-tls-init -I. -I$(CUDA_DIR)/emulated $(if $(BLAS_INC),-isystem $(BLAS_INC)) -g -fopenmp -fno-math-errno -ffp-contract=fast -Wall -Wextra $(if $(CI),-Werror) -MMD -MP
CXXFLAGS  += $(if $(SAN),$(SANITIZE),$(OPT) -DNDEBUG)
emulated_objects = $(patsubst %,$(B)/cuda-$(1)/%.o,$(KERNELS) $(CUDA_HOST) $(NCCL_SRC) $(EMULATOR))
OBJECTS_emulated := $(call emulated_objects,emulated)
TEST_KERNELS := $(wildcard tests/devices/cuda/*.cu)
HALVES           := $(B)/cuda-judge/halves.emulated.o $(B)/cuda-judge/halves.nvidia.o
OBJECTS_judge    := $(call emulated_objects,judge) $(patsubst %,$(B)/cuda-judge/%.o,$(wildcard $(CUDA_DIR)/emulated/judge/*.cpp))
LIBS_emulated    := -lstdc++
LIBS_judge       := -lstdc++ -rdynamic
# What calls the judge at each access; its own library is not linked.
WATCHED   = $(filter-out -O%,$(CXXFLAGS)) -O1 -g -fsanitize=thread,alignment

define kind
$(B)/cuda-$(1)/%.cpp.o: %.cpp $(ALSO)
	$$(call compile_as,$$(CXX) $$(CXXFLAGS))
$(B)/cuda-$(1)/%.c.o: %.c $(ALSO)
	$$(call compile_as,$$(MPI_CC) $$(CFLAGS) -I$(CUDA_DIR)/emulated -DCUDA_EMULATED)
$(B)/cuda-$(1)/tests/%: $(B)/tests/%.o $$(OBJECTS_$(1)) $(if $(filter judge,$(1)),$(TEST_KERNELS:%=$(B)/cuda-$(1)/%.o) $(HALVES)) $$(SAN_OBJ) $(B)/libdevices.a $(B)/libref.a
	$$(call link,-lcmocka $$(LIBS_$(1)))
endef
define compile_as
@mkdir -p $(@D)
$(if $(V),,@echo '  CC   $@')
$(Q)$(1) -c $< -o $@
endef
$(B)/cuda-emulated/%.cu.o: %.cu $(ALSO)
	$(call compile_as,$(CXX) $(CXXFLAGS) -x c++)
OPTIMIZERS := $(CUDA_DIR)/kernels/optimizers.cu.o
$(B)/cuda-emulated/$(OPTIMIZERS) $(B)/cuda-judge/$(OPTIMIZERS): override CXXFLAGS += -ffp-contract=off
$(B)/cuda-judge/%.cu.o: %.cu $(wildcard $(CUDA_DIR)/emulated/judge/*.awk) $(CUDA_DIR)/emulated/judge/calls.txt $(ALSO)
	@mkdir -p $(@D)
	$(if $(V),,@echo '  CC   $@')
	$(Q)$(CXX) $(WATCHED) -DEMULATED_BOUNDS -x c++ -E $< -o $@.i -MF $(@:.o=.d) -MT $@
	$(Q)awk -f $(CUDA_DIR)/emulated/judge/launch_bounds.awk $@.i >$@.ii && $(CXX) $(filter-out -M%,$(WATCHED)) -x c++-cpp-output -S $@.ii -o $@.s
	$(Q)awk -f $(CUDA_DIR)/emulated/judge/red_zones.awk $@.s >$@.zones.s && $(CXX) -c $@.zones.s -o $@ && objcopy --redefine-syms=$(CUDA_DIR)/emulated/judge/calls.txt $@ && rm $@.i $@.ii $@.s $@.zones.s
# The same functions by two headers: the emulator's, and NVIDIA's where there are any.
$(B)/cuda-judge/halves.emulated.o: tests/devices/cuda/halves.cpp $(ALSO)
	$(call compile_as,$(CXX) $(CXXFLAGS))
$(B)/cuda-judge/halves.nvidia.o: tests/devices/cuda/halves.cpp $(ALSO)
	$(call compile_as,$(CXX) $(filter-out -I$(CUDA_DIR)/emulated,$(CXXFLAGS)) -DNVIDIA -isystem $(CUDA_HOME)/include)
$(eval $(call kind,emulated))
$(eval $(call kind,judge))

# Its own program, so that ./orrery stays fast.
$(B)/cuda-judge/orrery: $(B)/emulated_devices/cli/main.o $(OBJECTS_judge) $(SAN_OBJ) $(B)/libdevices.a $(B)/libref.a
	$(call link,$(LINK_ALL) $(LIBS_judge))

# What ./orrery was linked with: another choice links it again.
$(B)/cuda.is: always
	@mkdir -p $(@D)
	@echo '$(CUDA_KIND)' | cmp -s - $@ || echo '$(CUDA_KIND)' >$@

# nvcc: CUDA_ARCH is the oldest architecture that it is built for; newer ones compile it when they start.
NVCC      ?= $(or $(shell command -v nvcc),/usr/local/cuda/bin/nvcc)
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(NVCC)))
CUDA_ARCH ?= 75
# Its header is enough: the library is loaded when it is asked for.
NCCL_HOME ?= $(CUDA_HOME)
NCCL_BUILT   := $(wildcard $(NCCL_HOME)/include/nccl.h)
OBJECTS_nvcc := $(patsubst %,$(B)/cuda-nvcc/%.o,$(KERNELS) $(CUDA_HOST) $(if $(NCCL_BUILT),$(NCCL_SRC)))
LIBS_nvcc    := -L$(CUDA_HOME)/lib64 -Wl$(,)-rpath$(,)$(CUDA_HOME)/lib64 -lcublas -lcudart -lstdc++
$(B)/cuda-nvcc/%.cu.o: %.cu $(ALSO)
	$(call compile_as,$(NVCC) -std=c++17 -O3 $(NVCCFLAGS) -I. -gencode arch=compute_$(CUDA_ARCH)$(,)code=[sm_$(CUDA_ARCH)$(,)compute_$(CUDA_ARCH)] -MD)
$(B)/cuda-nvcc/$(OPTIMIZERS): NVCCFLAGS += -fmad=false
$(B)/cuda-nvcc/%.c.o: %.c $(ALSO)
	$(call compile_as,$(MPI_CC) $(CFLAGS) -isystem $(CUDA_HOME)/include -isystem $(NCCL_HOME)/include)
$(B)/cuda-nvcc/tests/%: $(B)/tests/%.o $(OBJECTS_nvcc) $(TEST_KERNELS:%=$(B)/cuda-nvcc/%.o) $(B)/libdevices.a $(B)/libref.a
	$(call link,-lcmocka $(LIBS_nvcc))

# For machines that compile and have no GPU: the objects alone, and the kernels of tests, which a GPU's compiler must take, too.
cuda-objects: $(OBJECTS_nvcc) $(TEST_KERNELS:%=$(B)/cuda-nvcc/%.o)
has-nvcc:
	@test -x "$(NVCC)"

## make test-cuda  the kernels of the CUDA backend on this machine's cores: each operation, training, the judge and what it kills
CUDA_TESTS := tests/devices/test_backend.c tests/devices/test_backend_entries.c tests/devices/test_conformance.c
JUDGE_TESTS := $(wildcard tests/devices/cuda/test_*.c) tests/devices/test_conformance.c
test-cuda: deps
	$(Q)$(MAKE) -j$(CORES) --no-print-directory CUDA=emulated $(ORRERY) $(CUDA_TESTS:%.c=$(B)/cuda-emulated/%) $(JUDGE_TESTS:%.c=$(B)/cuda-judge/%) $(B)/cuda-judge/orrery
	$(Q)BACKENDS=cuda BACKEND=cuda-emulated ORRERY="$(CURDIR)/$(ORRERY)" MPIEXEC="$(MPIEXEC)" bash tests/run.sh $(B)/cuda-emulated $(CUDA_TESTS) $(wildcard tests/devices/cuda/test_*.sh)
	$(Q)BACKENDS=cuda MPIEXEC="$(MPIEXEC)" bash tests/run.sh $(B)/cuda-judge $(JUDGE_TESTS)

## make test-gpu  the same on a GPU: each operation, training, and NCCL where its header is; the program is ./orrery of CUDA=1
GPU_TESTS := $(patsubst %,tests/devices/cuda/%.sh,test_training test_schemes $(if $(NCCL_BUILT),test_nccl))
test-gpu: deps
	$(Q)$(MAKE) -j$(CORES) --no-print-directory CUDA=1 $(ORRERY) $(CUDA_TESTS:%.c=$(B)/cuda-nvcc/%) $(B)/cuda-nvcc/tests/devices/cuda/on_gpu
	$(Q)$(B)/cuda-nvcc/tests/devices/cuda/on_gpu
	$(Q)ORRERY="$(CURDIR)/$(ORRERY)" BACKEND=cuda MPIEXEC="$(MPIEXEC)" bash tests/run.sh $(B)/cuda-nvcc $(CUDA_TESTS) $(GPU_TESTS)

# ---- a plan in a browser (docs/plans/browser.md) ------------------------------------------------------------------
## make wasm       a page with sliders that plans in the browser: build/wasm/plan.html, one file without network (needs emscripten)
W          := $(B)/wasm
# How the C library of emscripten asks the system differs between versions: emulated_devices/browser/system.c answers as this one asks.
EMSCRIPTEN := 3.1.6
EM_ROOT    = $(shell em-config EMSCRIPTEN_ROOT)
EM_BIN     = $(shell em-config LLVM_ROOT)
BROWSER    := emulated_devices/browser
# What a plan needs of comm/ is what needs no MPI.  Archives give what is called for, so rooms that no plan calls are left out only to save time.
WASM_COMM  := $(patsubst %,emulated_devices/comm/%.c,carrier comm crew exchange folding group ledger mesh recorder reduce strided_transfer watch)
WASM_NOT   := $(foreach room,bench check cli cluster comm course launch library run/from train/data/data verify/cases verify/conformance verify/dump verify/jobs verify/plugins,emulated_devices/$(room)%)
WASM_NOT   += emulated_devices/device/cuda/% emulated_devices/collectives/nccl.c emulated_devices/run/golden.c emulated_devices/serve/http/% ref/golden/% ref/text/% ref/io/yaml.c ref/io/toml.c ref/machine/busy.c
WASM_SRC   := $(filter-out $(WASM_NOT),$(REF_SRC) $(DEV_SRC)) $(WASM_COMM) $(filter-out %/train.c,$(filter emulated_devices/cli/train/% emulated_devices/cli/shared_words.c emulated_devices/cli/commands.c,$(DEV_SRC)))
WASM_SRC   += emulated_devices/check/report/diagnose.c emulated_devices/train/data/data_words.c $(wildcard ref/text/token/*.c)
WASM_FRONT := $(patsubst %,$(BROWSER)/%.c,ask absent fiber system sort)
WASM_TEXTS := clusters kernel_tables kernel_sets layouts
WASM_OBJ   := $(WASM_SRC:%.c=$(W)/%.o) $(foreach f,$(FORMATS),$(OPS_SRC:%.c=$(W)/%.$(f).o)) $(foreach f,$(RULES),$(EXACT_SRC:%.c=$(W)/%.$(f).o)) $(WASM_TEXTS:%=$(W)/%.o) $(W)/$(BROWSER)/json_tree.o $(W)/$(BROWSER)/json_words.o
WASM_CC    = $(EM_BIN)/clang --target=wasm64-unknown-emscripten --sysroot=$(EM_ROOT)/cache/sysroot -std=c11 -D_POSIX_C_SOURCE=200809L -DNDEBUG -I. -isystem $(BROWSER)/include -isystem $(W)/include \
             -O2 -fno-math-errno -ffunction-sections -fdata-sections -Wall -Wextra -Wno-unknown-pragmas -Wno-missing-field-initializers -Wno-unused-function -Wno-unused-parameter -MMD -MP
WASM_LIBS  := $(patsubst %,$(W)/cache/sysroot/lib/wasm64-emscripten/%.a,libc libdlmalloc libcompiler_rt)
has-emcc:
	@[ "$$(emcc --version 2>/dev/null | sed -n '1s/.*) \([0-9.]*\).*/\1/p')" = $(EMSCRIPTEN) ]
wasm: deps
	@$(MAKE) -s has-emcc || { echo 'make wasm: needs emcc $(EMSCRIPTEN) (Debian 12: apt-get install emscripten)' >&2; exit 1; }
	$(Q)$(MAKE) -j$$(nproc) --no-print-directory $(W)/plan.html

# Of cJSON only the header: a browser has browser/json_tree.c.
$(W)/include/cjson/cJSON.h:
	@mkdir -p $(@D)
	$(Q)cp "$$(echo '#include <cjson/cJSON.h>' | $(CC) -M -x c - | grep -o '[^ ]*/cJSON[.]h')" $@
define compile_wasm
@mkdir -p $(@D)
$(if $(V),,@echo '  WASM $@')
$(Q)$(WASM_CC) $(1) -c $< -o $@
endef
define wasm_format
$(W)/ref/%.$(1).o: ref/%.c Makefile $(W)/include/cjson/cJSON.h
	$$(call compile_wasm,-DREAL=$(1))
endef
$(foreach f,$(FORMATS) $(RULES),$(eval $(call wasm_format,$(f))))
$(WASM_TEXTS:%=$(W)/%.o): $(W)/%.o: $(B)/%.c Makefile $(W)/include/cjson/cJSON.h
	$(call compile_wasm)
$(W)/%.o: %.c Makefile $(W)/include/cjson/cJSON.h
	$(call compile_wasm)

# emscripten's C library for 64-bit addresses, which Debian does not have ready: a few minutes, once.
$(WASM_LIBS) &: | $(W)/include/cjson/cJSON.h
	@echo '  WASM the C library'
	$(Q)printf '%s\n' "EMSCRIPTEN_ROOT = '$(EM_ROOT)'" "LLVM_ROOT = '$(EM_BIN)'" "BINARYEN_ROOT = '$(shell em-config BINARYEN_ROOT)'" "NODE_JS = $(shell em-config NODE_JS)" "CACHE = '$(CURDIR)/$(W)/cache'" 'FROZEN_CACHE = False' >$(W)/emscripten.py
	$(Q)EM_CONFIG=$(CURDIR)/$(W)/emscripten.py $(EM_ROOT)/embuilder.py --wasm64 build libc libdlmalloc libcompiler_rt >$(W)/libraries.log 2>&1 || { cat $(W)/libraries.log; exit 1; }

$(W)/libplan.a: $(WASM_OBJ)
	@rm -f $@
	$(Q)$(EM_BIN)/llvm-ar rcs $@ $^
# Addresses of 64 bits become those of a memory of 32, and each function that may wait for another device can be left and entered again.
$(W)/plan.wasm: $(WASM_FRONT:%.c=$(W)/%.o) $(W)/libplan.a $(WASM_LIBS)
	@echo '  LINK $@'
	$(Q)$(EM_BIN)/wasm-ld -mwasm64 --no-entry --gc-sections --stack-first -z stack-size=1048576 --export=stackRestore --export=__wasm_call_ctors $^ -o $(W)/plan64.wasm
	$(Q)wasm-opt --enable-memory64 --enable-bulk-memory --enable-sign-ext --enable-mutable-globals --strip-debug --memory64-lowering --asyncify --pass-arg=asyncify-imports@env.page_switch -O1 --strip-producers $(W)/plan64.wasm -o $@
$(W)/plan.html: $(W)/plan.wasm $(PAGE) $(wildcard $(BROWSER)/page/* $(BROWSER)/page/engine/*) $(ORRERY)
	$(Q)bash $(BROWSER)/page/make.sh ./$(ORRERY) $(W)/plan.wasm $@ $(PAGE)
	@echo "  PAGE $@, $$(du -k $@ | cut -f1) KiB"

## make test-wasm  the same plans by the page's program, in node and in Chromium where there are any, and by ./orrery
test-wasm: wasm
	$(Q)PAGE="$(CURDIR)/$(W)/plan.html" WASM="$(CURDIR)/$(W)/plan.wasm" ORRERY="$(CURDIR)/$(ORRERY)" MPIEXEC="$(MPIEXEC)" bash tests/run.sh $(B) $(wildcard tests/browser/test_*.sh)

# ---- what the machine must have ----------------------------------------------------------------------------------
deps:
	@BLAS="$(BLAS)" bash docs/requirements.sh $(DEPS_FOR)

# ---- how it is built ---------------------------------------------------------------------------------------------
# The flags of the whole command; a target's own are added later.
FLAGS := $(CC) $(MPICC) $(CFLAGS) $(CXX) $(CXXFLAGS) $(NVCC) $(NVCCFLAGS) $(CUDA_ARCH) $(PLUGINS) $(LDLIBS)
QUOTED := '$(subst ','\'',$(FLAGS))'
$(B)/flags.is: always
	@mkdir -p $(@D)
	@echo $(QUOTED) | cmp -s - $@ || echo $(QUOTED) >$@

define compile
@mkdir -p $(@D)
$(if $(V),,@echo '  CC   $@')
$(Q)$(1) $(CFLAGS) $(2) -c $< -o $@
endef

define compile_format
$(B)/ref/%.$(1).o: ref/%.c $(ALSO)
	$$(call compile,$$(CC),-DREAL=$(1))
endef
$(foreach f,$(FORMATS) $(RULES),$(eval $(call compile_format,$(f))))
# Ordinary operations may fuse products with sums, which only makes them more exact.
$(foreach f,$(FORMATS),$(eval $(B)/ref/ops/%.$(f).o: override CFLAGS += -ffp-contract=fast))

$(B)/ref/%.o: ref/%.c $(ALSO)
	$(call compile,$(CC))
$(B)/%.o: %.c $(ALSO)
	$(call compile,$(MPI_CC),-DORRERY_MPIEXEC='"$(notdir $(MPIEXEC))"')

$(B)/emulated_devices/serve/http/server.o: override CFLAGS += $(if $(HTTP_LIB),-DORRERY_HTTP)
$(B)/emulated_devices/course/compile/plugin.o $(B)/emulated_devices/course/compile/build.o $(B)/emulated_devices/course/compile/workshop.o: override CFLAGS += $(PLUGINS)

$(B)/emulated_devices/search/layers/integer.o: override CFLAGS += $(GLPK_FLAGS)

# $(call texts,HEADER,ARRAY,FILES): the texts of some files as strings of the program, so that an installed one has them.
texts = { echo '\#include "$1"'; echo 'const char *const $2[] = {'; \
	  for f in $3; do sed 's/["\\]/\\&/g; s/.*/"&\\n"/' $$f; echo ','; done; echo 'NULL };'; }

# The shipped descriptions of clusters, tables of measured kernels, and sets of kernels.
$(B)/clusters.c: $(CLUSTERS) Makefile
	@mkdir -p $(@D)
	$(Q)$(call texts,emulated_devices/device/cluster.h,cluster_texts,$(CLUSTERS)) >$@
$(B)/kernel_tables.c: $(TABLES) Makefile
	@mkdir -p $(@D)
	$(Q)$(call texts,emulated_devices/device/kernel_table.h,kernel_table_texts,$(TABLES)) >$@
$(B)/kernel_sets.c: $(SETS) Makefile
	@mkdir -p $(@D)
	$(Q)$(call texts,emulated_devices/device/kernel_set.h,kernel_set_texts,$(SETS)) >$@
$(B)/clusters.o $(B)/kernel_tables.o $(B)/kernel_sets.o: %.o: %.c $(ALSO)
	$(call compile,$(MPI_CC))

# $(call named_texts,HEADER,ARRAY,SUFFIX,FILES): a program's copy of some files, name and text in turn.
named_texts = { echo '\#include "$1"'; echo 'const char *const $2[] = {'; \
	  for f in $4; do echo '"'$$(basename $$f $3)'",'; sed 's/["\\]/\\&/g; s/.*/"&\\n"/' $$f; echo ','; done; echo 'NULL };'; }

# The shipped layouts of tensor parallelism.
$(B)/layouts.c: $(LAYOUTS) Makefile
	@mkdir -p $(@D)
	$(Q)$(call named_texts,emulated_devices/schemes/tensor/tensor_sbp.h,sbp_layout_texts,.sbp,$(LAYOUTS)) >$@
$(B)/layouts.o: $(B)/layouts.c $(ALSO)
	$(call compile,$(MPI_CC))

# The numbers that papers printed.
$(B)/claims.c: $(CLAIMS) Makefile
	@mkdir -p $(@D)
	$(Q)$(call named_texts,emulated_devices/bench/claims/claims.h,claims_texts,.txt,$(CLAIMS)) >$@
$(B)/claims.o: $(B)/claims.c $(ALSO)
	$(call compile,$(MPI_CC))

# Style and scripts of pages.
$(B)/page_texts.c: $(PAGE) Makefile
	@mkdir -p $(@D)
	$(Q)$(call named_texts,emulated_devices/draw/page/page_html.h,page_texts,,$(PAGE)) >$@
$(B)/page_texts.o: $(B)/page_texts.c $(ALSO)
	$(call compile,$(MPI_CC))

# A text to train on, for programs without their sources.
$(B)/plays.c: ref/text/plays.txt Makefile
	@mkdir -p $(@D)
	$(Q){ echo '#include "ref/io/text.h"'; echo 'const char text_plays[] ='; sed 's/["\\]/\\&/g; s/.*/"&\\n"/' $<; \
	  echo ';'; echo 'const size_t text_plays_bytes = sizeof text_plays - 1;'; } >$@
$(B)/plays.o: $(B)/plays.c $(ALSO)
	$(call compile,$(CC))

# The list of lessons: a folder of tutorials/ with a check.c is one.
LESSON_NAMES := $(patsubst tutorials/%/check.c,lesson_%,$(LESSONS))
$(B)/lessons.c: $(LESSONS) Makefile
	@mkdir -p $(@D)
	$(Q){ echo '#include "emulated_devices/course/lesson.h"'; printf 'extern const struct lesson %s;\n' $(LESSON_NAMES); \
	  echo 'const struct lesson *const lessons[] = {'; printf '&%s,\n' $(LESSON_NAMES); echo 'NULL };'; } >$@
$(B)/lessons.o: $(B)/lessons.c $(ALSO)
	$(call compile,$(MPI_CC))

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
$(if $(OWN_FOLDER),$(B)/orrery,orrery): $(B)/emulated_devices/cli/main.o $(OBJECTS_$(CUDA_KIND)) $(SAN_OBJ) $(B)/libdevices.a $(B)/libref.a $(B)/cuda.is | ready
	$(call link,$(LINK_ALL) $(LIBS_$(CUDA_KIND)))
# The program that is installed: without what makes solutions of lessons, which the linker then does not take from libdevices.a.
$(B)/student/main.o: emulated_devices/cli/main.c $(ALSO)
	$(call compile,$(MPI_CC),-DWITHOUT_TEACHER)
$(B)/student/orrery: $(B)/student/main.o $(OBJECTS_$(CUDA_KIND)) $(SAN_OBJ) $(B)/libdevices.a $(B)/libref.a $(B)/cuda.is | ready
	$(call link,$(LINK_ALL) $(LIBS_$(CUDA_KIND)))
ifeq ($(wildcard emulated_devices/cli/teacher),)
$(B)/emulated_devices/cli/main.o: override CFLAGS += -DWITHOUT_TEACHER
endif
# The library exports what begins with orrery_ (exports.map), and has no more of the program than that needs.
LIBRARY := emulated_devices/library
$(B)/liborrery.so: $(B)/$(LIBRARY)/commands.o $(B)/$(LIBRARY)/tensors.o $(B)/libref.a $(LIBRARY)/exports.map
	$(if $(V),,@echo '  LINK $@')
	$(Q)$(CC) $(CFLAGS) $(SONAME) $(filter %.o,$^) $(B)/libref.a -o $@ $(LDLIBS)
$(TESTS): $(B)/%: $(B)/%.o $(SAN_OBJ) $(B)/libdevices.a $(B)/libref.a
	$(call link,$(if $(FUZZ),-fsanitize=fuzzer,-lcmocka))

-include $(shell find $(B) \( -path $(B)/faults -o -path $(B)/root -o -path $(B)/apt \) -prune -o -name '*.d' -type f -print 2>/dev/null)
.PHONY: always ready check-aarch64 check-machines check-portable wheel place simgrid test-cuda wasm test-wasm has-emcc cuda-objects has-nvcc all run check test verify bench golden golden-check frameworks clean-dumps faults faults-modes fuzz fuzz-programs fuzzers docs install uninstall clean help deps
.SECONDARY:
