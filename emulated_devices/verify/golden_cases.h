/* golden_cases.h -- golden cases of collectives: calls by an independent program, and every member's right result.
 *
 * A file has one operation's cases (format: golden/README.md).  It is not trusted: a member reads its part of a case
 * only if the tensors have the format and the lengths of such a call.
 */
#ifndef ORRERY_VERIFY_GOLDEN_CASES_H
#define ORRERY_VERIFY_GOLDEN_CASES_H

#include "emulated_devices/collectives/collective.h"
#include "ref/io/safetensors.h"

struct golden_cases {
    struct safetensors file;
    struct cJSON *calls;                /* case -> arguments of the call */
};

/* One member's part of a case. */
struct golden_case {
    const char *name;                   /* the name in the file */
    enum operation operation;
    int P, rank;
    struct collective args;             /* the caller sets out; in and counts belong to this case */
    int64_t in_length, out_length;      /* elements */
    void *in, *want;                    /* [in_length], [out_length]; NULL if the member has none */
    int64_t *counts;                    /* [3P]: args.counts, args.recvcounts, scratch */
};

/** Open a file of cases.  @return OK; ERR_FILE; ERR_FORMAT; ERR_MEMORY.  On failure there is nothing to close. */
enum error_code golden_cases_open(struct golden_cases *, const char *path, struct error *);
void golden_cases_close(struct golden_cases *);

/** The name of case i, or NULL when there are no more. */
const char *golden_cases_name(const struct golden_cases *, int i);

/** The number of members in the group of case i.  @return OK; ERR_FORMAT. */
enum error_code golden_case_size(const struct golden_cases *, int i, int *P, struct error *);

/**
 * Read one member's part of case i.  Local.
 * @return OK; ERR_USAGE if the case has no such member; ERR_FORMAT naming the case and what is wrong; ERR_FILE;
 *         ERR_MEMORY.  On failure there is nothing to free.
 */
enum error_code golden_case_read(struct golden_case *, const struct golden_cases *, int i, int rank, struct error *);
void golden_case_free(struct golden_case *);

#endif
