/* norms.h -- the squares of a step's gradients by groups, added up once, and the norms that a mistake makes of them.
 * Inside check/ only.
 *
 * Groups are dense matrices, norms, biases, embeddings, routers, experts one by one, and what each of P ranks has in
 * a cut (shares.h).  A norm that is reported, or that a clipped gradient shows, is one of the guesses: a group that is
 * left out, or counts n times, a mean over ranks in place of a sum, one rank alone, another order.
 * gradient_norm.c compares reported norms with the guesses, clipping.c the factors of steps.
 */
#ifndef ORRERY_SINGLE_NORMS_H
#define ORRERY_SINGLE_NORMS_H

#include "emulated_devices/check/mistakes/mistakes.h"

enum { NORM_WORDS = 96, NORM_KIND = 48 };

/* A norm that counts something wrongly.  NAN: the model, or the mesh, does not allow it. */
struct norm_guess {
    char words[NORM_WORDS];             /* a sentence */
    double norm;                        /**< Value of the norm. */
    bool of_many;                       /* one of as many as there are experts: it may agree by chance */
};

/* All of the gradients "KIND" and a parameter's name.  Guesses of all steps are in the same order. */
struct step_norms {
    char kind[NORM_KIND];               /* "grad/", "adamw/2/grad/" */
    bool has;                           /* no gradient is missing: else the rest is zero */
    double norm;                        /* the right one */
    struct norm_guess *guess;           /* [guesses] */
    int guesses;                        /**< Entries of `guess`. */
    double own[SHARE_CUTS][SUSPECT_RANKS + 1][SUSPECT_RANKS];   /* what each of P ranks has, by cut and P */
};

/* Add up the squares of a step's gradients, when first asked for.  @return NULL: a gradient is missing, or there is
 * no memory, and single.failed is set.  The next call for another step may move what was returned. */
const struct step_norms *suspect_norms(struct single *, const char *kind);

/* Numbers of ranks that are tried: those of the mesh, the parts of a sum, and the usual ones, none of them twice.
 * @return how many. */
int suspect_ranks(const struct single *, int tried[SUSPECT_RANKS]);

/* Whether so many ranks may have cut the model so. */
bool suspect_can(const struct single *, enum share_cut, int parts);

/* The owners of a parameter's elements in a cut.  NULL: no memory, and single.failed is set. */
const struct share *suspect_share(struct single *, enum share_cut, int param);

/* The norms of the model's copies, computed when first asked for.  NULL: no memory, and single.failed is set. */
const struct suspect_copies *suspect_copies_of(struct single *);

#endif
