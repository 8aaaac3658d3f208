/* file_kind.h -- what a file or folder is that a command was given, and which command takes it.
 *
 * Serial.  Who cannot use what was given asks file_kind_refuse: then the one line names what the file is and the right
 * command.  ref/golden/golden.c, ref/model/, run/ and cli/check.c call.  A new kind is a line of FILE_KINDS, and a test
 * in file_kind.c.
 */
#ifndef ORRERY_FILE_KIND_H
#define ORRERY_FILE_KIND_H

#include "ref/error.h"

/* X(id, what it is, which command takes it) */
#define FILE_KINDS(X)                                                                                                  \
    X(FILE_GOLDEN,     "a golden file",                                                                                \
      "orrery check FILE YOURS judges your program by it, orrery train --check FILE a run of ours")                    \
    X(FILE_PASS,       "one pass of a model, as orrery dump writes it, without batches and steps",                     \
      "orrery golden make --out FILE makes a golden file; orrery check GOLDEN FILE judges this one by it")             \
    X(FILE_DUMP,       "a dump of a program's tensors",                                                                \
      "orrery check GOLDEN DUMP judges it, orrery check DUMP --against DUMP compares two")                             \
    X(FILE_CHECKPOINT, "a checkpoint of orrery train",                                                                 \
      "orrery train --resume DIR goes on from it, --model DIR takes its weights")                                      \
    X(FILE_MODEL,      "the folder of a model",                                                                        \
      "orrery train --model DIR trains it, orrery golden make --model DIR makes a golden file of it")                  \
    X(FILE_ADAPTER,    "a folder of adapters, without their model",                                                    \
      "peft's merge_and_unload() and save_pretrained() make a folder for --model; docs/checking/adapters.md checks "   \
      "them unmerged")                                                                                                 \
    X(FILE_TRACE,      "a trace of orrery train",                                                                      \
      "a viewer of traces shows it, ui.perfetto.dev or chrome://tracing")

enum file_kind {
#define X(id, words, command) id,
    FILE_KINDS(X)
#undef X
    FILE_UNKNOWN
};

/** Find what a file or folder is.  A file that cannot be read is unknown. */
enum file_kind file_kind_of(const char *path);

/**
 * Fail with what a file is, where something else was wanted.
 * @param wanted   "a golden file".
 * @param failed   the error so far; its text is replaced if the kind is known and not `is`.
 * @param is       the kind that was wanted, whose own error stays.
 * @return the same code.
 */
enum error_code file_kind_refuse(enum error_code failed, const char *path, const char *wanted, enum file_kind is,
                                 struct error *err);

#endif
