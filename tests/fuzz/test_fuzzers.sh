# libFuzzer attacks every reader of files, for $FUZZ_SECONDS each.
# tier: verify
#
# `make fuzz` builds with clang in a folder of its own; what this make was told about compilers does not concern that one.
echo '[ RUN      ] fuzzers'
if env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make fuzz SECONDS="${FUZZ_SECONDS:-60}"; then echo '[       OK ] fuzzers'; else echo '[  FAILED  ] fuzzers'; exit 1; fi
