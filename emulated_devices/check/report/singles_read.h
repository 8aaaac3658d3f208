/* singles_read.h -- what a check of single operations has open, and how tensors of the program are read for it.
 * singles.c collects the verdicts; singles_read.c answers recompute/.  Inside check/report/ only.
 */
#ifndef ORRERY_REPORT_SINGLES_READ_H
#define ORRERY_REPORT_SINGLES_READ_H

#include "emulated_devices/check/mistakes/model_copies.h"
#include "emulated_devices/check/report/singles.h"

/* Ranks whose copies of a tensor are not the same as the first's. */
struct apart { char name[SINGLE_NAME]; struct devices on; };

/* These are the ranks whose copies are looked at, and the only result that is recomputed. */
struct view {
    const struct devices *over, *last;  /* of assembly_watch */
    const char *only;                   /* of single_source */
    bool until_wrong;                   /* nothing behind the first wrong result is recomputed */
};

/* Notes of the diagnoses that read the copies of these ranks.  Checks keep pointers to `notes`, so entries never
 * move. */
struct noted { struct devices over, last; struct single_notes *notes; struct noted *next; };

/* All checks of a dump share these: that of all results, and those of single results from other copies. */
struct shared {
    struct single_params params;        /**< Parameters of the model, sorted by name. */
    struct single_params stepped;       /* of a dump with adapters: what is trained */
    struct single_mesh mesh;            /**< Devices of the program along each axis. */
    struct batch_cuts cuts;             /**< Ways to cut the batch, for diagnoses. */
    struct model_copies copies;         /**< Copies of the model, for diagnoses. */
    struct noted *noted;                /* a list, for each set of ranks whose copies are read: they are few */
};

struct checking {
    const struct golden *golden;        /**< Golden file of the check. */
    const struct actual *actual;        /**< Dump of the program that is checked. */
    enum dtype format;                  /**< Format of the program's computation. */
    struct singles *out;                /**< Verdicts, which the check fills. */
    enum error_code failed;             /**< First error of reading or of memory; OK: none. */
    struct shared *shared;              /**< Data that all checks of the dump share. */
    struct view view;                   /**< Ranks whose copies are looked at. */
    struct apart *apart;                /* [aparts] of the tensors read so far, sorted by name */
    int aparts;                         /**< Entries of `apart`. */
    bool reads_apart;                   /* since the last result a tensor was read whose copies differ */
    bool *mixed;                        /* [results] that */
    const char *optimizer;              /* whose pass is recomputed, if it is a later one */
    int64_t step;                       /* of the pass, from 0 */
    struct rounding rounding;           /**< Rounding that the bounds allow. */
    struct error *err;                  /**< Message of the error in `failed`. */
    bool stop;                          /* view.until_wrong: the first wrong result has been met */
    bool number_is_wrong;               /* the same: a number is wrong, and the next result says more */
};

/* ACTUAL's name of a tensor of the pass that is recomputed.  Recomputation knows names of the first pass only:
 * "act/h.0.ln_1" is "adamw/2/act/h.0.ln_1" in the second, and its weights are those after the step before. */
struct pass_name { char text[SINGLE_NAME]; };
struct pass_name singles_name(const struct checking *checking, const char *name);

/* Rows and columns as the comparison counts them: each element of a vector is a row.  The golden file has no
 * activations of later passes, but they have the shapes of the first. */
void singles_dims(const struct golden *golden, const char *name, struct tensor t, int64_t dim[2]);

/* @return the ranks whose copies of a tensor differ from the first's; NULL: no copy does. */
struct apart *singles_apart(const struct checking *checking, const char *name);

/* recompute/ asks how many ranks have parts of a tensor, and for the parts' absolute values. */
enum error_code singles_parts_of(void *context, const char *of, int64_t first, int64_t whole, struct tensor absolute,
                                 int *parts, struct error *err);

/* Names decide who answers: masks the golden file, copies our own model, everything else ACTUAL.  Weights that
 * ACTUAL lacks are the golden file's. */
enum error_code singles_fetch(void *context, const char *of, struct tensor out, enum single_found *found,
                              struct error *err);

/* Some rows are read as the whole is; recompute/ asks for them in tiles.  Copies of the model are never asked for
 * in rows. */
enum error_code singles_fetch_rows(void *context, const char *of, int64_t first, int64_t whole, struct tensor out,
                                   enum single_found *found, struct error *err);

#endif
