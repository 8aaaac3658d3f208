/* diagnose.c -- finds words for a failure from its ranks and its factor.  emulated_devices/cli/check.c,
 * run/report/report_check.c and verify/reference/ call it.  Nothing fails here; without an explanation a text
 * is empty. */
#include "emulated_devices/check/report/diagnose.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- tolerances -------------------------------------------------------------------------------------------------- */

static const double SAME = 1e-3;            /* relative tolerance: of a factor to a number, of a residual to 0 */
static const double MOST_ROUNDING = 0.05;   /* upper limit of closeness(): above it any tensors would match */

static bool near(double a, double b, double same) { return fabs(a - b) <= same * fabs(b); }

/* This is the tolerance of a factor, given the tensor's rounding errors. */
static double closeness(const struct evidence *evidence) { return fmax(SAME, fmin(evidence->rounding, MOST_ROUNDING)); }

/* ---- adding up devices ------------------------------------------------------------------------------------------- */

/* The factor that minimizes |actual - factor truth| is product / truth; the residual is what is left, over
 * |actual|. */
struct scale scale_of(double actual, double product, double truth)
{
    if (!(truth > 0)) return (struct scale){ NAN, NAN };
    const double left = actual - product * product / truth;
    return (struct scale){ product / truth, actual > 0 ? sqrt(fmax(left, 0) / actual) : 0 };
}

/* Join a device's scale into the common scale of the failing devices.  If two factors differ the residual is NaN,
 * and stays NaN. */
static void diagnose_join(struct scale *all, struct scale one, double same, bool first)
{
    if (first) *all = one;
    else if (!near(one.factor, all->factor, same)) all->residual = NAN;
    else if (exceeds(one.residual, all->residual)) all->residual = one.residual;
}

/* The first failing device sets the common scale.  Factors of single devices are kept for the first DIAGNOSE_MOST
 * ranks. */
void evidence_add(struct evidence *evidence, int rank, bool fails, struct scale scale, double truth)
{
    devices_add(&evidence->holding, rank);
    if (fails) {
        diagnose_join(&evidence->scale, scale, closeness(evidence), devices_count(&evidence->failing) == 0);
        devices_add(&evidence->failing, rank);
    }
    if (rank < DIAGNOSE_MOST) evidence->factor[rank] = scale.factor, evidence->truth[rank] = truth;
}

/* This is a text to append to; text that does not fit is dropped. */
struct words { char *out; size_t size, used; };

/* This appends to a text, cut to the room that is left. */
static void diagnose_say(struct words *words, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(words->out + words->used, words->size - words->used, format, args);
    va_end(args);
    if (n > 0) words->used += (size_t)n < words->size - words->used ? (size_t)n : words->size - words->used - 1;
}

/* ---- where ------------------------------------------------------------------------------------------------------- */

/* Mark the coordinates of a set of devices on one axis.  @return how many there are. */
static int coordinates(const struct mesh *mesh, const struct devices *devices, enum axis axis, bool has[])
{
    int n = 0;
    for (int i = 0; i < mesh->size[axis]; i++) has[i] = false;
    for (int r = 0; r < mesh->devices; r++)
        if (devices_have(devices, r)) has[mesh_coordinate(mesh, r, axis)] = true;
    for (int i = 0; i < mesh->size[axis]; i++) n += has[i];
    return n;
}

/* Whether all holders with coordinates of failing devices fail.  Only then coordinates describe the set. */
static bool is_product(const struct mesh *mesh, const struct devices *holding, const struct devices *failing)
{
    for (int r = 0; r < mesh->devices; r++) {
        bool inside = devices_have(holding, r);
        for (enum axis a = 0; a < AXIS_COUNT && inside; a++) {
            bool has[MESH_MOST_LISTED];
            coordinates(mesh, failing, a, has);
            inside = has[mesh_coordinate(mesh, r, a)];
        }
        if (inside != devices_have(failing, r)) return false;
    }
    return true;
}

/* Say which coordinates of an axis fail: "tp=1", "any dp", or "any tp but 0". */
static void say_axis(struct words *words, const struct mesh *mesh, enum axis axis, const struct devices *holding,
                     const struct devices *failing)
{
    bool held[MESH_MOST_LISTED], failed[MESH_MOST_LISTED];
    const int h = coordinates(mesh, holding, axis, held), f = coordinates(mesh, failing, axis, failed);
    const char *comma = words->used ? ", " : "";
    const bool all_but_one = f == h - 1 && f > 1;
    /* All coordinates fail where the tensor is held, so the axis does not restrict the set. */
    if (f == h && h > 1) {
        diagnose_say(words, "%sany %s", comma, axis_name(axis));
        return;
    }
    if (all_but_one) diagnose_say(words, "%sany %s but ", comma, axis_name(axis));
    else diagnose_say(words, "%s%s=", comma, axis_name(axis));
    bool first = true;
    /* The list names coordinates that do not fail behind "but", else those that fail. */
    for (int i = 0; i < mesh->size[axis]; i++)
        if (all_but_one ? held[i] && !failed[i] : failed[i]) {
            diagnose_say(words, "%s%d", first ? "" : "+", i);
            first = false;
        }
}

const char *diagnose_place(char *out, size_t size, const struct mesh *mesh, const struct evidence *evidence)
{
    const struct devices *holding = &evidence->holding, *failing = &evidence->failing;
    struct words w = { out, size, 0 };
    out[0] = 0;
    if (mesh->devices == 1) return diagnose_say(&w, "the only device"), out;
    if (!is_product(mesh, holding, failing)) {
        diagnose_say(&w, "devices");
        for (int r = 0; r < mesh->devices; r++)
            if (devices_have(failing, r)) diagnose_say(&w, " %d", r);
        return out;
    }
    /* Axes that restrict the set come first, then those where any coordinate fails. */
    static const enum axis order[] = { DP, TP, PP, CP, EP };
    for (int pass = 0; pass < 2; pass++)                        /* restricted axes first */
        for (int i = 0; i < AXIS_COUNT; i++) {
            bool has[MESH_MOST_LISTED];
            const bool any = coordinates(mesh, failing, order[i], has) == coordinates(mesh, holding, order[i], has) &&
                             coordinates(mesh, holding, order[i], has) > 1;
            if (mesh->size[order[i]] > 1 && any == (pass == 1)) say_axis(&w, mesh, order[i], holding, failing);
        }
    return out;
}

/* ---- by how much ------------------------------------------------------------------------------------------------- */

static const double SUM_SAME = 1e-5;    /* tolerance for a sum of factors: above rounding, below coincidence */

static bool equals(double a, double b) { return near(a, b, SAME); }

/* Match a factor with powers of a size.  Typical mistakes are a sum in place of a mean, dividing twice, and norms
 * added as squares. */
static void match(struct words *words, double factor, double same, const char *name, double size, int powers)
{
    const struct { const char *before, *after; double value; } power[] = {
        { "", "", size }, { "1/", "", 1 / size },               /* products of two sizes: only these */
        { "", "^2", size * size }, { "1/", "^2", 1 / (size * size) },
        { "sqrt(", ")", sqrt(size) }, { "1/sqrt(", ")", 1 / sqrt(size) },
    };
    for (int i = 0; i < powers; i++)
        if (size > 1 && near(factor, power[i].value, same)) {
            diagnose_say(words, "%s%s%s%s", words->used ? " or " : "", power[i].before, name, power[i].after);
            return;
        }
}

/* Match a power of two as a loss scale.  Small powers are left to sums and means over a few devices. */
static void match_loss_scale(struct words *words, double factor, double same)
{
    enum { LEAST = 4, MOST = 24 };
    const double k = round(log2(factor));
    if (words->used || !(factor > 0) || !(fabs(k) >= LEAST && fabs(k) <= MOST) || !near(factor, exp2(k), same)) return;
    if (k > 0) diagnose_say(words, "%.0f, a loss scale that is not divided out", exp2(k));
    else diagnose_say(words, "1/%.0f, a loss scale that is divided out twice, or a mean in place of a sum", exp2(-k));
}

/* Try each axis, the microbatches, products of two axes, then loss scales.  All that match are named. */
static void match_sizes(struct words *words, double factor, double same, const struct mesh *mesh, int micros)
{
    char name[32];
    for (enum axis a = 0; a < AXIS_COUNT; a++) match(words, factor, same, axis_name(a), mesh->size[a], 6);
    match(words, factor, same, "M", micros, 6);
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        for (enum axis b = a + 1; b < AXIS_COUNT; b++)
            if (mesh->size[a] > 1 && mesh->size[b] > 1) {
                snprintf(name, sizeof name, "(%s %s)", axis_name(a), axis_name(b));
                match(words, factor, same, name, mesh->size[a] * mesh->size[b], 2);
            }
    match_loss_scale(words, factor, same);
}

const char *diagnose_factor(char *out, size_t size, const struct mesh *mesh, int micros, double factor, double same)
{
    struct words w = { out, size, 0 };
    out[0] = 0;
    if (isfinite(factor)) match_sizes(&w, fabs(factor), fmax(SAME, fmin(same, MOST_ROUNDING) / 2), mesh, micros);
    return out;
}

/* Whether factors add up to 1 along one axis, over devices with the same part of the tensor. */
static bool adds_up(const struct mesh *mesh, enum axis axis, const struct evidence *evidence)
{
    for (int r = 0; r < mesh->devices; r++) {
        double sum = 0;
        if (!devices_have(&evidence->holding, r)) continue;
        for (int i = 0; i < mesh->size[axis]; i++) {
            const int other = mesh_neighbour(mesh, r, axis, i);
            /* Parts of one sum belong to equal golden parts, so all devices along the axis must hold such a part. */
            if (!devices_have(&evidence->holding, other) || !equals(evidence->truth[other], evidence->truth[r]))
                return false;
            sum += evidence->factor[other];
        }
        if (!(fabs(sum - 1) <= SUM_SAME)) return false;
    }
    return true;
}

/* The factors of the devices differ; parts of a sum that was not added up explain that. */
static const char *missing_sum(struct words *words, const struct mesh *mesh, const struct evidence *evidence)
{
    for (enum axis a = 0; a < AXIS_COUNT && mesh->devices <= DIAGNOSE_MOST; a++)
        if (mesh->size[a] > 1 && adds_up(mesh, a, evidence)) {
            diagnose_say(words, "a part of a sum: over %s the parts add up to what is expected", axis_name(a));
            break;
        }
    return words->out;
}

/* A constant factor is named if it is not 1.  A single number is a multiple of any other, so its factor needs a
 * name. */
const char *diagnose_scale(char *out, size_t size, const struct mesh *mesh, int micros, const struct evidence *evidence)
{
    const struct scale s = evidence->scale;
    char names[160] = "";
    struct words w = { out, size, 0 }, n = { names, sizeof names, 0 };
    out[0] = 0;
    /* Without a constant factor only a sum that was not added up can explain the numbers. */
    if (!(s.residual <= closeness(evidence))) return missing_sum(&w, mesh, evidence);
    if (!(fabs(s.factor) < 1e15) || equals(s.factor, 1)) return out;
    /* The factor is as exact as the numbers are close, but never more exact than SAME. */
    const double same = fmax(SAME, closeness(evidence) / 2);
    match_sizes(&n, fabs(s.factor), same, mesh, micros);
    if (evidence->sides) match(&n, fabs(s.factor), same, "sides", 2, 6);
    if (evidence->number && n.used == 0) return out;
    if (s.factor == 0) diagnose_say(&w, "zero");
    else diagnose_say(&w, fabs(s.factor) < 0.01 ? "expected times %.4g%s%s%s" : "expected times %.4f%s%s%s", s.factor,
                      n.used ? " = " : "", n.used && s.factor < 0 ? "-" : "", names);
    return out;
}
