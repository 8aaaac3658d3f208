/* tensor_claims.c -- from which size one tensor scheme needs less than another, from the cost functions, beside the
 * papers' formulas and measurements; and Korthikanti's formula of a layer's memory. */
#include "emulated_devices/cli/bench/schemes/tensor.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct tensor_scheme *scheme_of(const char *name)
{
    const struct tensor_scheme *s = NULL;
    (void)tensor_scheme_find(&s, name, NULL);
    return s;
}

/* The compared quantity: MB that a device sends on average, or picoseconds of transfers.  NAN if the scheme does not
 * accept P. */
enum quantity { SENT, TIME };

static double needs(const struct bench_tensor *tensor, const struct tensor_shape *shape,
                    const struct tensor_scheme *scheme, int P, enum quantity quantity)
{
    struct tensor_figures f;
    if (tensor_predict(&f, tensor, shape, scheme, P, NULL) != OK) return NAN;
    return quantity == SENT ? f.mean : (double)f.transfers;
}

static bool overtakes(const struct bench_tensor *tensor, const struct tensor_shape *shape,
                      const struct tensor_scheme *scheme, int P, enum quantity quantity)
{
    return needs(tensor, shape, scheme, P, quantity) < needs(tensor, shape, scheme_of("1d"), P, quantity);
}

/* ---- with how many tokens ---------------------------------------------------------------------------------------- */

enum { FEW_TOKENS = 16, MOST_RATIO = 64 };      /* tokens of a sequence; N/D */

/* The N/D from which on a scheme needs less than 1d, with a resolution of one sequence; NAN: none up to MOST_RATIO.
 * The scheme's need grows more slowly than 1d's. */
static double crossing(const struct bench_tensor *tensor, const struct tensor_scheme *scheme, int P,
                       enum quantity quantity)
{
    struct tensor_shape s = tensor->shape;
    int64_t low = 0, high = MOST_RATIO * s.D / FEW_TOKENS;
    s.S = FEW_TOKENS, s.B = high;
    if (high < 1 || !overtakes(tensor, &s, scheme, P, quantity)) return NAN;
    while (high - low > 1) {
        s.B = low + (high - low) / 2;
        if (overtakes(tensor, &s, scheme, P, quantity)) high = s.B;
        else low = s.B;
    }
    return (double)(high * s.S) / (double)s.D;
}

/* The same from the formulas in the schemes' head comments for all devices together, for matrices only: d q q devices
 * send (q-1) (21 N D + 36 d D^2) + 24 (d-1) D^2, p p p devices 3 (p-1) (16 N D + 12 D^2), and P devices of 1d
 * 8 N D (P-1). */
static double crossing_by_formula(const char *name, const int mesh[TENSOR_AXES], int P)
{
    const double d = mesh[0], q = mesh[1];
    const bool cube = strcmp(name, "3d") == 0;
    const double tokens = cube ? 48 * (q - 1) : 21 * (q - 1),
                 fixed = cube ? 36 * (q - 1) : 36 * d * (q - 1) + 24 * (d - 1);
    const double ratio = fixed / (8.0 * (P - 1) - tokens);
    return ratio > 0 ? ratio : NAN;
}

struct ratio_text { char text[16]; };

static struct ratio_text ratio_text(double x)
{
    struct ratio_text t;
    if (isnan(x)) snprintf(t.text, sizeof t.text, "above %d", MOST_RATIO);
    else snprintf(t.text, sizeof t.text, "%.2f", x);
    return t;
}

static void print_crossings(const struct bench_tensor *tensor)
{
    static const char *const names[] = { "2d", "2.5d", "3d" };
    static const int sizes[] = { 4, 8, 9, 16, 18, 27, 32, 64 };
    printf("\n");
    say(stdout, 0,
        "The N/D above which a scheme needs less than 1d, at D=%lld in %s: what devices send on average, by\n"
           "the cost functions and by the formulas of the matrices alone; time of the transfers on\n%s",
           (long long)tensor->shape.D, dtype_name(tensor->dtype), tensor->cluster.name);
    printf("\n");
    struct table t = table_start(NULL, 2, "P\tscheme\tmesh\tsent\tformula\ttime");
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const struct tensor_scheme *s = scheme_of(names[i]);
            const struct model_config model = shape_model(&tensor->shape);
            int mesh[TENSOR_AXES];
            char shape[40];
            if (tensor_check(s, &model, sizes[n], NULL) != OK ||
                tensor_check(scheme_of("1d"), &model, sizes[n], NULL) != OK)
                continue;
            s->mesh(sizes[n], mesh);
            if (i == 1 && mesh[0] == 1) continue;                               /* is 2d */
            snprintf(shape, sizeof shape, "%dx%dx%d", mesh[0], mesh[1], mesh[2]);
            table_row(&t, "%d\t%s\t%s\t%s\t%s\t%s", sizes[n], names[i], shape + (mesh[0] == 1 ? 2 : 0),
                   ratio_text(crossing(tensor, s, sizes[n], SENT)).text,
                   ratio_text(crossing_by_formula(names[i], mesh, sizes[n])).text,
                   ratio_text(crossing(tensor, s, sizes[n], TIME)).text);
        }
    table_end(&t);
}

/* ---- with how many devices --------------------------------------------------------------------------------------- */

/* The smallest number of devices with which a scheme needs less than 1d; 0: none up to the limit. */
static int fewest(const struct bench_tensor *tensor, const struct tensor_shape *shape,
                  const struct tensor_scheme *scheme, enum quantity quantity)
{
    for (int P = 2; P <= BENCH_TENSOR_DEVICES; P++)
        if (overtakes(tensor, shape, scheme, P, quantity)) return P;
    return 0;
}

static struct ratio_text fewest_text(int P)
{
    struct ratio_text t = { "none" };
    if (P > 0) snprintf(t.text, sizeof t.text, "%d", P);
    return t;
}

/* Widths, heads and sequences are those of the papers' tables; the sequences of a microbatch are ours. */
static const struct tensor_shape published[] = {
    { "8.3B, arXiv:1909.08053", 3072, 32, 1024, 8 }, { "8.3B", 3072, 32, 1024, 32 },
    { "175B, arXiv:2005.14165", 12288, 96, 2048, 8 },
    { "175B", 12288, 96, 2048, 32 }, { "1008B, arXiv:2104.04473", 25600, 160, 2048, 16 },
};

static void print_shapes(const struct bench_tensor *tensor)
{
    static const char *const names[] = { "2d", "2.5d", "3d" };
    struct tensor_shape shapes[1 + sizeof published / sizeof *published] = { tensor->shape };
    memcpy(shapes + 1, published, sizeof published);
    shapes[0].name = "as above";
    printf("\n");
    say(stdout, 0,
        "Fewest devices, up to %d, with which a scheme sends less than 1d (sent), and has shorter transfers\n"
        "on %s (time)", BENCH_TENSOR_DEVICES, tensor->cluster.name);
    printf("\n");
    struct table t = table_start(NULL, 1, "shape\tD\tS\tH\tB\t2d sent\ttime\t2.5d sent\ttime\t3d sent\ttime");
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        char numbers[120];
        int used = 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            used += snprintf(numbers + used, sizeof numbers - (size_t)used, "\t%s\t%s",
                             fewest_text(fewest(tensor, &shapes[n], scheme_of(names[i]), SENT)).text,
                             fewest_text(fewest(tensor, &shapes[n], scheme_of(names[i]), TIME)).text);
        table_row(&t, "%s\t%lld\t%lld\t%lld\t%lld%s", shapes[n].name, (long long)shapes[n].D, (long long)shapes[n].S,
                  (long long)shapes[n].H, (long long)shapes[n].B, numbers);
    }
    table_end(&t);
}

/* ---- what papers measured ---------------------------------------------------------------------------------------- */

static const char *four_cubed(int P, int mesh[TENSOR_AXES])
{
    mesh[0] = mesh[1] = mesh[2] = 4;
    return P == 64 ? NULL : "64";
}

/* In picoseconds: matrices and attention at the device's arithmetic rate, plus the transfers. */
static double layer_time(const struct bench_tensor *tensor, const struct tensor_shape *shape,
                         const struct tensor_scheme *scheme, int P)
{
    const int64_t N = shape_tokens(shape), D = shape->D, rate = tensor->cluster.flop_rate[tensor->dtype];
    const struct attention a = { .S = shape->S, .H = shape->H, .K = shape->H, .A = D / shape->H };
    double flops = attention_forward_cost(N, a, tensor->dtype).flops + attention_backward_cost(N, a,
                                                                                               tensor->dtype).flops;
    flops += 3 * (linear_cost(N, D, 3 * D, tensor->dtype).flops + linear_cost(N, D, D, tensor->dtype).flops +
                  2 * linear_cost(N, D, 4 * D, tensor->dtype).flops);
    return needs(tensor, shape, scheme, P, TIME) + (rate > 0 ? flops / P / ((double)rate * 1e6) * 1e12 : 0);
}

static void print_measured(const struct bench_tensor *tensor)
{
    static const struct tensor_shape shape = { "", 4096, 64, 512, 64 };
    enum { P = 64 };
    struct tensor_scheme tesseract = *scheme_of("2.5d");
    tesseract.mesh = four_cubed;
    const struct tensor_scheme *const one = scheme_of("1d"), *const two = scheme_of("2d"),
                                      *const three = scheme_of("3d");
    const struct { const char *source; const struct tensor_scheme *fast, *slow; double claim; } claims[] = {
        { "Optimus, arXiv:2104.05343", two, one, 1.48 }, { "Tesseract, arXiv:2105.14500", &tesseract, one, 1.38 },
        { "Tesseract, arXiv:2105.14500", &tesseract, two, 1.53 }, { "Bian et al., arXiv:2105.14450", three, one, 2.32 },
        { "Bian et al., arXiv:2105.14450", three, two, 1.57 },
    };
    printf("\n");
    say(stdout, 0, "Speed-ups: those that the papers' abstracts state, measured on their GPUs with their shapes, and\n"
           "ours, in %s: the ratio of what is sent, and of a layer's time on %s.\n"
           "%d devices, D=%lld, H=%lld, %lld sequences of %lld; matrices, attention, then transfers; 2.5d as 4x4x4",
        dtype_name(tensor->dtype), tensor->cluster.name, P, (long long)shape.D, (long long)shape.H, (long long)shape.B,
        (long long)shape.S);
    printf("\n");
    struct table t = table_start(NULL, 2, "source\t\tclaimed\tsent\ttime");
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        char which[32];
        snprintf(which, sizeof which, "%s over %s", claims[i].fast->head.name, claims[i].slow->head.name);
        table_row(&t, "%s\t%s\t%.2f\t%.2f\t%.2f", claims[i].source, which, claims[i].claim,
               needs(tensor, &shape, claims[i].slow, P, SENT) / needs(tensor, &shape, claims[i].fast, P, SENT),
               layer_time(tensor, &shape, claims[i].slow, P) / layer_time(tensor, &shape, claims[i].fast, P));
    }
    table_end(&t);
}

/* ---- overlapped sums --------------------------------------------------------------------------------------------- */

/* The speedup of a product of [N,I] with [I,D], summed over P devices, if sums are sent during the products of chunks;
 * by the formulas that tests/devices/test_overlap.c compares with the clock. */
static double overlap_gain(const struct bench_tensor *tensor, struct stand *stand, int64_t I)
{
    const int P = stand->group.size;
    const int64_t n = stand->N / P, D = stand->plan.model.D, rate = tensor->cluster.flop_rate[tensor->dtype];
    const struct collective sum = { .count = stand->N * D, .dtype = tensor->dtype, .reduction = SUM };
    const double c = (double)group_time(&stand->group, REDUCE_SCATTER, NULL, &sum) / (P - 1);
    const double g = rate > 0 ? linear_cost(n, I, D, tensor->dtype).flops / ((double)rate * 1e6) * 1e12 : 0;
    return (P * g + (P - 1) * c) / fmax(P * g, g + (P - 1) * c);
}

/* The four products of a layer that end in a sum: forward in attention and in the feed-forward, and backward for the
 * inputs of QKV and up. */
static enum error_code print_overlap(const struct bench_tensor *tensor, struct error *err)
{
    static const struct tensor_shape shape = { "", 4256, 28, 1024, 8 };
    static struct stand p;
    enum { P = 8, SUMS = 4 };
    const int64_t widths[SUMS] = { shape.D / P, 4 * shape.D / P, 3 * shape.D / P, 4 * shape.D / P };
    double product = 1, most = 0;
    enum error_code e = stand_open(&p, &shape, tensor->dtype, scheme_of("1d-sp-overlap"), P, err);
    if (e) return e;
    clock_open(&p.device.clock, &tensor->cluster, tensor->dtype);
    e = stand_at(&p, 0, shape_tokens(&shape), err);
    if (e) return stand_close(&p), e;
    for (int i = 0; i < SUMS; i++) {
        const double gain = overlap_gain(tensor, &p, widths[i]);
        product *= gain;
        most = fmax(most, gain);
    }
    printf("\n");
    say(stdout, 0, "Products that a sum follows, on %d devices: D=%lld (T-NLG's), %lld sequences of %lld; staggered\n"
        "over one after the other; geometric mean and most",
        P, (long long)shape.D, (long long)shape.B, (long long)shape.S);
    printf("\n");
    struct table t = table_start(NULL, 2, "source\t\tclaimed\tmost\ttime\tmost");
    table_row(&t, "%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f", "T3, arXiv:2401.16677", "1d-sp-overlap, 1d-sp", 1.30, 1.47,
              pow(product, 1.0 / SUMS), most);
    table_end(&t);
    stand_close(&p);
    return OK;
}

/* ---- what papers derive ------------------------------------------------------------------------------------------ */

static void print_derived(const struct bench_tensor *tensor)
{
    const int P = tensor->shape.H < 8 ? (int)tensor->shape.H : 8;
    const double ND = (double)shape_tokens(&tensor->shape) * (double)tensor->shape.D
        * (double)dtype_size(tensor->dtype),
                 all = 8.0 * (P - 1) / P;
    const struct { const char *source, *scheme, *claim; double elements; } claims[] = {
        { "Narayanan et al., arXiv:2104.04473, 3.2", "1d", "8 N D (P-1)/P", all },
        { "Korthikanti et al., arXiv:2205.05198, 4.2", "1d-sp-keep", "as 1d", all },
        { "the same, inputs gathered again", "1d-sp", "1d and 2 N D (P-1)/P", all + 2.0 * (P - 1) / P },
        { "Wang et al., T3: the same in chunks", "1d-sp-overlap", "as 1d-sp", all + 2.0 * (P - 1) / P },
    };
    printf("\n");
    say(stdout, 0, "Elements that each of %d devices sends, in units of N D: claimed, and by the cost functions, with "
        "the\nnorms' gradients", P);
    printf("\n");
    struct table t = table_start(NULL, 2, "source\tscheme\tclaim\tclaimed\tours");
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
        table_row(&t, "%s\t%s\t%s\t%.4f\t%.4f", claims[i].source, claims[i].scheme, claims[i].claim,
               claims[i].elements, needs(tensor, &tensor->shape, scheme_of(claims[i].scheme), P, SENT) / ND);
    table_end(&t);
}

enum error_code print_claims(const struct bench_tensor *tensor, struct error *err)
{
    const struct model_config model = shape_model(&tensor->shape);
    const enum error_code e = tensor_check(scheme_of("1d"), &model, 1, err);
    if (e) return e;
    print_derived(tensor);
    if (cluster_check(&tensor->cluster, BENCH_TENSOR_DEVICES, tensor->dtype, NULL) != OK)
        printf("\n"),
            say(stdout, 0, "Below, devices beyond those that %s has are taken to be on its last link.",
                tensor->cluster.name);
    print_crossings(tensor);
    print_shapes(tensor);
    print_measured(tensor);
    return print_overlap(tensor, err);
}

/* ---- Korthikanti's account --------------------------------------------------------------------------------------- */

static enum error_code print_memory(const struct tensor_shape *shape, const char *name, int P, const char *recompute,
                                    struct error *err)
{
    static struct stand p;
    struct layer_memory_term term[LAYER_MEMORY_TERMS];
    double paper = 0, kept = 0;
    const int64_t N = shape_tokens(shape);
    enum error_code e = stand_open(&p, shape, BF16, scheme_of(name), P, err);
    if (e) return e;
    e = stand_at(&p, 0, N, err);
    if (!e) e = layer_memory(&p.tp, N, recompute, term, err);
    if (e) return stand_close(&p), e;
    printf("\n--tensor %s --tp %d --recompute %s\n", name, P, recompute);
    struct table t = table_start(NULL, 1, "\tpaper\tours\t");
    for (int i = 0; i < LAYER_MEMORY_TERMS; i++) {
        const double ND = (double)N * (double)shape->D;
        paper += term[i].paper / ND, kept += (double)term[i].kept / ND;
        if (term[i].paper > 0 || term[i].kept > 0)
            table_row(&t, "%s\t%.3f\t%.3f\t%s", term[i].what, term[i].paper / ND, (double)term[i].kept / ND,
                   term[i].why ? term[i].why : "");
    }
    table_row(&t, "sum\t%.3f\t%.3f", paper, kept);
    table_end(&t);
    stand_close(&p);
    return OK;
}

enum error_code print_layer_memory(const struct tensor_shape *shape, struct error *err)
{
    const int P = shape->H < 8 ? (int)shape->H : 8;
    printf("\n");
    say(stdout, 0, "Bytes a layer keeps in 16 bits with dropout, in units of N D: V. Korthikanti et al.,\n"
        "arXiv:2205.05198, section 4, and ours");
    enum error_code e = print_memory(shape, "1d", 1, "none", err);
    if (!e) e = print_memory(shape, "1d", P, "none", err);
    if (!e) e = print_memory(shape, "1d-sp", P, "none", err);
    return e ? e : print_memory(shape, "1d-sp", P, "selective", err);
}
