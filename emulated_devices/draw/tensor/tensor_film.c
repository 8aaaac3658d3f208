/* tensor_film.c -- the page of a linear layer on several devices: which blocks each device receives, multiplies and
 * adds up, step by step.
 *
 * tensor.c calls tensor_page.  The three passes follow each other; a tick is one message or one product.  Errors:
 * ERR_FILE and ERR_MEMORY, from the page.
 */
#include "emulated_devices/draw/tensor/tensor_blocks.h"
#include "emulated_devices/draw/page/page_html.h"
#include <math.h>

/* A filming knows its trace, the numbers of its kinds and lanes, and when the pass that is filmed begins. */
struct tensor_filming {
    const struct tensor_trace *t;
    struct film film;
    int kind[SHOW_TENSOR_PASSES], receives, adds, lane_multiply, lane_add, lane_receive, pass;
    int64_t from;
};

static unsigned whole_of(const struct tensor_trace *trace) { return (1u << trace->P) - 1; }

/* Whether all elements of an event have all their parts; WRONG if some belong to nothing. */
static enum film_state state_of(const struct tensor_trace *trace, const int64_t *event)
{
    struct block block[TENSOR_MOST_BLOCKS];
    int64_t nameless;
    enum film_state state = FILM_WHOLE;
    const int n = tensor_blocks_of(event + 3, event[2], block, &nameless);
    for (int b = 0; b < n; b++)
        if (block[b].parts != whole_of(trace)) state = FILM_PARTIAL;
    return nameless > 0 ? FILM_WRONG : state;
}

/* The matrix that most of an event is of; X without any. */
static enum linear_matrix matrix_of(const int64_t *event)
{
    struct block block[TENSOR_MOST_BLOCKS];
    int64_t nameless;
    const int n = tensor_blocks_of(event + 3, event[2], block, &nameless);
    int most = 0;
    for (int b = 1; b < n; b++) most = block[b].count > block[most].count ? b : most;
    return n > 0 ? block[most].matrix : LINEAR_X;
}

/* Film what a device has now of a matrix, in the matrix's column. */
static void film_block(struct tensor_filming *filming, int device, const int64_t *event, int64_t at, const char *how)
{
    char what[TENSOR_TEXT], text[TENSOR_TEXT + 40];
    tensor_describe(event + 3, event[2], whole_of(filming->t), what);
    snprintf(text, sizeof text, "%s%s", what, how);
    film_cell(&filming->film, device, (int)matrix_of(event), at, text, state_of(filming->t, event));
}

static void film_received(struct tensor_filming *filming, int device, const int64_t *event)
{
    struct film *f = &filming->film;
    const int64_t end = filming->from + tensor_step_of(event), start = end > 0 ? end - 1 : 0;
    char what[TENSOR_TEXT], text[TENSOR_TEXT + 40];
    tensor_describe(event + 3, event[2], whole_of(filming->t), what);
    snprintf(text, sizeof text, "%s from device %d", what, (int)event[0]);
    const int detail = film_detail(f, text);
    film_detail_row(f, detail, "block", what);
    film_message(f, (struct film_message){ (int)event[0], device, filming->receives, start, end,
                                           event[2] * (int64_t)sizeof(double) });
    film_pass(f, (struct film_pass){ device, filming->lane_receive, filming->receives, start, end, -1, -2, detail });
    snprintf(text, sizeof text, " from device %d", (int)event[0]);
    film_block(filming, device, event, end, text);
}

/* A sum takes no time of its own: its pass is drawn over the round of the message whose block is added. */
static void film_sum(struct tensor_filming *filming, int device, const int64_t *event)
{
    struct film *f = &filming->film;
    const int64_t end = filming->from + tensor_step_of(event), start = end > 0 ? end - 1 : 0;
    char what[TENSOR_TEXT];
    tensor_describe(event + 3, event[2], whole_of(filming->t), what);
    const int detail = film_detail(f, "adds up partial sums");
    film_detail_row(f, detail, "sum", what);
    film_pass(f, (struct film_pass){ device, filming->lane_add, filming->adds, start, end, -1, -2, detail });
    film_block(filming, device, event, end, ", added up");
}

/* A product has three events in a row: both factors, and what was made. */
static void film_product(struct tensor_filming *filming, int device, const int64_t *left)
{
    static const char *const formula[] = { "Y = X W^T", "dX = dY W", "dW += dY^T X" };
    struct film *f = &filming->film;
    const int64_t *right = tensor_after(left), *made = tensor_after(right);
    const int64_t end = filming->from + tensor_step_of(left), start = end > 0 ? end - 1 : 0;
    char text[TENSOR_TEXT];
    tensor_describe(made + 3, made[2], whole_of(filming->t), text);
    const int detail = film_detail(f, text);
    film_detail_row(f, detail, "formula", formula[filming->pass]);
    tensor_describe(left + 3, left[2], whole_of(filming->t), text), film_detail_row(f, detail, "left", text);
    tensor_describe(right + 3, right[2], whole_of(filming->t), text), film_detail_row(f, detail, "right", text);
    tensor_describe(made + 3, made[2], whole_of(filming->t), text);
    film_detail_row(f, detail, made[0] == PRODUCT_ADDED ? "is added to" : "makes", text);
    film_pass(f, (struct film_pass){ device, filming->lane_multiply, filming->kind[filming->pass], start, end, -1, -2,
                                     detail });
    film_block(filming, device, made, end, made[0] == PRODUCT_ADDED ? ", added" : "");
}

static void film_tensor_pass(struct tensor_filming *filming, int pass)
{
    filming->pass = pass;
    for (int d = 0; d < filming->t->P; d++) {
        const struct record *r = &filming->t->record[pass][d];
        for (const int64_t *e = r->number; e < tensor_end_of(r); e = tensor_after(e)) {
            if (e[0] >= 0) film_received(filming, d, e);
            else if (e[0] == SUM_MADE) film_sum(filming, d, e);
            else if (e[0] == FACTOR_LEFT) film_product(filming, d, e);
        }
    }
    filming->from += tensor_steps(filming->t, pass);
}

/* Begin with the devices, and with what each has: in the cells of X, W and dY. */
static void film_tensor_begin(struct tensor_filming *filming)
{
    const struct tensor_trace *t = filming->t;
    const struct linear_layer *l = t->layer;
    const int *mesh = l->tp.mesh;
    struct film *f = &filming->film;
    char text[TENSOR_TEXT], place[24];
    snprintf(text, sizeof text, "orrery show tensor %s --devices %d --role %s", l->tp.scheme->head.name, t->P, t->role);
    film_open(f, "tensor", "tick", text);
    film_axis(f, "tp", t->P);
    for (int m = 0; m < LINEAR_MATRIX_COUNT; m++) film_column(f, linear_matrix_name((enum linear_matrix)m));
    for (int d = 0; d < t->P; d++) {
        snprintf(place, sizeof place, "tp=%d", d);
        /* Layers of a mesh of three axes lie below each other. */
        film_device(f, (struct film_device){ place, NULL, d / mesh[2], d % mesh[2] });
        for (enum linear_matrix m = 0; m < LINEAR_MATRIX_COUNT; m++) {
            struct part p = linear_part(l, d, m);
            char rows[TENSOR_TEXT / 3], cols[TENSOR_TEXT / 3];
            tensor_print_indices(rows, sizeof rows, tensor_index_set(&p.rows));
            tensor_print_indices(cols, sizeof cols, tensor_index_set(&p.cols));
            part_free(&p);
            if (m != LINEAR_X && m != LINEAR_W && m != LINEAR_dY) continue;
            snprintf(text, sizeof text, "%s[%s,%s]", linear_matrix_name(m), rows, cols);
            film_cell(f, d, (int)m, 0, text, FILM_WHOLE);
        }
    }
    filming->kind[0] = film_kind(f, "forward product", "Y", FILM_COMPUTE);
    filming->kind[1] = film_kind(f, "product for the input's gradient", "dX", FILM_COMPUTE);
    filming->kind[2] = film_kind(f, "product for the weights' gradient", "dW", FILM_COMPUTE);
    filming->receives = film_kind(f, "block on its way", "", FILM_MESSAGE);
    filming->adds = film_kind(f, "sum of parts", "+", FILM_OTHER);
    filming->lane_multiply = film_lane(f, "multiply"), filming->lane_add = film_lane(f, "add up");
    filming->lane_receive = film_lane(f, "receive");
    film_note(f, "%s: %s", l->tp.scheme->head.name, l->tp.scheme->head.description);
    film_note(f, "Y [%lld,%lld] = X [%lld,%lld] W [%lld,%lld]^T; X[0:4,2:6] is rows 0 to 3, columns 2 to 5; Y[..](01) "
                 "has parts 0 and 1 of the inner dimension in its sums, and is whole with all %d", (long long)l->N,
              (long long)l->O, (long long)l->N, (long long)l->I, (long long)l->O, (long long)l->I, t->P);
    film_note(f, "a tick is the time of one message or one product; forward, then both backward passes");
}

/* Say of each device and pass whether its piece and its messages are right: a note if all are. */
static void film_tensor_checks(struct tensor_filming *filming)
{
    static const char *const result[] = { "Y", "dX", "dW" };
    struct film *f = &filming->film;
    int wrong = 0;
    for (int pass = 0; pass < SHOW_TENSOR_PASSES; pass++)
        for (int d = 0; d < filming->t->P; d++) {
            const struct pass_outcome *o = &filming->t->outcome[pass][d];
            char got[TENSOR_TEXT] = "something that is no element", want[TENSOR_TEXT], text[2 * TENSOR_TEXT + 40];
            if (symbol_read(o->got).parts != 0) tensor_describe(&o->got, 1, whole_of(filming->t), got);
            tensor_describe(&o->want, 1, whole_of(filming->t), want);
            snprintf(text, sizeof text, "it has %s where %s must be", got, want);
            if (!o->whole)
                film_check(f, (struct film_check){ .tensor = result[pass], .device = d, .error = NAN, .bound = NAN,
                                                   .evidence = text });
            if (!o->as_cost)
                film_check(f, (struct film_check){ .tensor = "messages", .device = d, .error = NAN, .bound = NAN,
                                                   .evidence = "they are not what the cost function says" });
            wrong += !o->whole || !o->as_cost;
        }
    if (wrong == 0) film_note(f, "checked: every piece has all parts, once; messages are what the cost function says");
}

enum error_code tensor_page(const struct tensor_trace *trace, const char *path, struct error *err)
{
    struct tensor_filming filming = { .t = trace };
    film_tensor_begin(&filming);
    for (int pass = 0; pass < SHOW_TENSOR_PASSES; pass++) film_tensor_pass(&filming, pass);
    film_tensor_checks(&filming);
    const enum error_code e = page_html_write(path, &(struct film *){ &filming.film }, 1, err);
    film_close(&filming.film);
    return e;
}
