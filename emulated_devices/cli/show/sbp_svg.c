/* sbp_svg.c -- draws the signatures of a graph: a row for each operation, in it a small picture of each operand and of
 * the result that shows which device has which part.  sbp.c calls.  The only error is ERR_FILE, from svg_end. */
#include "emulated_devices/cli/show/sbp_svg.h"
#include "emulated_devices/draw/svg.h"

/* Numbers are pixels: width, margins, the head, a cell with its picture, a row's name and its height, a line of text.
 * ACROSS: cells beside each other. */
enum { WIDTH = 900, MARGIN = 16, TOP = 136, CELL = 210, WIDE = 40, HIGH = 32, NAME = 20, ROW = 58, ACROSS = 4 };

static const struct colour whole_colour = { 0, 0, 78 }, partial_colour = { 30, 85, 76 };

/* A drawing in the making: `to` is NULL while the height is measured. */
struct sbp_canvas { FILE *to; const struct sbp_picture *picture; double y; int column; };

/* Draw who has what of a tensor: dimension 0 from top to bottom, the others from left to right. */
static void draw_signature(FILE *to, const struct sbp_mesh *mesh, struct signature signature, double x, double y)
{
    const bool cut = signature_has(signature, SBP_S), partial = signature_has(signature, SBP_P);
    /* Devices with the same part are drawn over each other, the first one last. */
    for (int d = cut ? sbp_devices(mesh) - 1 : 0; d >= 0; d--) {
        double left = 0, top = 0, w = 1, h = 1;
        for (int axis = 0; axis < mesh->axes; axis++) {
            if (signature.on[axis].kind != SBP_S) continue;
            const double share = 1.0 / mesh->size[axis], at = share * sbp_place(mesh, d, axis);
            if (signature.on[axis].dim == 0) top += h * at, h *= share;
            else left += w * at, w *= share;
        }
        svg_box(to, x + left * WIDE, y + top * HIGH, w * WIDE, h * HIGH, cut ? svg_device_colour(d)
                : partial ? partial_colour : whole_colour);
    }
    if (partial) svg_text(to, x + WIDE / 2.0, y + HIGH / 2.0 + 5, "middle", 15, "\xce\xa3");
}

/* Draw one operand or result with its journey.  A full row continues below. */
static void draw_operand(void *context, int op, int operand, int tensor, const struct boxing *boxing)
{
    struct sbp_canvas *c = context;
    const struct assignment *a = c->picture->assignment;
    const struct sbp_op *o = &c->picture->graph->op[op];
    const bool result = operand == o->inputs;
    char text[SBP_TEXT], journey[160];
    if (operand == 0) {
        c->y += ROW, c->column = 0;
        if (c->to) svg_link(c->to, MARGIN, c->y - 2, WIDTH - MARGIN, c->y - 2, 0.6, (struct colour){ 0, 0, 75 });
        if (c->to) svg_text(c->to, MARGIN, c->y + 14, "start", 14, "%s", o->operator->name);
        c->y += NAME;
    } else if (c->column == ACROSS) c->y += ROW, c->column = 0;
    const double x = MARGIN + CELL * c->column++, y = c->y;
    if (c->to == NULL) return;
    const struct signature s = result ? a->rule[op].out : a->tensor[tensor];
    draw_signature(c->to, &a->mesh, s, x + 18, y);
    svg_text(c->to, x + 2, y + HIGH / 2.0 + 4, "start", 14, "%s", result ? "=" : "");
    svg_text(c->to, x + 18 + WIDE + 6, y + 11, "start", 12, "%s", c->picture->graph->tensor[tensor].name);
    svg_text(c->to, x + 18 + WIDE + 6, y + 26, "start", 12, "%s", signature_text(&a->mesh, s, text));
    if (boxing->steps == 0) return;
    svg_text(c->to, x + 18, y + HIGH + 14, "start", 12, "%s%s: %lld", "\xe2\x86\x92 ",
             sbp_journey_text(&a->mesh, boxing, journey, sizeof journey), (long long)boxing->elements);
}

enum error_code sbp_svg(FILE *to, const void *sbp_picture, struct error *err)
{
    const struct sbp_picture *p = sbp_picture;
    const struct sbp_mesh *mesh = &p->assignment->mesh;
    struct sbp_canvas canvas = { NULL, p, TOP - ROW, 0 };
    assignment_each(p->graph, p->assignment, draw_operand, &canvas);
    svg_begin(to, WIDTH, (int)canvas.y + ROW + MARGIN);
    char size[24] = "";
    if (mesh->axes > 1) snprintf(size, sizeof size, " (%d x %d)", mesh->size[0], mesh->size[1]);
    svg_text(to, MARGIN, 30, "start", 17, "signatures on %d devices%s: %lld elements are sent", sbp_devices(mesh), size,
             (long long)p->assignment->elements);
    svg_paragraph(to, MARGIN, 54, SVG_LINE, (WIDTH - 2 * MARGIN) / SVG_LETTER,
                  "A picture is a tensor: each colour is the part of one device, grey is whole on every device (B), "
                  "\xce\xa3 is a partial sum on every device (P).  S(0) cuts from top to bottom, the other dimensions "
                  "are cut from left to right.  An arrow is a journey to another signature, with the elements that are "
                  "sent.");
    canvas = (struct sbp_canvas){ to, p, TOP - ROW, 0 };
    assignment_each(p->graph, p->assignment, draw_operand, &canvas);
    return svg_end(to, "the signatures", err);
}
