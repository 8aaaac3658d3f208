/* conventions.h -- what released programs do differently under the same name: one row each, a value in each profile.
 *
 * A profile is a column: the package whose steps are meant.  `orrery` is what this program does by itself.  The rows,
 * with the files of the released code, are in conventions.c; `orrery list profiles` prints them;
 * golden/make_profiles.py runs the packages, and tests/ref/test_profiles.c holds each column to what they compute.
 * A named loss gives several rows the values of one released function: loss_names, and words such as
 * "orrery,megatron-seq-aux-loss".
 *
 * Optimizers, the loss scale and the model ask for values; cli/ and golden files have the text.
 */
#ifndef ORRERY_CONVENTIONS_H
#define ORRERY_CONVENTIONS_H

#include "ref/error.h"
#include <stdbool.h>

enum profile { AS_ORRERY, AS_TORCH, AS_MEGATRON, AS_DEEPSPEED, AS_GALORE_TORCH, PROFILES };

enum convention {
    CLIP_ADDED,                         /* a number: clipping multiplies by clip / (norm + this) */
    NORM_OF,
    DECAYED, DECAY_PLACE, SGD_DECAY,
    EPS_PLACE, BIAS_CORRECTION, FACTORS, STATES,
    INITIAL,
    BALANCE_OVER, BALANCE_LAYERS, BALANCE_CHOICES,      /* of a mixture's balance loss: ref/model/balance.h */
    LABEL_SMOOTHING, SMOOTHING_OVER, LOGITS_Z, LOSS_MEAN, LOSS_PARTS, LOSS_DIVISOR,     /* ref/model/loss_rule.h */
    SCALE_START, SCALE_GROWTH, SCALE_BACKOFF, SCALE_INTERVAL, SCALE_LATE, SCALE_HYSTERESIS, SCALE_REFILL, SCALE_LEAST,
    SCALE_AT_LEAST,                     /* numbers, but for SCALE_REFILL and SCALE_AT_LEAST: loss_scale.h */
    CONVENTIONS
};

/* Values of the rows that are choices. */
enum { DECAYED_MATRICES, DECAYED_ALL };
enum { DECAY_BEFORE, DECAY_AFTER };
enum { SGD_DECOUPLED, SGD_COUPLED };
enum { EPS_CORRECTED, EPS_RAW };
enum { CORRECTION_YES, CORRECTION_NO };
enum { FACTORS_FP64, FACTORS_FP32 };
enum { STATES_NUMBERS, STATES_CODED };
enum { INITIAL_SCALED, INITIAL_PLAIN, INITIAL_LAYERS };
enum { OVER_MICROBATCH, OVER_SEQUENCE, OVER_BATCH };
enum { LAYERS_TOGETHER, LAYERS_EACH };
enum { CHOICES_ALL, CHOICES_MEAN, CHOICES_FIRST };
enum { SMOOTHING_ALL, SMOOTHING_OTHERS };
enum { MEAN_OF_LABELS, MEAN_OF_ROWS, MEAN_OF_SEQUENCES, MEAN_OF_PARTS, MEAN_NONE };
enum { REFILL_BY_GROWTH, REFILL_BY_STEP };
enum { AT_LEAST_STAYS, AT_LEAST_STOPS };

struct convention_row {
    const char *name;                   /* as typed */
    const char *what, *source;          /* what differs between programs; the code or paper that shows it */
    const char *const *choices;         /* names of values 0, 1, ..., then NULL; NULL: a number */
    double least, most;                 /* of a number */
    bool whole;                         /* a number without a fraction */
    double value[PROFILES];             /* value in each profile of --as */
};

/* A loss that released code computes: values of some rows, as typed after a profile; what it is in words, which a
 * diagnosis says of a program that has it; and the code: file and function. */
struct loss_name { const char *name, *rows, *what, *source; };

extern const struct convention_row convention_rows[CONVENTIONS];
extern const struct loss_name loss_names[];                    /* the last has no name */
extern const char *const profile_names[PROFILES + 1];          /* ends with NULL */
extern const char *const profile_packages[PROFILES];           /* whose code it is, with version */

enum { CONVENTIONS_TEXT = 160, LOSS_CONVENTION = BALANCE_OVER, LOSS_CONVENTIONS_END = SCALE_START };

/* The value of every row.  All zeros: those of `orrery`. */
struct conventions {
    char text[CONVENTIONS_TEXT];        /* as typed; empty for `orrery` as it is */
    enum profile profile;               /* the package that the text names first */
    double value[CONVENTIONS];          /* read through convention(), which knows that an empty text means orrery's */
};

/**
 * Read "PROFILE" or "PROFILE,ROW=VALUE,LOSS,...", such as "torch" or "megatron,scale-interval=5".
 * @return OK; ERR_USAGE, naming --as, the word and what there is.
 */
enum error_code conventions_parse(struct conventions *, const char *text, struct error *);

/**
 * Change one row of conventions and of their text; a value that the row already has changes neither.
 * @return OK; ERR_USAGE, naming --as, the value and what there is: then nothing has changed.
 */
enum error_code conventions_change(struct conventions *, enum convention, const char *value, struct error *);

/** Whether a text gives a row a value behind its profile, by the row or by a named loss.  Pure. */
bool conventions_say(const char *text, enum convention);

/** Give the rows of a named loss its values; the text stays as it is.  Pure. */
void conventions_take_loss(struct conventions *, const struct loss_name *);

/** The value of a row. */
double convention(const struct conventions *, enum convention);

/** A value as it is typed. */
/* The text, as --as prints and reads it. */
struct convention_text { char text[32]; } convention_value(enum convention, double value);

#endif
