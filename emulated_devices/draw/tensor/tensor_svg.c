/* tensor_svg.c -- draws a linear layer on several devices as an SVG document: a row for each device, a column for each
 * step, and in it small matrices whose coloured part is multiplied, received or added up.
 *
 * tensor.c passes tensor_svg to svg_file.  The only error is ERR_FILE, from svg_end.
 */
#include "emulated_devices/draw/tensor/tensor_blocks.h"
#include "emulated_devices/draw/svg.h"
#include <string.h>

/* Numbers are pixels: the width of the drawing, margins, the longest side of a matrix, the text below and above it,
 * the space behind it, the space for a sign between factors. */
enum { WIDTH = 760, MARGIN = 16, LEFT = 86, SIDE = 38, ABOVE = 13, BELOW = 14, GAP = 12, SIGN = 14, HEAD = 22 };
enum { ROW = ABOVE + SIDE + BELOW + 4 };

static const struct colour nothing_there = { 0, 0, 95 };

/* X is blue, W is yellow and Y is green; so are their gradients. */
static struct colour matrix_colour(enum linear_matrix matrix)
{
    static const int hue[LINEAR_MATRIX_COUNT] = {
        [LINEAR_X] = 208, [LINEAR_W] = 42, [LINEAR_Y] = 130, [LINEAR_dX] = 208, [LINEAR_dW] = 42, [LINEAR_dY] = 130,
    };
    return (struct colour){ hue[matrix], 62, 62 };
}

/* Pixels of an element: the longest side of all matrices of the layer is SIDE. */
static double element_side(const struct linear_layer *layer)
{
    const int64_t a = layer->N > layer->I ? layer->N : layer->I, most = a > layer->O ? a : layer->O;
    return (double)SIDE / (double)most;
}

static double matrix_width(const struct linear_layer *layer, enum linear_matrix matrix)
{
    return (double)linear_cols(layer, matrix) * element_side(layer);
}

/* Fill rows x columns of a matrix: a run of indices is one box. */
static void fill_block(FILE *to, double x, double y, double side, uint64_t rows, uint64_t cols, struct colour colour)
{
    for (int r = 0, rn; r < SHOW_TENSOR_SIDE; r += rn) {
        for (rn = 1; r + rn < SHOW_TENSOR_SIDE && (rows >> (r + rn) & 1) == (rows >> r & 1);) rn++;
        for (int c = 0, cn; c < SHOW_TENSOR_SIDE && (rows >> r & 1); c += cn) {
            for (cn = 1; c + cn < SHOW_TENSOR_SIDE && (cols >> (c + cn) & 1) == (cols >> c & 1);) cn++;
            if (cols >> c & 1) svg_bar(to, x + c * side, y + r * side, cn * side, rn * side, colour);
        }
    }
}

/* "0 1" of the parts of a sum. */
static const char *parts_text(unsigned parts, char *text)
{
    char *at = text;
    for (int p = 0; p < SHOW_TENSOR_DEVICES; p++)
        if (parts >> p & 1) *at++ = (char)('0' + p);
    *at = '\0';
    return text;
}

/* Draw a matrix with its name above, and the blocks of an event in it.  A block without all parts is lighter, and its
 * parts are written below.  @return the width that was used. */
static double draw_matrix(FILE *to, const struct tensor_trace *trace, enum linear_matrix matrix,
                          const struct block *block, int blocks, double x, double y)
{
    const struct linear_layer *l = trace->layer;
    const unsigned whole = (1u << trace->P) - 1;
    const double side = element_side(l), w = matrix_width(l, matrix), h = (double)linear_rows(l, matrix) * side;
    char parts[SHOW_TENSOR_DEVICES + 1];
    y += ABOVE;
    svg_bar(to, x, y, w, h, nothing_there);
    svg_text(to, x, y - 3, "start", 11, "%s", linear_matrix_name(matrix));
    for (int b = 0; b < blocks; b++) {
        struct colour c = matrix_colour(matrix);
        if (block[b].matrix != matrix) continue;
        if (block[b].parts != whole) c.light = 80;
        fill_block(to, x, y, side, block[b].rows, block[b].cols, c);
        if (block[b].parts != whole && block[b].parts)
            svg_text(to, x, y + h + 11, "start", 11, "part%s %s", block[b].parts & (block[b].parts - 1) ? "s" : "",
                     parts_text(block[b].parts, parts));
    }
    fprintf(to, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"none\" stroke=\"#444\" "
            "stroke-width=\"0.7\"/>\n", x, y, w, h);
    return w;
}

/* Draw the matrices of an event beside each other; without any, a question mark.  @return the width that was used.
 * to  NULL: only the width is asked for. */
static double draw_event(FILE *to, const struct tensor_trace *trace, const int64_t *event, double x, double y)
{
    struct block block[TENSOR_MOST_BLOCKS];
    int64_t nameless;
    const int n = tensor_blocks_of(event + 3, event[2], block, &nameless);
    double at = x;
    for (int m = 0; m < LINEAR_MATRIX_COUNT; m++) {
        bool there = false;
        for (int b = 0; b < n; b++) there = there || block[b].matrix == (enum linear_matrix)m;
        if (!there) continue;
        if (to) draw_matrix(to, trace, (enum linear_matrix)m, block, n, at, y);
        at += matrix_width(trace->layer, (enum linear_matrix)m) + GAP / 2;
    }
    if (nameless > 0 || at <= x) {
        if (to) svg_text(to, at, y + ABOVE + SIDE / 2, "start", 13, "?");
        at += SIGN;
    }
    return at - x - GAP / 2;
}

/* Write a sign at half the height of a matrix.  @return its width. */
static double draw_sign(FILE *to, const char *sign, double x, double y)
{
    const int wide = sign[0] == '+' ? SIGN + 10 : SIGN;
    if (to) svg_text(to, x + wide / 2.0, y + ABOVE + SIDE / 2 - 4, "middle", 14, "%s", sign);
    return wide;
}

/* Whether a later sum of the same step has the same elements: then the earlier one is not drawn. */
static bool sum_goes_on(const int64_t *event, const int64_t *end)
{
    struct block a[TENSOR_MOST_BLOCKS], b[TENSOR_MOST_BLOCKS];
    int64_t nameless;
    const int n = tensor_blocks_of(event + 3, event[2], a, &nameless);
    for (const int64_t *e = tensor_after(event); e < end; e = tensor_after(e))
        if (e[0] == SUM_MADE && tensor_step_of(e) == tensor_step_of(event)
            && tensor_blocks_of(e + 3, e[2], b, &nameless) == n && n == 1 && a->matrix == b->matrix
            && a->rows == b->rows && a->cols == b->cols)
            return true;
    return false;
}

/* Draw what one device receives, multiplies and adds up in a step.  @return the width.  to  NULL: only the width. */
static double draw_cell(FILE *to, const struct tensor_trace *trace, int pass, int device, int64_t step, double x,
                        double y)
{
    const struct record *r = &trace->record[pass][device];
    double at = x;
    /* Messages come first: what is received is used in the same step or later. */
    for (const int64_t *e = r->number; e < tensor_end_of(r); e = tensor_after(e)) {
        if (e[0] < 0 || tensor_step_of(e) != step) continue;
        if (to) svg_text(to, at, y + ABOVE + SIDE / 2 - 4, "start", 12, "%lld \xe2\x86\x92", (long long)e[0]);
        at += 26;
        at += draw_event(to, trace, e, at, y) + GAP;
    }
    for (const int64_t *e = r->number; e < tensor_end_of(r); e = tensor_after(e)) {
        if (tensor_step_of(e) != step) continue;
        if (e[0] == FACTOR_LEFT) {
            const int64_t *right = tensor_after(e), *made = tensor_after(right);
            at += draw_event(to, trace, made, at, y);
            at += draw_sign(to, made[0] == PRODUCT_ADDED ? "+=" : "=", at, y);
            at += draw_event(to, trace, e, at, y);
            at += draw_sign(to, "\xc2\xb7", at, y);
            at += draw_event(to, trace, right, at, y) + GAP;
        } else if (e[0] == SUM_MADE && !sum_goes_on(e, tensor_end_of(r))) {
            at += draw_sign(to, "\xce\xa3", at, y);
            at += draw_event(to, trace, e, at, y) + GAP;
        }
    }
    return at - x;
}

/* The width of a step's column: what the fullest device needs. */
static double step_width(const struct tensor_trace *trace, int pass, int64_t step)
{
    double most = 44;                   /* "step 12" */
    for (int d = 0; d < trace->P; d++) {
        const double w = draw_cell(NULL, trace, pass, d, step, 0, 0);
        most = w > most ? w : most;
    }
    return most;
}

/* Draw a pass in bands, each with as many steps as fit beside each other.  @return y below.  to  NULL: only that. */
static double draw_pass(FILE *to, const struct tensor_trace *trace, int pass, double y)
{
    const int64_t steps = tensor_steps(trace, pass);
    if (to) svg_text(to, MARGIN, y + 16, "start", 15, "%s", tensor_pass_title(pass));
    y += HEAD + 4;
    for (int64_t step = 1; step <= steps;) {
        double x = LEFT;
        const int64_t first = step;
        for (int d = 0; d < trace->P && to; d++) {
            const double at = y + HEAD + d * ROW;
            svg_text(to, MARGIN, at + ABOVE + SIDE / 2, "start", 13, "device %d", d);
            svg_link(to, MARGIN, at - 1, WIDTH - MARGIN, at - 1, 0.5, (struct colour){ 0, 0, 80 });
        }
        for (; step <= steps; step++) {
            const double w = step_width(trace, pass, step);
            if (x + w > WIDTH - MARGIN && step > first) break;
            if (to) svg_text(to, x, y + 15, "start", 12, "step %lld", (long long)step);
            for (int d = 0; d < trace->P && to; d++) draw_cell(to, trace, pass, d, step, x, y + HEAD + d * ROW);
            x += w + GAP;
        }
        y += HEAD + trace->P * ROW + 8;
    }
    return y;
}

/* Draw each device's part of X, W and Y.  @return y below. */
static double draw_parts(FILE *to, const struct tensor_trace *trace, double y)
{
    const int across = trace->P < 4 ? trace->P : 4;
    const unsigned whole = (1u << trace->P) - 1;
    for (int d = 0; d < trace->P; d++) {
        double x = MARGIN + d % across * ((WIDTH - 2 * MARGIN) / across);
        const double at = y + d / across * (ROW + HEAD);
        if (to) svg_text(to, x, at + 14, "start", 13, "device %d has", d);
        for (enum linear_matrix m = LINEAR_X; m <= LINEAR_Y && to; m++) {
            struct part p = linear_part(trace->layer, d, m);
            const struct block b = { .matrix = m, .parts = whole, .rows = tensor_index_set(&p.rows),
                                     .cols = tensor_index_set(&p.cols) };
            part_free(&p);
            x += draw_matrix(to, trace, m, &b, 1, x, at + HEAD - 4) + GAP;
        }
    }
    return y + (trace->P + across - 1) / across * (ROW + HEAD);
}

/* Draw everything below the title.  @return y below.  to  NULL: only that. */
static double draw_body(FILE *to, const struct tensor_trace *trace, double y)
{
    y = draw_parts(to, trace, y) + 6;
    for (int pass = 0; pass < SHOW_TENSOR_PASSES; pass++) y = draw_pass(to, trace, pass, y);
    return y;
}

enum error_code tensor_svg(FILE *to, const void *tensor_trace, struct error *err)
{
    const struct tensor_trace *t = tensor_trace;
    const struct scheme *s = &t->layer->tp.scheme->head;
    const int letters = (WIDTH - 2 * MARGIN) / SVG_LETTER;
    static const char words[] = "The coloured part of a matrix is what a device has, multiplies, receives (2 "
                                "\xe2\x86\x92: from device 2) or has added up (\xce\xa3).  A light part is a partial "
                                "sum: it has only those parts of the inner dimension that are written below it.";
    const double top = 64 + svg_paragraph(NULL, 0, 0, SVG_LINE, letters, s->description)
                       + svg_paragraph(NULL, 0, 0, SVG_LINE, letters, words);
    svg_begin(to, WIDTH, (int)draw_body(NULL, t, top) + MARGIN);
    svg_text(to, MARGIN, 30, "start", 17, "tensor parallelism %s: the matrix %s on %d device%s", s->name, t->role,
             t->P, t->P == 1 ? "" : "s");
    const double y = 54 + svg_paragraph(to, MARGIN, 54, SVG_LINE, letters, s->description);
    svg_paragraph(to, MARGIN, y, SVG_LINE, letters, words);
    draw_body(to, t, top);
    return svg_end(to, "the tensors", err);
}
