/* bench_tensor.c -- `orrery bench tensor`: what each scheme sends and keeps for one layer, where one overtakes another, and
 * what a layer keeps beside the published formulas.
 *
 * Nothing is run: the figures are those of the cost and memory functions, which the tests hold to what is counted.
 */
#include "emulated_devices/cli/bench.h"
#include "emulated_devices/model/block.h"
#include "emulated_devices/model/layer_memory.h"
#include "emulated_devices/model/memory.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct shape { int D, H, S, B, devices; };

/* One device of a tp group, with whom nobody talks. */
struct stand {
    struct device device;
    struct comm comm;
    struct group group;
    struct plan plan;
    struct tensor_parallel tp;
    struct stage stage;
    struct microbatch m;
};

static int world_ranks[MESH_MOST_DEVICES];

static enum error_code stand_open(struct stand *p, const struct shape *s, enum dtype dtype, const struct tensor_scheme *scheme, int P, struct error *err)
{
    memset(p, 0, sizeof *p);
    p->plan = (struct plan){ .model = { .S = s->S, .D = s->D, .H = s->H, .K = s->H, .A = s->D / s->H, .F = 4 * (int64_t)s->D, .L = 1,
                                        .V = 4 * (int64_t)s->D, .biases = true }, .S = s->S };
    for (int i = 0; i < P; i++) world_ranks[i] = i;
    p->comm = (struct comm){ .device = &p->device };
    p->group = (struct group){ .comm = &p->comm, .size = P, .member = world_ranks };
    p->tp = (struct tensor_parallel){ .scheme = scheme, .config = &p->plan.model, .device = &p->device, .group = &p->group, .S = s->S };
    enum error_code e = tensor_check(scheme, &p->plan.model, P, err);
    return e ? e : device_open(&p->device, dtype, 0, err);
}

/* Stand where the device of this rank stands. */
static void stand_at(struct stand *p, int rank, int64_t N)
{
    p->group.rank = rank;
    tensor_share(&p->tp);
    for (unsigned axes = 0; axes < TENSOR_AXIS_SETS; axes++)
        p->tp.along[axes] = (struct group){ .comm = &p->comm, .member = world_ranks, .size = axes_size(&p->tp, axes), .rank = axes_index(&p->tp, axes) };
    p->stage = (struct stage){ .plan = &p->plan, .device = &p->device, .tp = &p->tp };
    p->m = (struct microbatch){ .N = N, .stream = tensor_rows_at(&p->tp, STREAM, N), .inner = tensor_rows_at(&p->tp, INNER, N),
                                .input = tensor_rows_at(&p->tp, INPUT, N) };
}

/* ---- each scheme on each number of devices ---------------------------------------------------------------------------------- */

struct figures { double mean, most, kept, weights; };   /* elements sent by a device, kept by one, and of one's weights */

static struct figures figures_of(struct stand *p, int64_t N)
{
    struct figures f = { 0 };
    const int P = p->group.size;
    for (int r = 0; r < P; r++) {
        int64_t weights = 0;
        stand_at(p, r, N);
        const double sent = (double)tensor_cost(&p->tp, (struct tensor_cost_request){ .N = N, .layers = 1 }).bytes / (double)dtype_size(p->device.dtype);
        for (int i = 0; i < BLOCK_PARAMS; i++) {
            const int index = param_of_block(&p->plan.model, 0, (enum block_param)i);
            if (index < 0) continue;
            const struct param_spec spec = model_param(&p->plan.model, index);
            const struct layout l = tensor_layout(&p->tp, &spec);
            weights += layout_count(&l);
        }
        f.mean += sent / P;
        f.most = fmax(f.most, sent);
        f.kept = fmax(f.kept, (double)kept_bytes(&p->device, block_keeps(&p->stage, &p->m)) / (double)dtype_size(p->device.dtype));
        f.weights = fmax(f.weights, (double)weights);
    }
    return f;
}

static enum error_code print_schemes(const struct shape *s, struct error *err)
{
    static struct stand p;
    const int64_t N = (int64_t)s->B * s->S;
    printf("One layer and microbatch, N=%lld tokens of width D=%d, F=4D: elements a device sends (on average,\nat most) and keeps, in units of N D; weights in units of D^2\n\n", (long long)N, s->D);
    printf("%4s  %-11s %9s %9s %9s %9s\n", "P", "scheme", "sends", "most", "keeps", "weights");
    for (int P = 1; P <= s->devices; P++)
        for (int i = 0; tensor_schemes[i]; i++) {
            struct error why;
            const enum error_code e = stand_open(&p, s, F64, tensor_schemes[i], P, &why);
            if (e == ERR_PLAN) continue;
            if (e) return fail(err, e, "%s", why.text);
            const struct figures f = figures_of(&p, N);
            const double ND = (double)N * s->D, DD = (double)s->D * s->D;
            if (P > 1 || i == 0)
                printf("%4d  %-11s %9.3f %9.3f %9.3f %9.3f\n", P, P > 1 ? tensor_schemes[i]->name : "one device", f.mean / ND, f.most / ND, f.kept / ND, f.weights / DD);
            device_close(&p.device);
        }
    return OK;
}

/* ---- where 2d overtakes 1d ----------------------------------------------------------------------------------------------------- */

/* Elements that a device sends on average; NAN if the scheme does not take P. */
static double sends(const struct shape *s, const char *name, int P, int64_t sequences)
{
    static struct stand p;
    const struct tensor_scheme *scheme;
    if (tensor_scheme_find(&scheme, name, NULL) != OK || stand_open(&p, s, F64, scheme, P, NULL) != OK) return NAN;
    const double mean = figures_of(&p, sequences * s->S).mean;
    device_close(&p.device);
    return mean;
}

/* Fewest sequences with which 2d sends less than 1d; 0: not within the limit.  Sending grows less with them than 1d's. */
static int64_t crossing(const struct shape *s, int P, int64_t limit)
{
    int64_t low = 0, high = limit;
    if (!(sends(s, "2d", P, limit) < sends(s, "1d", P, limit))) return 0;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (sends(s, "2d", P, middle) < sends(s, "1d", P, middle)) high = middle;
        else low = middle;
    }
    return high;
}

/* N/D from which 3 (q-1)/P (7 N D + 12 D^2) < 8 N D (P-1)/P: the products alone, by the schemes' formulas. */
static double crossing_by_formula(int q) { return 36 / (8.0 * (q + 1) - 21); }

static void print_crossings(const struct shape *s)
{
    printf("\nFrom which N/D on 2d sends less than 1d: counted, with norms and vectors; by the formulas of their\nmatrices alone, 36 / (8 q - 13)\n\n");
    printf("%4s %9s %9s\n", "P", "counted", "formula");
    for (int q = 2; q * q <= s->devices && q <= s->H; q++) {
        const struct shape small = { .D = s->D, .H = s->H, .S = 16 };
        const int64_t sequences = crossing(&small, q * q, (int64_t)s->D * 4);
        if (sequences) printf("%4d %9.2f %9.2f\n", q * q, (double)(sequences * small.S) / s->D, crossing_by_formula(q));
        else printf("%4d %9s %9.2f\n", q * q, "above 64", crossing_by_formula(q));
    }
}

/* ---- Korthikanti's account ------------------------------------------------------------------------------------------------------- */

static enum error_code print_memory(const struct shape *s, const char *name, int P, const char *recompute, struct error *err)
{
    static struct stand p;
    struct layer_memory_term term[LAYER_MEMORY_TERMS];
    const struct tensor_scheme *scheme;
    double paper = 0, kept = 0;
    const int64_t N = (int64_t)s->B * s->S;
    enum error_code e = tensor_scheme_find(&scheme, name, err);
    if (!e) e = stand_open(&p, s, BF16, scheme, P, err);
    if (e) return e;
    p.plan.recompute = recompute;
    stand_at(&p, 0, N);
    layer_memory(&p.stage, &p.m, 0, term);
    printf("\n--tensor %s --tp %d --recompute %s\n", name, P, recompute);
    for (int i = 0; i < LAYER_MEMORY_TERMS; i++) {
        const double ND = (double)N * s->D;
        paper += term[i].paper / ND, kept += (double)term[i].kept / ND;
        if (term[i].paper > 0 || term[i].kept > 0)
            printf("  %-32s %9.3f %9.3f  %s\n", term[i].what, term[i].paper / ND, (double)term[i].kept / ND, term[i].why ? term[i].why : "");
    }
    printf("  %-32s %9.3f %9.3f\n", "sum", paper, kept);
    device_close(&p.device);
    return OK;
}

static enum error_code print_memories(const struct shape *s, struct error *err)
{
    const int P = s->H < 8 ? s->H : 8;
    printf("\nBytes a layer keeps in 16 bits with dropout, in units of N D: V. Korthikanti et al.,\narXiv:2205.05198, section 4, and ours\n");
    enum error_code e = print_memory(s, "1d", 1, "none", err);
    if (!e) e = print_memory(s, "1d", P, "none", err);
    if (!e) e = print_memory(s, "1d-sp", P, "none", err);
    return e ? e : print_memory(s, "1d-sp", P, "selective", err);
}

enum error_code bench_tensor_topic(int argc, char **argv, int *status, struct error *err)
{
    struct shape s = { .D = 768, .H = 16, .S = 1024, .B = 36, .devices = 16 };
    bool help;
    (void)status;
    const struct option table[] = {
        { "--width", "D", OPTION_INT, &s.D, .min = 1, .max = 65536, .help = "width of the stream" },
        { "--heads", "H", OPTION_INT, &s.H, .min = 1, .max = 1024, .help = "attention heads, a divisor of D" },
        { "--seq", "S", OPTION_INT, &s.S, .min = 1, .max = 1e6, .help = "tokens in a sequence" },
        { "--batch", "B", OPTION_INT, &s.B, .min = 1, .max = 65536, .help = "sequences in a microbatch" },
        { "--devices", "N", OPTION_INT, &s.devices, .min = 1, .max = 128, .help = "tp groups of 1 to N devices" },
        { 0 }
    };
    enum error_code e = options_parse("bench tensor", argc - 3, argv + 3, table, &help, err);
    if (e) return e;
    if (help) {
        print_usage("bench tensor", "[options]", "What each tensor scheme sends and keeps, where 2d overtakes 1d, and the published memory\nof a layer beside ours. Nothing is run: the tests hold these figures to what is counted.", table);
        return OK;
    }
    if (s.D % s.H != 0) return fail(err, ERR_USAGE, "--heads %d: does not divide --width %d", s.H, s.D);
    e = print_schemes(&s, err);
    if (e) return e;
    print_crossings(&s);
    return print_memories(&s, err);
}
