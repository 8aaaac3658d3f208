/* tensor_sbp.h -- tensor parallelism by signatures: a text gives each activation and each weight of a layer one on the
 * tp axis, and a scheme is made of it.
 *
 *   stream    S(0)        the residual stream [N,D]: B, S(0) tokens, S(1) columns
 *   inputs    B           what matrices read of it, the outputs of norms: as the stream, or B, gathered once and kept
 *   norms     B           their weights, and other vectors of width D
 *   embedding S(0)        [V,D]
 *   qkv       S(0)        [3D,D]; heads are never divided
 *   heads     S(1)        queries, keys and values, and what attention makes of them [N,..]
 *   proj      S(1)        [D,D], of attention's output
 *   fc        S(0)        [F,D], with a gate [2F,D]
 *   hidden    S(1)        [N,F], between the two matrices of the feed-forward
 *   fc2       S(1)        [D,F]
 *   head      S(0)        [V,D], the output matrix
 *   logits    S(1)        [N,V]
 *
 * One line a role, in any order; # begins a comment; inputs and norms may be left out.
 *
 * registry.c makes such a scheme for a name "sbp:..".  cli/show/sbp.c writes the layout that a search has found.
 */
#ifndef ORRERY_TENSOR_SBP_H
#define ORRERY_TENSOR_SBP_H

#include "emulated_devices/schemes/sbp/signature.h"
#include "emulated_devices/schemes/tensor/tensor.h"

/* The roles in the order in which they are written, and whether each is a weight. */
#define SBP_ROLES(X)                                                                                                   \
    X(STREAM, "stream", false) X(INPUTS, "inputs", false) X(NORMS, "norms", true) X(EMBEDDING, "embedding", true)      \
    X(QKV, "qkv", true) X(HEADS, "heads", false) X(PROJ, "proj", true) X(FC, "fc", true)                               \
    X(HIDDEN, "hidden", false) X(FC2, "fc2", true) X(HEAD, "head", true) X(LOGITS, "logits", false)
enum sbp_role {
#define X(name, text, weight) SBP_##name,
    SBP_ROLES(X)
#undef X
    SBP_ROLE_COUNT
};

/* A role's name as users type it. */
const char *sbp_role_name(enum sbp_role);

struct sbp_layout { struct sbp of[SBP_ROLE_COUNT]; };

/* The scheme first: pointers to the two can be cast into each other. */
struct sbp_scheme {
    struct tensor_scheme scheme;        /* made from the layout */
    struct sbp_layout layout;
    char description[120];              /* of the text, if it was made of one */
};

/** The scheme of a layout.  @param name  must live as long as the scheme. */
struct sbp_scheme sbp_scheme_of(const struct sbp_layout *, const char *name);

/* ---- sbp_file.c -------------------------------------------------------------------------------------------------- */

/** Read a text, which is changed.
 *  @param file  its name in messages.
 *  @return OK; ERR_FORMAT, naming the line and what would be right. */
enum error_code sbp_layout_parse(struct sbp_layout *, char *text, const char *file, struct error *);

/** Write a layout as such a text.  Atomic.  @return OK or ERR_FILE, ERR_MEMORY. */
enum error_code sbp_layout_write(const struct sbp_layout *, const char *head, const char *file, struct error *);

/** Whether a scheme can be made of a layout.  @return NULL, or a sentence that names the signature and those that can
 *  stand there.  @param[out] role  of which it speaks. */
const char *sbp_layout_refuses(const struct sbp_layout *, enum sbp_role *role);

/* ---- sbp_shipped.c ----------------------------------------------------------------------------------------------- */

/* The shipped layouts (layouts/), name and text in turn, then NULL: made by the Makefile. */
extern const char *const sbp_layout_texts[];

/** Make a scheme of its name "sbp:NAME", of a shipped layout, or "sbp:FILE".  It is never freed.
 *  @return OK; ERR_USAGE for another name; ERR_FILE; ERR_FORMAT as sbp_layout_parse; ERR_MEMORY. */
enum error_code sbp_scheme_make(const struct scheme **, const char *name, struct error *);

/** Add the schemes of all shipped layouts to the registry, as the last of their kind.  @return OK or ERR_MEMORY. */
enum error_code sbp_schemes_add(struct error *);

/* ---- sbp_move.c: boxing along tp --------------------------------------------------------------------------------- */

/* A matrix [N, width] of tokens, with the columns of a side of a weight; a bias has N 1. */
struct sbp_matrix { enum param_role role; bool output; int64_t N; };

/** The shape of this device's piece. */
struct tensor sbp_piece(const struct tensor_parallel *, struct sbp_matrix, struct sbp, enum dtype);

/**
 * Bring a matrix from one signature to another, which is not the same and not P.
 * Collective over the devices along tp.
 * @param old  this device's piece.
 * @param new  memory for the new one.  From P to B it may be the old one; from S(0) to B the old one may be its place
 *             in the new one.
 * @return OK, ERR_MEMORY or ERR_COMM.  Adds in the order of the all-reduce, or of the reduce-scatter.
 */
enum error_code sbp_move(struct tensor_parallel *, struct sbp_matrix, struct sbp from, struct sbp to, struct tensor old,
                         struct tensor new, struct error *);

/** From S(1) to P: whole has zeros but for this device's columns.  Local. */
void sbp_among_zeros(struct tensor_parallel *, struct sbp_matrix, struct tensor piece, struct tensor whole);

/** Enter what sbp_move sends for exact sums, from P. */
void forecast_sums(struct forecast *, struct sbp_matrix, struct sbp to);

/** Enter what sbp_move sends; nothing if both signatures are the same. */
void forecast_move(struct forecast *, struct sbp_matrix, struct sbp from, struct sbp to);

#endif
