/* mistakes.h -- which mistake explains a wrong result.  Inside check/ only.
 *
 * A struct single is the check that recomputes one operation's result at a time from the program's own inputs
 * (recompute/single.h).  A struct suspect is a wrong result of such a check while hypotheses are tried on it.
 * Every mistake is a hypothesis: a row with its words, the passes that can have it, and its switches; and a function
 * that makes what a pass gives with these switches, from the program's own inputs.  A hypothesis is taken if what it
 * makes agrees with the program's result within the operation's bounds, where the right result does not.  If two
 * explain it equally well, both are named; if none does, nothing is said.
 *
 *     mistakes of an operation   a file each, as attention.c: scores without scale, eps outside the root, ...
 *     masks of dropout           mask.c: of any operation that drops, or is behind one
 *     low-rank adapters          adapter.c: of their gradients, and of products with the weights that have them
 *     tokens not added up        rows.c: of the gradient of any parameter
 *     another input or weight    inputs.c: of any operation
 *     mistakes of any result     mistakes.c: zeros, factors, a summand lost, sums in a narrow format;
 *                                arrangement.c: rows, columns or heads in other places, copies that take turns
 * recompute/verdict.c calls the explainer (explainer.h) for each wrong result.  The tables and functions here are for
 * the files of mistakes/ and for tests.  A hypothesis leaves the result's numbers alone and writes its own to a work
 * tensor.
 * No function returns an error.  Without memory, single.failed becomes ERR_MEMORY; whoever runs the check returns it.
 */
#ifndef ORRERY_SINGLE_MISTAKES_H
#define ORRERY_SINGLE_MISTAKES_H

#include "emulated_devices/check/mistakes/cuts.h"
#include "emulated_devices/check/mistakes/explainer.h"
#include "emulated_devices/check/mistakes/shares.h"
#include "emulated_devices/check/recompute/stepping.h"
#include "emulated_devices/check/recompute/turns.h"

/* One mistake.  The test of all rows (test_mistakes) makes what a program with it has, and wants its words. */
struct single_mistake {
    const char *words;                  /**< Words that explain the mistake. */
    unsigned passes;                    /* that can have it */
    int which;                          /* one of the operation's own numbers; */
    const void *with;                   /* or its switches */
};
enum {
    FORWARD = 1 << SINGLE_FORWARD, INPUT = 1 << SINGLE_INPUT, WEIGHT = 1 << SINGLE_WEIGHT, BIAS = 1 << SINGLE_BIAS
};

struct suspect;
enum { SUSPECT_RANKS = 8 };             /* the most of an axis that a hypothesis tells apart */
enum { SUSPECT_SAMPLES = 16 };          /* wrong elements that a hypothesis is held to first */

/* @return what a pass gives with a mistake; tensor_none: the pass cannot have this mistake. */
typedef struct tensor single_mistaken(struct single *, const struct single_node *, const struct single_mistake *);

/* The mistakes of an operation: rows, and what makes the result of each pass with one of them. */
struct single_mistakes {
    const struct single_operation *of;  /**< Operation that can have these mistakes. */
    const struct single_mistake *rows;  /* the last has no words */
    single_mistaken *make[SINGLE_BIAS + 1];     /* by pass; NULL: its rows are not tried */
    bool explains_zeros;                /* a row says why a result is zero, which says more than that it is */
    /* Offers what is wrong with parts of its sums. */
    void (*parts)(struct suspect *, const struct single_node *, enum single_pass_kind, double *y);
};

extern const struct single_mistakes single_attention_mistakes, single_norm_mistakes, single_matrix_mistakes,
                                    single_rotary_mistakes, single_gelu_mistakes, single_exact_gelu_mistakes,
                                    single_squared_relu_mistakes, single_swiglu_mistakes,
                                    single_soft_cap_mistakes, single_geglu_mistakes,
                                    single_positions_mistakes, single_embed_mistakes, single_add_mistakes,
                                    single_loss_mistakes, single_latent_norm_mistakes, single_head_norm_mistakes,
                                    single_route_mistakes, single_experts_up_mistakes, single_experts_down_mistakes,
                                    single_combine_mistakes, single_balance_mistakes;

/* NULL: there are none of the operation. */
const struct single_mistakes *mistakes_of(const struct single_operation *);

/* ---- the result that is diagnosed -------------------------------------------------------------------------------- */

struct suspect {
    struct single *s;                   /**< Check that recomputes the result. */
    int64_t rows, cols, count;
    const double *have, *want, *bound;
    double allowed;                     /* norm of the bounds */
    double size;                        /* norm of what is right */
    int64_t wrong;                      /* elements outside their bounds */
    double off;                         /* norm of how far the result is from what is right */
    double best;                        /* what the best hypothesis leaves, norm; infinite: none yet */
    bool any;                           /* the hypotheses now tried are not of this operation: they must leave less */
    int named;                          /* explanations in the words */
    /* Hypotheses give so many different numbers near a single number.  The nearest has these words, is so far off, and
     * the next is so far off. */
    struct chance { int count; double y, off, next; char words[SINGLE_MISTAKE]; } chance;
    bool measured;                      /* a number of the hypothesis now tried was measured in the result */
    int64_t sample[SUSPECT_SAMPLES];    /* some wrong elements, evenly from the first to the last */
    int samples;                        /* 0: all are looked at */
    double *there;                      /* [count] to work in: a hypothesis may explain only what is wrong, beside what
                                         * is right; NULL: it must explain all */
    char words[SINGLE_MISTAKE];         /**< Explanation of the error. */
};

/* Offer a hypothesis: y is what the result would be.  @return whether it explains the program's numbers. */
bool suspect_explained(struct suspect *, const double *y, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* Offer a hypothesis with a number that was measured in the program's result, as the factor that fits best.  Such a
 * hypothesis always takes some of the errors away, so it must leave clearly less of them. */
bool suspect_measured(struct suspect *, const double *y, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* A hypothesis makes element i. */
typedef double suspect_maker(const void *context, int64_t i);

/* Make a hypothesis, if some wrong elements do not contradict it.  y: [count], complete only if it was made.
 * @return whether it was made, and can be offered. */
bool suspect_made(const struct suspect *, suspect_maker *, const void *context, double *y);

/* Offer one that is made with gradients of our own model, which are those of the program but for its roundings: it
 * explains the result if it is ten times nearer than what is right. */
bool suspect_near(struct suspect *, const double *y, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* Offer a sum of these parts with factors other than 1: a part that is missing, or added twice.  y: [count] to work in.
 * @param what  "part", "sequence" */
void suspect_parts(struct suspect *, const struct tensor part[], int n, const char *what, double *y);

/* Compute what each of `parts` ranks along tp has of a product before they add it up, without its bias: part
 * [SUSPECT_RANKS].  @return how many; 0 if it cannot be cut so, or an input is missing. */
int suspect_product_parts(struct single *, const struct single_node *, int parts, struct tensor part[]);

/* Try the gradient of a parameter without some tokens, or with some of them twice.  y: [count] to work in. */
void suspect_rows(struct suspect *, const struct single_term *, double *y);

/* Try gradients of copied keys and values, and parts of other gradients, that are not added up, or once more.  y:
 * [count] to work in. */
void suspect_copied(struct suspect *, const struct single_term *, double *y);

/* A summand that was made from another tensor, or with another weight, of the same shape.  y: [count] to work in. */
void suspect_inputs(struct suspect *, const struct single_term *, double *y);

/* A batch of which places have the tokens, or the labels, of other sequences: of this or of the neighbouring batches.
 * y: [count] to work in. */
void suspect_tokens(struct suspect *, const struct single_term *, double *y);

/* How the batch may have been cut: as the source says it, else by the usual rules. */
struct batch_cuts suspect_cuts(const struct single *);

/* Try another mask of dropout in a summand of the result.  y: [count] to work in. */
void suspect_masks(struct suspect *, const struct single_term *, double *y);

/* A power of two that is no sum over a few ranks, but may be a loss scale. */
enum { SUSPECT_LEAST_SCALE = 16 };

/* The norm of all gradients, which is no operation of the graph; of one step, or of all. */
void suspect_gradient_norm(struct suspect *);
bool suspect_is_norm(const char *result);

/* The first step's gradients of n copies of the model, each from its part of the batch: their norms, and what part of
 * the labels each has.  n is 0 if they are not known. */
struct suspect_copies { int n; double norm[SUSPECT_RANKS], share[SUSPECT_RANKS]; };
struct suspect_copies suspect_copies(struct single *);

/* A clipped gradient g makes a state, or sgd's weight: rest + times * g, or rest + times * g^2. */
struct clipping {
    const double *rest, *g;             /* g: not clipped */
    double clip, times;                 /* clip: the right factor */
    bool squared;                       /**< The state has the square of the gradient. */
};

/** Find the factor of the gradient that explains the result best. */
double suspect_clip_factor(const struct suspect *, const struct clipping *);

/** Offer gradients that are clipped by other norms.  any: one factor for all elements may be a clipping, too; false:
 *  the program shows elsewhere that this factor is none of the gradient. */
void suspect_clipping(struct suspect *, const struct stepping *, struct clipping, bool any, double *y);

/** Free the notes that diagnoses share.  The check calls this once at its end, through mistakes_explainer.forget. */
void suspect_forget(struct single_notes *);

/** The number of wrong results, one after another, that no slow hypothesis has explained.  mistakes.c says which are
 *  slow (`dear`) and changes the number.  NULL: no memory, and single.failed is set. */
int *suspect_fruitless(struct single *);

/* Try other scalings of low-rank adapters, and their gradients transposed.  y: [count] to work in. */
void suspect_adapter(struct suspect *, double *y);

/** Offer the mistakes of the step whose result is suspected. */
void suspect_step(struct suspect *, const struct stepping *);

/* Round a number to so many bits of mantissa, the leading one counted: 8 are bf16's, 11 are fp16's and tf32's. */
double kept_in_bits(double x, int bits);

/* Try rows, columns, heads, pieces in other places. */
void suspect_arrangement(struct suspect *);

#endif
