/* matrix.c -- what a product gives with one mistake: of its bias, its matrix, or the parts of its sum.
 *
 * A sum is made of parts: columns of the input that ranks along tp have, sequences of the batch that ranks along dp or
 * microbatches have.  What is wrong is written as a combination of these parts by least squares; a part whose factor is
 * 0 is missing.
 * mistakes.c reads the table of rows; norm.c uses suspect_product_parts, other files suspect_parts.  Errors:
 * single.failed only.
 */
#include "emulated_devices/check/mistakes/mistakes.h"
#include <stdio.h>
#include <string.h>

enum { MOST_PARTS = 16 };

/* ---- bias and matrix --------------------------------------------------------------------------------------------- */

enum { NO_BIAS = 0, TRANSPOSED = -1 };

/* Y [N, out] = X W^T + which b.  TRANSPOSED takes W^T in place of W, which only a square matrix allows. */
static struct tensor matrix_forward(struct single *single, const struct single_node *node,
                                    const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct tensor X = single_act(single, node->in[0]), W = single_param(single, node->weight),
        b = single_param(single, node->bias);
    const bool turned = which == TRANSPOSED;
    if (!single_going(single) || (!turned && node->bias < 0) || (turned && tensor_rows(W) != tensor_cols(W)))
        return tensor_none;
    const int64_t out = tensor_rows(W), in = tensor_cols(W);
    /* M is the right or the transposed matrix, so both mistakes share one product. */
    const struct tensor Y = single_new(single, tensor_rows(X), out), M = single_new(single, out, in);
    for (int64_t i = 0; !single->failed && i < out * in; i++)
        numbers(M)[i] = numbers(W)[turned ? i % in * in + i / in : i];
    if (!single->failed) single->context->ops->linear_forward_add(Y, X, M);
    for (int64_t i = 0; !single->failed && node->bias >= 0 && i < tensor_count(Y); i++)
        numbers(Y)[i] += (turned ? 1 : which) * numbers(b)[i % out];
    return Y;
}

/* dX = dY W^T in place of dY W, for a square matrix. */
static struct tensor matrix_input(struct single *single, const struct single_node *node,
                                  const struct single_mistake *mistake)
{
    (void)mistake;
    const struct tensor dY = single_grad(single, node->out), W = single_param(single, node->weight);
    if (!single_going(single) || tensor_rows(W) != tensor_cols(W)) return tensor_none;
    const struct tensor dX = single_new(single, tensor_rows(dY), tensor_cols(W));
    if (!single->failed) single->context->ops->linear_forward_add(dX, dY, W);
    return dX;
}

static const struct single_mistake matrix_rows[] = {
    { "without its bias", FORWARD, .which = NO_BIAS },
    { "its bias is added twice", FORWARD, .which = 2 },
    { "its bias is added 3 times, as by every rank", FORWARD, .which = 3 },
    { "its bias is added 4 times, as by every rank", FORWARD, .which = 4 },
    { "its bias is added 8 times, as by every rank", FORWARD, .which = 8 },
    { "its matrix is transposed", FORWARD | INPUT, .which = TRANSPOSED },
    { 0 }
};

/* ---- combinations of parts --------------------------------------------------------------------------------------- */

/* Solve A c = b in place by elimination without pivots; A is symmetric, n at most 16.  @return false if A is
 * singular. */
static bool solve(double A[MOST_PARTS][MOST_PARTS], double b[], int n)
{
    for (int k = 0; k < n; k++) {
        /* A pivot that is small against the first means that parts depend on each other. */
        if (!(A[k][k] > 1e-12 * A[0][0])) return false;
        for (int i = k + 1; i < n; i++) {
            const double f = A[i][k] / A[k][k];
            for (int j = k; j < n; j++) A[i][j] -= f * A[k][j];
            b[i] -= f * b[k];
        }
    }
    /* The upper triangle is solved from the last unknown to the first. */
    for (int k = n - 1; k >= 0; k--) {
        for (int j = k + 1; j < n; j++) b[k] -= A[k][j] * b[j];
        b[k] /= A[k][k];
    }
    return true;
}

/* Whether an element counts in least squares.  For a mistake in a part of the result only wrong elements do. */
static bool counts(const struct suspect *suspect, int64_t i)
{
    return suspect->there == NULL || !(fabs(suspect->have[i] - suspect->want[i]) <= suspect->bound[i]);
}

/* Find the factors c of the parts by least squares: have = want + sum of (c - 1) part.  A part that adds nothing, as of
 * tokens that did not choose an expert, has a factor of NaN.  @return false if parts depend on each other. */
static bool factors(const struct suspect *suspect, const struct tensor part[], int n, double c[])
{
    double A[MOST_PARTS][MOST_PARTS];
    /* The normal equations: A[a][b] = (part a, part b), c[a] = (have - want, part a). */
    for (int a = 0; a < n; a++) {
        c[a] = 0;
        for (int64_t i = 0; i < suspect->count; i++)
            c[a] += counts(suspect, i) ? (suspect->have[i] - suspect->want[i]) * numbers(part[a])[i] : 0;
        for (int b = 0; b < n; b++) {
            A[a][b] = 0;
            for (int64_t i = 0; i < suspect->count; i++)
                A[a][b] += counts(suspect, i) ? numbers(part[a])[i] * numbers(part[b])[i] : 0;
        }
    }
    bool nothing[MOST_PARTS];
    double size = 0;
    for (int a = 0; a < n; a++) nothing[a] = A[a][a] == 0, size += A[a][a];
    for (int a = 0; a < n; a++)
        if (nothing[a]) A[a][a] = size / n;
    if (!solve(A, c, n)) return false;
    for (int a = 0; a < n; a++) c[a] = nothing[a] ? NAN : c[a] + 1;
    return true;
}

/* Factors of parts by least squares that are equal: 0.005 and 0.1 change none of the runs of mistakes.c. */
static const double SAME_FACTOR = 0.02;
static bool near(double x, double y) { return fabs(x - y) < SAME_FACTOR; }

/* List the parts whose factor is `of`.  @return how many; 0 if another part's factor is neither `of` nor 1. */
static int say_those(const double c[], int n, double of, char *out, size_t size)
{
    int count = 0;
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < n && used < size; i++) {
        if (isnan(c[i])) continue;
        if (near(c[i], of)) used += (size_t)snprintf(out + used, size - used, "%s%d", count++ ? ", " : "", i);
        else if (!near(c[i], 1)) return 0;
    }
    return count;
}

/* Equal factors of all parts are a factor of the result, which try_factor says. */
static bool all_equal(const double c[], int n)
{
    int first = 0;
    while (first < n - 1 && isnan(c[first])) first++;
    for (int i = first + 1; i < n; i++)
        if (!isnan(c[i]) && !near(c[i], c[first]) && !near(c[i] / c[first], 1)) return false;
    return true;
}

/* "a part of a sum: without parts 3, 4 of 5", "parts 0 of 3 are added twice", or all factors. */
static void say_parts(const double c[], int n, const char *what, char *out, size_t size)
{
    char those[96];
    int count;
    if ((count = say_those(c, n, 0, those, sizeof those)) > 0)
        snprintf(out, size, "a part of a sum: without %s%s %s of %d", what, count > 1 ? "s" : "", those, n);
    else if ((count = say_those(c, n, 2, those, sizeof those)) > 0)
        snprintf(out, size, "%s%s %s of %d %s added twice", what, count > 1 ? "s" : "", those, n,
                 count > 1 ? "are" : "is");
    else {
        size_t used = (size_t)snprintf(out, size, "each %s of the sum times its own factor:", what);
        for (int i = 0; i < n && used < size; i++) used += (size_t)snprintf(out + used, size - used, " %.3g", c[i]);
    }
}

/* The parts of a sum are known: find their factors and offer the sum that they make. */
void suspect_parts(struct suspect *suspect, const struct tensor part[], int n, const char *what, double *y)
{
    double c[MOST_PARTS];
    char words[SINGLE_MISTAKE];
    /* A failure in the factors means that the parts cannot be told apart. */
    if (suspect->s->failed || !factors(suspect, part, n, c) || all_equal(c, n)) return;
    for (int64_t i = 0; i < suspect->count; i++) {
        y[i] = suspect->want[i];
        for (int k = 0; k < n; k++) y[i] += isnan(c[k]) ? 0 : (c[k] - 1) * numbers(part[k])[i];
    }
    say_parts(c, n, what, words, sizeof words);
    suspect_explained(suspect, y, "%s", words);
}

/* How the columns of a product's input are cut into parts.  Each of its matrices is cut apart, by units such as
 * heads. */
struct cut { int64_t size[3], unit; int matrices, parts; };

/* Find the first column of a part of a matrix, from the matrix's first. */
static int64_t first_of(const struct cut *cut, int k, int part)
{
    return cut->unit * part_begin(cut->size[k] / cut->unit, cut->parts, part);
}

/* Keep the columns of part `part` and set all others to 0.  The numbers come from part `other`'s columns. */
static struct tensor matrix_columns(struct single *single, struct tensor t, const struct cut *cut, int part, int other)
{
    const int64_t cols = tensor_cols(t);
    const struct tensor out = single_new(single, tensor_rows(t), cols);
    for (int64_t r = 0; !single->failed && r < tensor_rows(t); r++) {
        const double *from = numbers(t) + r * cols;
        double *to = numbers(out) + r * cols;
        /* The matrices of a fused input stand beside each other: from and to go on by a matrix's width. */
        for (int k = 0; k < cut->matrices; from += cut->size[k], to += cut->size[k], k++)
            for (int64_t i = first_of(cut, k, part), j = first_of(cut, k, other);
                 i < first_of(cut, k, part + 1); i++, j++)
                to[i] = from[j];
    }
    return out;
}

/* Y [N, out] = X [N, in] W^T [in, out]. */
static struct tensor mistakes_matrix_product(struct single *single, struct tensor X, struct tensor W)
{
    const struct tensor Y = single_new(single, tensor_rows(X), tensor_rows(W));
    if (!single->failed) single->context->ops->linear_forward_add(Y, X, W);
    return Y;
}

/* A rank has multiplied its part of X by another rank's part of the matrix. */
static void try_other_piece(struct suspect *suspect, const struct tensor part[], const struct cut *cut, struct tensor X,
                            struct tensor W, double *y)
{
    struct single *s = suspect->s;
    for (int a = 0; a < cut->parts && suspect->words[0] == 0; a++)
        for (int b = 0; b < cut->parts; b++) {
            const int used = s->memory.used;
            /* Parts of unequal size: part b must have as many columns from its begin as part a. */
            if (a == b || first_of(cut, cut->matrices - 1, b) + first_of(cut, cut->matrices - 1, a + 1) -
                                  first_of(cut, cut->matrices - 1, a) >
                              cut->size[cut->matrices - 1])
                continue;
            const struct tensor Z = mistakes_matrix_product(s, X, matrix_columns(s, W, cut, a, b));
            for (int64_t i = 0; !s->failed && i < suspect->count; i++)
                y[i] = suspect->want[i] - numbers(part[a])[i] + numbers(Z)[i];
            suspect_explained(suspect, y, "another rank's piece: part %d of %d has the matrix of part %d", a,
                              cut->parts, b);
            single_release(s, used);
        }
}

/* Y = X W^T is the sum of P products, one for each part of the columns of X.  A lost all-reduce leaves a part out. */
static void try_columns(struct suspect *suspect, struct tensor X, struct tensor W, const struct cut *cut, double *y)
{
    struct single *s = suspect->s;
    struct tensor part[MOST_PARTS];
    const int used = s->memory.used;
    if (cut->parts < 2 || cut->parts > MOST_PARTS || cut->size[0] / cut->unit < cut->parts) return;
    for (int k = 0; k < cut->parts; k++) part[k] = mistakes_matrix_product(s, matrix_columns(s, X, cut, k, k), W);
    suspect_parts(suspect, part, cut->parts, "part", y);
    try_other_piece(suspect, part, cut, X, W, y);
    single_release(s, used);
}

/* The input's columns are cut by queries, keys and values, by gate and up, or as a single matrix. */
static struct cut cut_of(const struct single *single, const struct single_node *node, bool fused, int64_t in, int parts)
{
    const struct model_config *c = single->context->config;
    struct cut cut = { .size = { in }, .unit = 1, .matrices = fused ? node->matrices : 1, .parts = parts };
    if (fused && node->matrices == 3) cut = (struct cut){ { c->H * c->A, c->K * c->A, c->K * c->A }, c->A, 3, parts };
    if (fused && node->matrices == 2) cut = (struct cut){ { in / 2, in / 2 }, 1, 2, parts };
    /* The output product of attention is cut by key/value groups, each with its query heads. */
    if (!fused && in == c->H * c->A) cut.unit = c->A * (c->H / c->K);
    return cut;
}

/* This function makes the transpose of a matrix. */
static struct tensor transposed(struct single *single, struct tensor t)
{
    const int64_t rows = tensor_rows(t), cols = tensor_cols(t);
    const struct tensor out = single_new(single, cols, rows);
    for (int64_t i = 0; !single->failed && i < rows * cols; i++)
        numbers(out)[i % cols * rows + i / cols] = numbers(t)[i];
    return out;
}

/* dW = dY^T X is the sum over the sequences of the batch: a copy or a microbatch may be missing. */
static void try_batch(struct suspect *suspect, struct tensor dY, struct tensor X, double *y)
{
    struct single *s = suspect->s;
    struct tensor part[MOST_PARTS];
    const int64_t S = s->cursor.batch.S, B = s->cursor.batch.B;
    if (tensor_rows(X) != s->cursor.N) return;
    /* With both matrices transposed, tokens are columns, and try_columns' cut by columns takes sequences. */
    const struct tensor Yt = transposed(s, dY), Xt = transposed(s, X);
    const struct cut sequences = { { s->cursor.N }, S, 1, (int)B };
    for (int b = 0; b < B && !s->failed; b++)
        part[b] = mistakes_matrix_product(s, matrix_columns(s, Yt, &sequences, b, b), Xt);
    suspect_parts(suspect, part, (int)B, "sequence", y);
}

/* Choose the parts: columns along tp for Y and dX, sequences for dW.  Mixtures' experts have parts of their own
 * (mixture.c). */
static void try_all_parts(struct suspect *suspect, const struct single_node *node,
                          enum single_pass_kind pass, double *y)
{
    struct single *s = suspect->s;
    const bool forward_pass = pass == SINGLE_FORWARD, of_weight = pass == SINGLE_WEIGHT;
    if (pass == SINGLE_BIAS || node->experts > 0) return;
    /* Both matrices have all tokens, so there must not be too many sequences, nor only some rows of the gradient. */
    const int64_t sequences = s->cursor.batch.B;
    if (of_weight && (sequences < 2 || sequences > MOST_PARTS || s->cursor.block.rows > 0)) return;
    const struct tensor dY = forward_pass ? tensor_none : single_grad(s, node->out),
                        X = pass == SINGLE_INPUT ? tensor_none : single_act(s, node->in[0]),
                        W = of_weight ? tensor_none : single_param(s, node->weight);
    if (!single_going(s)) return;
    if (of_weight) {
        try_batch(suspect, dY, X, y);
        return;
    }
    /* dX = dY W is the same product with W transposed. */
    const struct tensor A = forward_pass ? X : dY, M = forward_pass ? W : transposed(s, W);
    const int tried[] = { s->rounding.parts, 2, 3, 4, 8 };
    for (int k = 0; k < 5 && suspect->words[0] == 0 && !s->failed; k++) {
        struct cut cut = cut_of(s, node, !forward_pass, tensor_cols(A), tried[k]);
        try_columns(suspect, A, M, &cut, y);
    }
}

/* Norms after a product use the parts, too: norm.c asks what each rank has before the all-reduce. */
int suspect_product_parts(struct single *single, const struct single_node *node, int parts, struct tensor part[])
{
    const struct tensor X = single_act(single, node->in[0]), W = single_param(single, node->weight);
    if (!single_going(single)) return 0;
    const struct cut c = cut_of(single, node, false, tensor_cols(X), parts);
    if (parts < 2 || parts > SUSPECT_RANKS || c.size[0] / c.unit < parts) return 0;
    for (int k = 0; k < parts; k++) part[k] = mistakes_matrix_product(single, matrix_columns(single, X, &c, k, k), W);
    return single->failed ? 0 : parts;
}

const struct single_mistakes single_matrix_mistakes = {
    .of = &single_matrix, .rows = matrix_rows, .make[SINGLE_FORWARD] = matrix_forward,
    .make[SINGLE_INPUT] = matrix_input, .parts = try_all_parts
};
