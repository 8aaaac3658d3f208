/* lint.h -- calls of a C text that do not match on all devices, found without running it.
 *
 * Each function that sends is run for devices 0 .. P-1 with what is known of its numbers (run.h), and the traces are
 * held against each other (match.h): collectives in another order, a member that does not call, another root, count,
 * type or reduction, sends without receives, deadlocks.  What hangs on numbers that only a run has is not judged, and
 * said.  cli/lint.c and verify_plugin.c call lint_text().
 *
 * Source    N. Schneider et al., "MPIrigen: MPI code generation through domain-specific language models",
 *           arXiv:2402.09126: which calls of MPI belong where; here they are held against each other, and none is
 *           generated.
 */
#ifndef ORRERY_LINT_LINT_H
#define ORRERY_LINT_LINT_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>

enum { LINT_USUAL = 5, LINT_FILE = 1 << 20 };  /* devices at most: primes and a power of two; bytes of a file */
enum { LINT_TEXT = 500, LINT_NAME = 80, LINT_MOST = 200, LINT_SIZES = 7, LINT_DEVICES = 8 };

/* One mismatch, or why the rest of a function is not judged. */
struct lint_finding {
    char kind[12];                      /* order, member, root, count, type, reduction, message, wait, deadlock, peer,
                                           group; of a note: "note" */
    char function[LINT_NAME];           /* that was run */
    int line, other_line;               /* -1: there is no other */
    int devices, device;                /* how many there were; on which it was seen */
    char text[LINT_TEXT];               /* a sentence for people */
};

struct lint_report {
    struct lint_finding finding[LINT_MOST], note[LINT_MOST];
    int findings, notes;
    int functions, judged;              /* that send; of them, judged to their end for all numbers of devices */
};

/**
 * Judge a text.
 * @param devices  [sizes] numbers of devices, 2 .. LINT_DEVICES.
 * @return OK, also with findings; ERR_FORMAT: the text is too long, or has a NUL; ERR_MEMORY.
 */
enum error_code lint_text(const char *text, size_t length, const int *devices, int sizes, struct lint_report *,
                          struct error *);

/** Judge a file as `orrery lint FILE` does, on 2 to `most` devices, from `from` on.
 *  @return as lint_text, with the file's name in the message; ERR_FILE. */
enum error_code lint_file(const char *path, int from, int most, struct lint_report *, struct error *);

/** A finding for people: "FILE:7: order: ...".  @return text. */
const char *lint_line(char *text, size_t size, const char *file, const struct lint_finding *);

#endif
