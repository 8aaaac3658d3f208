/* laws.h -- the laws of plug-ins: what a variant of each kind promises, and a book of which promises hold.
 *
 *     every kind    complete, ends, quiet                                          child.c
 *     collective    values, reductions, formats, guards, order, costs, steps ..    collective.c
 *     optimizer     pieces, clipping, formats, decay, rate, states ..              optimizer.c
 *     scheme        partition, divides, executes, repeats, trains                  scheme.c
 *     backend       memory, operations, trains                                     backend.c
 *
 * A new kind is one file with a struct law_kind, and one line in kinds.c.  Each variant is judged in a process of its
 * own (child.c), so a variant that crashes or hangs breaks one law and harms nothing else.  cli/verify_plugin.c calls
 * laws_list() and laws_try().
 */
#ifndef ORRERY_LAWS_H
#define ORRERY_LAWS_H

#include "emulated_devices/schemes/plugin.h"

enum { LAWS_MOST = 24, LAW_TEXT = 400, LAW_NAME = 80, VARIANTS_MOST = 256 };

/* A law is one promise. */
struct law {
    const char *name, *sentence;        /* one word; what holds, for people */
};

/* A law's verdict of one variant. */
struct verdict {
    int64_t judged;                     /* how often the law was looked at; 0: never; -1: it says nothing of
                                         * this variant */
    bool broken;                        /* it did not hold, once at least */
    char why[LAW_TEXT];                 /* of the first time */
};

/* A variant of a plug-in: its kind, as an index of law_kinds, and its name. */
struct law_variant {
    int kind;                           /* of law_kinds */
    char name[LAW_NAME];                /* "allreduce mine" */
};

/* A book is shared memory: a child writes verdicts, and its parent reads them, however the child ended. */
struct book {
    char now[LAW_TEXT];                 /* what the variant was asked for last */
    struct verdict verdict[LAWS_MOST];  /* of the laws of all kinds, then of the kind's: law_verdict() */
    int variants;                       /* entries of `variant` */
    struct law_variant variant[VARIANTS_MOST]; /**< Judged variants, [variants]. */
    bool began, done;                   /* the variants were loaded; the child has come to its end */
    bool is_short;                      /* only small sizes */
    enum error_code code;               /* that nothing could be judged, and why */
    char text[LAW_TEXT];                /**< Reason of `code`, as text. */
};

/* A kind of variants. */
struct law_kind {
    const char *name;                   /* "collective" */
    const struct law *laws;             /* ends with one without a name; at most LAWS_MOST with those of all kinds */
    int overruns;                       /* the law that breaks if a guard of the arena was written; 0: "ends" */
    bool prints;                        /* its variants may write to standard error */
    bool (*is)(const struct plugin_item *);     /* whether a variant is of this kind */
    void (*names)(const struct plugin_item *, char name[LAW_NAME]);     /* the variant's name, for people */
    /* Find the built-in variant of a place, from 0.  @return false after the last. */
    bool (*built_in)(int place, struct plugin_item *);                  /**< Finds a built-in variant. */
    /* Judge a variant.  It is in the registries.  @return OK, or why nothing could be judged. */
    enum error_code (*judge)(struct book *, const struct plugin_item *, struct error *); /**< Judges a variant. */
};
extern const struct law_kind *const law_kinds[];        /* ends with NULL */

/* The laws that all kinds have stand before the kind's own, which begin with 0. */
enum { LAW_COMPLETE = -3, LAW_ENDS, LAW_QUIET };

/** A law of a kind, from LAW_COMPLETE on.  @return NULL after the last. */
const struct law *law_at(const struct law_kind *, int law);

/** Its verdict in a book. */
struct verdict *law_verdict(struct book *, int law);

/* ---- what judges write ------------------------------------------------------------------------------------------- */

/** Write into the book whether a law held once.  The first time that it does not, the text is kept.
 *  @param law  an index of the kind's laws, or one of all kinds'.  @return holds. */
bool law_judge(struct book *, int law, bool holds, const char *format, ...) __attribute__((format(printf, 4, 5)));

/** Say that a law says nothing of this variant, unless it was judged already. */
void law_leave_out(struct book *, int law);

/** Write what the variant is asked for next: a crash is then named by it. */
void law_now(struct book *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Train in a process of its own, all devices in it, beside one device.
 *  @param law  the law that is broken if the check fails.  @param words  ends with NULL.
 *  @return OK, also if the law is broken; ERR_MEMORY. */
enum error_code law_trains(struct book *, int law, const char *const *words, struct error *);

/* ---- judging, from a process without the plug-in ----------------------------------------------------------------- */

/* A caller asks for this. */
struct law_request {
    const char *object;                 /* the shared object, with a slash; NULL: the built-in variants */
    double seconds;                     /* of a processor for each variant; on the clock it has LAW_PATIENCE times */
    uint64_t memory;                    /* bytes that a variant may take */
    bool is_short;                      /* only small sizes */
};
enum { LAW_PATIENCE = 6 };

/** A book in shared memory.  @return NULL: there is no memory. */
struct book *book_open(void);
void book_close(struct book *);

/** Load the object in a child and list its variants into the book.
 *  @return OK, and then law "complete" or "ends" may be broken; ERR_FILE, ERR_FORMAT: it is no plug-in; ERR_MEMORY. */
enum error_code laws_list(const struct law_request *, struct book *, struct error *);

/** Judge a variant of the list in a child.
 *  @return OK with verdicts in the book; ERR_MEMORY, or why nothing was judged. */
enum error_code laws_try(const struct law_request *, int variant, struct book *, struct error *);

#endif
