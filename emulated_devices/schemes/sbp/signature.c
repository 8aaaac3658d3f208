/* signature.c -- places on a mesh, boxes of parts, texts of signatures, and copying of boxes.  Callers are this room
 * and schemes/tensor/sbp_file.c; signature_parse reports ERR_USAGE. */
#include "emulated_devices/schemes/sbp/signature.h"
#include "emulated_devices/collectives/collective.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>

int sbp_devices(const struct sbp_mesh *sbp_mesh)
{
    int n = 1;
    for (int k = 0; k < sbp_mesh->axes; k++) n *= sbp_mesh->size[k];
    return n;
}

int sbp_place(const struct sbp_mesh *sbp_mesh, int device, int axis)
{
    if (axis >= sbp_mesh->axes) return 0;
    /* The last axis changes fastest from device to device. */
    for (int k = sbp_mesh->axes - 1; k > axis; k--) device /= sbp_mesh->size[k];
    return device % sbp_mesh->size[axis];
}

bool sbp_equal(struct sbp a, struct sbp b) { return a.kind == b.kind && (a.kind != SBP_S || a.dim == b.dim); }

bool signature_equal(struct signature a, struct signature b)
{
    return sbp_equal(a.on[0], b.on[0]) && sbp_equal(a.on[1], b.on[1]);
}

bool signature_has(struct signature signature, enum sbp_kind kind) { return signature.on[0].kind == kind
                                                                    || signature.on[1].kind == kind; }

/* ---- where the parts are ----------------------------------------------------------------------------------------- */

/* Only dimension 0 has a granule: a cut at its multiples keeps sequences whole. */
static int64_t granule(const struct shape *shape, int dim)
{
    return dim == 0 && shape->granule > 1 ? shape->granule : 1;
}

bool signature_fits(const struct shape *shape, const struct sbp_mesh *sbp_mesh, struct signature signature)
{
    int64_t parts[TENSOR_MAX_DIMS] = { 1, 1, 1, 1 };
    for (int k = 0; k < SBP_AXES; k++) {
        if (signature.on[k].kind == SBP_B) continue;
        /* An axis that the mesh does not have can only be B. */
        if (k >= sbp_mesh->axes) return false;
        if (signature.on[k].kind == SBP_S && signature.on[k].dim >= shape->ndim) return false;
        if (signature.on[k].kind == SBP_S) parts[signature.on[k].dim] *= sbp_mesh->size[k];
    }
    /* Each part of a cut dimension gets a granule at least. */
    for (int d = 0; d < shape->ndim; d++)
        if (parts[d] > 1 && parts[d] > shape->dim[d] / granule(shape, d)) return false;
    return true;
}

struct box signature_box(const struct shape *shape, const struct sbp_mesh *sbp_mesh,
                         struct signature signature, int device)
{
    struct box b = { 0 };
    for (int d = 0; d < shape->ndim; d++) b.extent[d] = shape->dim[d];
    /* Axis after axis cuts the box that is left. */
    for (int k = 0; k < sbp_mesh->axes; k++) {
        if (signature.on[k].kind != SBP_S) continue;
        const int d = signature.on[k].dim, place = sbp_place(sbp_mesh, device, k);
        const int64_t g = granule(shape, d), units = (b.extent[d] + g - 1) / g;
        /* The second axis cuts what the first one left of the same dimension. */
        const int64_t from = block_start(units, sbp_mesh->size[k], place) * g,
                      to = block_start(units, sbp_mesh->size[k], place + 1) * g;
        const int64_t end = to < b.extent[d] ? to : b.extent[d];        /* the last unit may be short */
        b.start[d] += from;
        b.extent[d] = end - from;
    }
    return b;
}

int signature_all(const struct shape *shape, const struct sbp_mesh *sbp_mesh, struct signature all[])
{
    /* The order here is the order of codes in assign.c, and of rows in boxing_costs. */
    static const struct sbp kind[SBP_KINDS] = { ON_B, ON_P, ON_S(0), ON_S(1), ON_S(2), ON_S(3) };
    int n = 0;
    for (int a = 0; a < SBP_KINDS; a++)
        for (int b = 0; b < SBP_KINDS; b++) {
            const struct signature s = { { kind[a], kind[b] } };
            if (signature_fits(shape, sbp_mesh, s)) all[n++] = s;
        }
    return n;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Write one axis' kind as text.  @return as snprintf. */
static int write_sbp(char *at, size_t room, struct sbp sbp)
{
    if (sbp.kind == SBP_S) return snprintf(at, room, "S(%d)", sbp.dim);
    return snprintf(at, room, sbp.kind == SBP_B ? "B" : "P");
}

const char *signature_text(const struct sbp_mesh *sbp_mesh, struct signature signature, char text[SBP_TEXT])
{
    char one[8], two[8];
    write_sbp(one, sizeof one, signature.on[0]);
    write_sbp(two, sizeof two, signature.on[1]);
    /* A mesh of one axis has no parentheses. */
    if (sbp_mesh->axes == 1) snprintf(text, SBP_TEXT, "%s", one);
    else snprintf(text, SBP_TEXT, "(%s, %s)", one, two);
    return text;
}

/* Read one axis' kind.  @return the text behind it; NULL: it is no kind. */
static const char *read_sbp(const char *p, struct sbp *sbp)
{
    *sbp = (struct sbp){ *p == 'B' ? SBP_B : *p == 'P' ? SBP_P : SBP_S, 0 };
    if (*p == 'B' || *p == 'P') return p + 1;
    if (p[0] != 'S' || p[1] != '(' || p[2] < '0' || p[2] >= '0' + TENSOR_MAX_DIMS || p[3] != ')') return NULL;
    sbp->dim = p[2] - '0';
    return p + 4;
}

enum error_code signature_parse(const struct sbp_mesh *sbp_mesh, const char *text, struct signature *signature,
                                struct error *err)
{
    const char *p = text;
    /* Axes that the mesh does not have stay B. */
    *signature = (struct signature){ { ON_B, ON_B } };
    if (sbp_mesh->axes == 2) p = *p == '(' ? p + 1 : NULL;
    for (int k = 0; p && k < sbp_mesh->axes; k++) {
        if (k > 0) p = *p == ',' ? p + 1 + strspn(p + 1, " ") : NULL;
        if (p) p = read_sbp(p, &signature->on[k]);
    }
    if (p && sbp_mesh->axes == 2) p = *p == ')' ? p + 1 : NULL;
    if (p && *p == '\0') return OK;
    return fail(err, ERR_USAGE, "%s: must be a signature like %s; each of S(dimension), B and P", printable(text).text,
                sbp_mesh->axes == 1 ? "S(0)" : "(S(0), B)");
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

int64_t box_count(struct box box, int ndim)
{
    int64_t n = 1;
    /* A box of no dimensions has one element. */
    for (int d = 0; d < ndim; d++) n *= box.extent[d];
    return n;
}

struct box box_intersect(struct box a, struct box b, int ndim)
{
    struct box both = { 0 };
    for (int d = 0; d < ndim; d++) {
        const int64_t end_a = a.start[d] + a.extent[d], end_b = b.start[d] + b.extent[d],
                      end = end_a < end_b ? end_a : end_b;
        both.start[d] = a.start[d] > b.start[d] ? a.start[d] : b.start[d];
        both.extent[d] = end > both.start[d] ? end - both.start[d] : 0;
    }
    return both;
}

/* Copy a region row by row; a row of the last dimension is contiguous on both sides.  `held` is the box of the
 * piece. */
static void each_row(int ndim, struct box held, struct box region, char *piece, char *packed, size_t element_size,
                     bool pack)
{
    /* An empty region has no rows. */
    const int64_t row = region.extent[ndim - 1], rows = row > 0 ? box_count(region, ndim) / row : 0;
    const size_t bytes = (size_t)row * element_size;
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = 0, rest = r, stride = 1;
        /* r is split into the indices of all dimensions but the last, which a row runs through. */
        for (int d = ndim - 1; d >= 0; d--) {
            const int64_t i = d == ndim - 1 ? 0 : rest % region.extent[d];
            if (d < ndim - 1) rest /= region.extent[d];
            at += (region.start[d] - held.start[d] + i) * stride;
            stride *= held.extent[d];
        }
        char *const inside = piece + (size_t)at * element_size, *const outside = packed + (size_t)r * bytes;
        if (pack) memcpy(outside, inside, bytes);
        else memcpy(inside, outside, bytes);
    }
}

void box_pack(int ndim, struct box held, struct box region, const void *piece, void *packed, size_t element_size)
{
    each_row(ndim, held, region, (char *)piece, packed, element_size, true);
}

void box_unpack(int ndim, struct box held, struct box region, void *piece, const void *packed, size_t element_size)
{
    each_row(ndim, held, region, piece, (char *)packed, element_size, false);
}
