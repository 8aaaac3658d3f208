/* single.h -- holds every operation of a pass to its own rounding: recomputes it from the tensors that a program says
 * went into it, not from those of another run.
 *
 * Serial.  For each result that the program has, the operation behind it is computed in fp64 from the program's own
 * inputs: activations, weights, gradients of results.  What one operation's rounding allows (rounding.h) is a bound for
 * each element; so bounds do not grow with depth, and each of several independent errors is found at its place.
 *
 * An operation consists of steps, and a program may store what is between them: the parts of a softmax, the gate of a
 * swiglu, the products of a gelu.  So there are two bounds: `fused`, where only the result is stored, and
 * `stepwise`, where the result of every step is stored in the format.  Only what exceeds the second is wrong.  The
 * probabilities of attention are stored in both, as in flash attention.  rounding.fused: the first is used for both.
 *
 * What is right is found a few tokens, or sequences, at a time, where rows of a result come from those of the same
 * tokens, or sequences; gradients of matrices are added up so, some of their rows at a time (tiles.c).  So memory grows
 * neither with the batch nor with matrices.  What is wrong is counted so, too.  To say why, some sequences, or rows of
 * a matrix, are computed once more, from the first wrong one on: all of them, if they fit into a tile.
 *
 * The operations are those of a graph (graph.h).  One that is not in recompute/ is reported as not recomputed.
 *
 * Names of tensors: golden/README.md.  Weights are "start/NAME", masks of dropout "mask/1/...".
 * report/singles.c calls replay_check, single_check_step and single_check_micros with a source of the program's
 * tensors.  Verdicts come through found(); only reading, memory and a missing table are errors.
 */
#ifndef ORRERY_SINGLE_H
#define ORRERY_SINGLE_H

#include "ref/error.h"
#include "ref/model/param.h"
#include "ref/numeric/rounding.h"
#include "ref/numeric/tensor.h"
#include <stdbool.h>

struct model_config;
struct adapters;                        /* dump/adapters.h */

enum { SINGLE_NAME = PARAM_NAME + 32, SINGLE_MISTAKE = 192 };

enum single_verdict {
    SINGLE_RIGHT,                       /* within the bound of one rounding */
    SINGLE_STEPWISE,                    /* right if the steps inside store what they compute */
    SINGLE_WRONG,
    SINGLE_LACKS,                       /* the program does not have all inputs */
    SINGLE_UNKNOWN,                     /* the operation, or one that it needs, is not recomputed: made_by names it */
    SINGLE_VERDICTS
};

/* This is the result of one operation, as a matrix: all dimensions but the last are rows.  A number or a vector is
 * one row. */
struct single_result {
    char name[SINGLE_NAME];             /* of the result */
    char made_by[64];                   /* words: "the product with its matrix", "attention", ... */
    enum single_verdict verdict;        /**< Judgement of the result. */
    char lacks[SINGLE_NAME];            /* the first missing input */
    int64_t rows, cols;
    double ratio;                       /* largest error/bound of an element, by the stepwise bound; NaN: infinite */
    int64_t worst;                      /* its index */
    double have, want;                  /* its numbers */
    int64_t wrong;                      /* elements outside their bounds */
    int64_t first_row, last_row, wrong_rows;    /* rows with a wrong element */
    int64_t first_col, last_col, wrong_cols;
    int64_t head, row_head;             /* columns of a head, if the columns are heads, else 0; the same of rows */
    int64_t experts, expert;            /* of a mixture's results; the only one whose rows are wrong, -1: several are */
    bool tokens;                        /* wrong rows are all those of tokens that chose it */
    double factor, residual;            /* least squares: have = factor want, norm of what is left over norm of want */
    double allowed;                     /* norm of the bounds over norm of want */
    double squares[4];                  /* sums of want^2, have want, have^2 and bound^2 */
    char mistake[SINGLE_MISTAKE];       /* of a wrong result: what explains its numbers (mistakes.h); else empty */
    bool scaled;                        /* which is the factor */
    int64_t seen_row, seen_rows;        /* the mistake was looked for in so many rows from this one on; 0: in all */
};

/* Says why a result is wrong (mistakes/mistakes.h). */
struct single;
struct single_value;
struct single_notes;                    /* what it keeps from result to result */
struct single_explainer {
    /* Fill now.mistake of a wrong result.  number: steps of 16 bits explain this number; a mistake is said only if it
     * explains the number as sums do. */
    void (*explain)(struct single *, const struct single_value *right, bool number);
    void (*forget)(struct single_notes *); /**< Forgets the notes and frees their memory. */
};

/* The parameters of a model in its own order, and their numbers sorted by name. */
struct single_param_place { const char *name; int param; };
struct single_params { int count; struct param_spec *spec; struct single_param_place *by_name; };

/** List the parameters once.  @return OK or ERR_MEMORY; on failure there is nothing to free. */
enum error_code single_params_make(struct single_params *, const struct model_config *, struct error *);
/** List what is trained where weights have adapters: A and B, and what is trained whole.  @return as
 *  single_params_make. */
enum error_code single_params_adapted(struct single_params *, const struct single_params *all, const struct adapters *,
                                      struct error *);
/** Fill by_name, once all parameters are there. */
void single_params_sort(struct single_params *);
/** Find a parameter by its name.  @return its number; -1: the model has none of this name. */
int single_params_find(const struct single_params *, const char *name);
void single_params_free(struct single_params *);

/* Devices of the program along each axis, and its microbatches; 0: nobody knows.  Diagnoses try these numbers first. */
struct single_mesh { int pp, dp, cp, ep, tp, micros; };

/* Whose a part of the batch is: of a copy of the model, of its rank along cp, and of its microbatch, -1: the layout
 * numbers none. */
struct single_owner { int copy, cp, micro; };
struct batch_cuts;                      /* mistakes/cuts.h */

/* A source reads the program's tensors. */
enum single_found { SINGLE_HAS, SINGLE_HAS_NOT, SINGLE_NOT_FINITE };
struct single_source {
    /* Read a tensor into an F64 one of its shape.  A weight ("start/...") that the program has not may come from
     * elsewhere; a mask ("mask/...") is what the program should have dropped.
     * @return OK, or what then ends everything: ERR_FILE, ERR_MEMORY, ... */
    enum error_code (*fetch)(void *context, const char *name, struct tensor out, enum single_found *,
                             struct error *);
    /* Read some rows of a tensor that has `whole`, from row `first` on.  NULL: tensors are read whole only, and
     * memory grows with them. */
    enum error_code (*fetch_rows)(void *context, const char *name, int64_t first, int64_t whole, struct tensor out,
                                  enum single_found *, struct error *);
    int64_t tile;                       /* numbers in what is then read at a time, at least a row, or a sequence where
                                         * one needs it; 0: 2^18, of a matrix 2^21 */
    int64_t *most;                      /* the most bytes of matrices at once, if it is more; NULL: nobody asks */
    void (*found)(void *context, const struct single_result *);     /* called for each operation, in order */
    void *context;                      /**< First argument of fetch, fetch_rows, found and parts. */
    const struct single_explainer *explainer;       /* NULL: nobody asks why a result is wrong */
    const char *only;                   /* the only result that is recomputed; NULL: all are */
    const bool *stop;                   /* set to true by found(): no further result is recomputed; NULL: all are */
    bool some;                          /* elements of results that are NaN are not judged */
    /* Add up the absolute values of a tensor's parts, if several ranks have parts that are added up.
     * @param whole       the tensor's rows, of which those from `first` on are asked for; 0: all of it is.
     * @param absolute    tensor_none: it is only asked whether it is such a sum.
     * @param[out] parts  how many there are; 1: it is none, and nothing is written.  NULL: no tensor is one.
     * fetch and fetch_rows then give "part/K/NAME", too: of each sum what its K-th rank has, from 1, and zeros
     * elsewhere; "part/0/NAME" has what is no sum, and zeros in place of sums. */
    enum error_code (*parts)(void *context, const char *name, int64_t first, int64_t whole, struct tensor absolute,
                             int *parts, struct error *);
    /* Copies of the model, of each of which fetch also gives "copy/K/grad/NAME", its part of the first step's gradient,
     * and "copy/K/share", its part of the labels; 0: of none. */
    int copies;
    /* The batch is that of this step, from 0, of so many, which lie behind each other; 0 steps: nobody knows others.
     * begins: the step after which a resumed program begins; 0: the start. */
    int64_t step, steps, begins;
    struct single_mesh mesh;            /**< Devices along each axis; 0: nobody knows. */
    const struct single_params *params; /* of the model; NULL: they are looked up again for each result */
    struct single_notes **notes;        /* the explainer's notes live on here for further checks of the same tensors;
                                         * the owner forgets them; NULL: they end with the check */
    /* [all tokens] which part of the batch each is in: the tokens of a rank's microbatch, whose gradients of weights
     * are stored before those of all parts are added.  NULL: nobody knows.  parts_are_scaled: each is then multiplied
     * by its share of the labels, and stored again. */
    const int32_t *part;                /**< Part of the batch for each token, [all tokens]; NULL: unknown. */
    int parts_of_batch;                 /**< Number of parts that the batch has. */
    bool parts_are_scaled;              /**< Each part is multiplied by its share of the labels. */
    const struct adapters *adapters;    /* of the weights; NULL: there are none */
    const struct single_params *stepped;        /* what an optimizer steps, if that is not what `params` has; NULL */
    const struct batch_cuts *cuts;      /* how diagnoses may cut the batch; NULL: nobody says why a result is wrong */
};

/* This is a batch of B sequences of S tokens; a label below 0 is ignored.  micros: where a mixture's balance losses
 * are of microbatches, into how many they divide the batch (balance.h); 0: the batch is one. */
struct single_batch {
    const int32_t *ids, *labels;
    int64_t B, S, micros;
    const int32_t *positions;           /* [B*S] of packed documents (ref/model/sample_mask.h); NULL: of sequences */
};

/** How wrong numbers follow from right ones: "expected times 1.1000; 399 of 441 elements outside the bound".
 *  @return out. */
const char *single_describe(const struct single_result *, char *out, size_t size);

#endif
