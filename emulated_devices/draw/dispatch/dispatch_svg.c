/* dispatch_svg.c -- draws the way of tokens to their experts as an SVG document: a column for the start, for each hop
 * and for what is computed; a box for each device; a line for each two devices that exchange tokens.
 *
 * dispatch.c passes dispatch_svg to svg_file.  The only error is ERR_FILE, from svg_end.
 */
#include "emulated_devices/draw/dispatch/dispatch_trace.h"
#include "emulated_devices/draw/svg.h"
#include <math.h>

/* Numbers are pixels: margins, the head of the columns, a token's box, space between boxes of devices, the space
 * between columns in which lines are drawn; the thickest line of one device; ACROSS: tokens beside each other. */
enum { MARGIN = 16, HEAD = 26, CHIP = 25, HIGH = 16, GAP = 12, BETWEEN = 96, ACROSS = 6, NAME = 18, EXPERT = 32 };
enum { BOX = NAME + ACROSS * CHIP + 6, TOP = 150, THICKEST = 6 };

/* Draw one token: its device's colour and its name. */
static void draw_token(FILE *to, int64_t number, double x, double y)
{
    const int device = (int)(number / SHOW_DISPATCH_TOKENS);
    svg_bar(to, x, y, CHIP - 2, HIGH - 2, svg_device_colour(device));
    svg_text(to, x + CHIP / 2.0 - 1, y + 11, "middle", 11, "%c%d", dispatch_letter(device),
             (int)(number % SHOW_DISPATCH_TOKENS));
}

/* Draw one token of a list; a full row continues in the next. */
static void draw_listed(FILE *to, int64_t number, int index, double x, double y)
{
    draw_token(to, number, x + index % ACROSS * CHIP, y + index / ACROSS * HIGH);
}

static int rows_for(int tokens) { return (tokens + ACROSS - 1) / ACROSS; }

/* Visit the tokens that a device has after so many hops, in the order of their senders.  @return how many. */
static int draw_held(FILE *to, const struct dispatch_trace *trace, int device, int hop, double x, double y)
{
    int n = 0;
    if (hop == 0) {
        for (int64_t t = 0; t < trace->layer->shape.tokens; t++, n++)
            if (to) draw_listed(to, token_number(device, t), n, x, y);
        return n;
    }
    for (int r = 0; r < trace->P; r++) {
        const int64_t *e = dispatch_event(&trace->record[r], DISPATCH_SENDS + hop - 1);
        for (int64_t i = 0; e && i < e[2]; i += 2)
            if (e[3 + i] == device) {
                if (to) draw_listed(to, e[4 + i], n, x, y);
                n++;
            }
    }
    return n;
}

/* Draw the experts of a device, each with the tokens that it computes.  @return the rows. */
static int draw_experts(FILE *to, const struct dispatch_trace *trace, int device, double x, double y)
{
    const int64_t *e = dispatch_event(&trace->record[device], DISPATCH_COMPUTED);
    int row = 0, n = 0;
    for (int64_t i = 0; e && i < e[2]; i += 2, n++) {
        if (i > 0 && e[3 + i] != e[1 + i]) row += rows_for(n), n = 0;
        if (to && n == 0) svg_text(to, x, y + row * HIGH + 11, "start", 12, "e%lld", (long long)e[3 + i]);
        if (to) draw_listed(to, e[4 + i], n, x + EXPERT, y + row * HIGH);
    }
    return row + rows_for(n);
}

/* The height of a device's box in all columns: what its fullest column needs. */
static double device_height(const struct dispatch_trace *trace, int device)
{
    int rows = draw_experts(NULL, trace, device, 0, 0);
    for (int hop = 0; hop <= trace->layer->routing.hops; hop++) {
        const int here = rows_for(draw_held(NULL, trace, device, hop, 0, 0));
        rows = here > rows ? here : rows;
    }
    return 8 + HIGH * (rows > 0 ? rows : 1);
}

/* y of a device's box; of the number of devices: y below all. */
static double device_top(const struct dispatch_trace *trace, int device)
{
    double y = TOP + HEAD;
    for (int d = 0; d < device; d++) y += device_height(trace, d) + GAP;
    return y;
}

static double column_left(int column) { return MARGIN + column * (double)(BOX + BETWEEN); }

/* The tokens of a hop from one device to another. */
static int tokens_sent(const struct dispatch_trace *trace, int hop, int from, int to)
{
    const int64_t *e = dispatch_event(&trace->record[from], DISPATCH_SENDS + hop);
    int n = 0;
    for (int64_t i = 0; e && i < e[2]; i += 2) n += e[3 + i] == to;
    return n;
}

/* Draw a line for each sender and receiver of a hop, as thick as its tokens are many; with many devices all lines are
 * thinner. */
static void draw_lines(FILE *to, const struct dispatch_trace *trace, int hop)
{
    const double x = column_left(hop) + BOX, thickest = THICKEST / sqrt(trace->P);
    int most = 1;
    for (int r = 0; r < trace->P; r++)
        for (int d = 0; d < trace->P; d++)
            most = tokens_sent(trace, hop, r, d) > most ? tokens_sent(trace, hop, r, d) : most;
    for (int r = 0; r < trace->P; r++)
        for (int d = 0; d < trace->P; d++) {
            const int n = tokens_sent(trace, hop, r, d);
            if (n == 0) continue;
            struct colour c = svg_device_colour(r);
            /* A token that stays on its device is no message: the line is lighter. */
            c.light = r == d ? 90 : c.light - 12;
            svg_link(to, x + 2, device_top(trace, r) + device_height(trace, r) / 2, x + BETWEEN - 2,
                     device_top(trace, d) + device_height(trace, d) / 2, 0.6 + thickest * n / most, c);
        }
}

/* Draw the boxes of a column: the tokens of each device after so many hops; or what its experts compute. */
static void draw_column(FILE *to, const struct dispatch_trace *trace, int column)
{
    const int hops = trace->layer->routing.hops;
    const double x = column_left(column);
    char what[80] = "";
    if (column == 0) snprintf(what, sizeof what, "tokens of each device");
    else if (column <= hops) {
        const struct expert_hop *h = &trace->layer->routing.hop[column - 1];
        snprintf(what, sizeof what, "after hop %d: %s of %d", column,
                 h->operation == ALLGATHER ? "all-gather" : "all-to-all", h->group->size);
    } else snprintf(what, sizeof what, "computed, expert by expert");
    svg_text(to, x, TOP + 14, "start", 13, "%s", what);
    for (int d = 0; d < trace->P; d++) {
        const double y = device_top(trace, d), h = device_height(trace, d);
        fprintf(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"#f6f6f6\" stroke=\"#444\" "
                "stroke-width=\"0.7\"/>\n", x, y, column > hops ? BOX + EXPERT - NAME : BOX, h);
        if (column > hops) {
            draw_experts(to, trace, d, x + 6, y + 5);
            continue;
        }
        svg_text(to, x + 6, y + 16, "start", 13, "%c", dispatch_letter(d));
        draw_held(to, trace, d, column, x + NAME + 2, y + 5);
    }
}

/* The most rows that a device computes, over the mean of all. */
static double load_most(const struct dispatch_trace *trace)
{
    int64_t most = 0, all = 0;
    for (int r = 0; r < trace->P; r++) {
        const int64_t *e = dispatch_event(&trace->record[r], DISPATCH_COMPUTED), n = e ? e[2] / 2 : 0;
        all += n, most = n > most ? n : most;
    }
    return all > 0 ? (double)most * trace->P / (double)all : 1;
}

enum error_code dispatch_svg(FILE *to, const void *dispatch_trace, struct error *err)
{
    const struct dispatch_trace *t = dispatch_trace;
    const struct scheme *s = &t->layer->ep.scheme->head;
    const struct expert_shape *shape = &t->layer->shape;
    const int columns = t->layer->routing.hops + 2;
    const int width = (int)column_left(columns - 1) + BOX + EXPERT - NAME + MARGIN;
    unsigned long long messages = 0, bytes = 0;
    char text[400];
    svg_begin(to, width, (int)device_top(t, t->P) + 40);
    svg_text(to, MARGIN, 30, "start", 17, "dispatch %s: %lld experts on %d device%s", s->name, (long long)shape->E,
             t->P, t->P == 1 ? "" : "s");
    const double y = 54 + svg_paragraph(to, MARGIN, 54, SVG_LINE, (width - 2 * MARGIN) / SVG_LETTER, s->description);
    snprintf(text, sizeof text, "%lld token%s of each device; a router has chosen %lld expert%s for each.  A colour is "
             "the device that a token comes from; a line is tokens that travel, a light one those that stay.%s",
             (long long)shape->tokens, shape->tokens == 1 ? "" : "s", (long long)shape->k, shape->k == 1 ? "" : "s",
             t->layer->routing.hops == 0 ? "  Tokens stay: the weights of all experts come to each device." : "");
    svg_paragraph(to, MARGIN, y, SVG_LINE, (width - 2 * MARGIN) / SVG_LETTER, text);
    for (int hop = 0; hop < t->layer->routing.hops; hop++) draw_lines(to, t, hop);
    for (int c = 0; c < columns; c++) draw_column(to, t, c);
    for (int r = 0; r < t->P; r++) messages += t->outcome[r].messages, bytes += t->outcome[r].bytes;
    svg_text(to, MARGIN, device_top(t, t->P) + 16, "start", 13, "The fullest device computes %.3g times the mean.  "
             "Forward and backward: %llu messages, %llu bytes.", load_most(t), messages, bytes);
    return svg_end(to, "the dispatch", err);
}
