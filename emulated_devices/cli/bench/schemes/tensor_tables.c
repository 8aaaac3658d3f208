/* tensor_tables.c -- tables: from which size one tensor scheme needs less than another, by the cost functions and by
 * the papers' formulas; published speed-ups; and Korthikanti's formula of a layer's memory.  tensor.c calls these
 * functions.  ERR_PLAN says why a scheme does not fit; ERR_FORMAT names the line of a file of claims; ERR_MEMORY. */
#include "emulated_devices/cli/bench/claims_table.h"
#include "emulated_devices/cli/bench/schemes/tensor_tables.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- with how many tokens ---------------------------------------------------------------------------------------- */

struct ratio_text { char text[16]; };

static struct ratio_text ratio_text(double x)
{
    struct ratio_text t;
    if (isnan(x)) snprintf(t.text, sizeof t.text, "above %d", TENSOR_MOST_RATIO);
    else snprintf(t.text, sizeof t.text, "%.2f", x);
    return t;
}

static void print_crossings(const struct bench_tensor *tensor)
{
    static const char *const names[] = { "2d", "2.5d", "3d" };
    static const int sizes[] = { 4, 8, 9, 16, 18, 27, 32, 64 };
    say(stdout, 0,
        "\nThe N/D above which a scheme needs less than 1d, at D=%lld in %s: what devices send on average, by\n"
           "the cost functions and by the formulas of the matrices alone; time of the transfers on\n%s\n",
           (long long)tensor->shape.D, dtype_name(tensor->dtype), tensor->cluster.name);
    struct table t = table_start(NULL, 2, "P\tscheme\tmesh\tsent\tformula\ttime");
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const struct tensor_scheme *s = tensor_named(names[i]);
            const struct model_config model = shape_model(&tensor->shape);
            int mesh[TENSOR_AXES];
            char shape[40];
            if (tensor_check(s, &model, sizes[n], NULL) != OK ||
                tensor_check(tensor_named("1d"), &model, sizes[n], NULL) != OK)
                continue;
            s->mesh(sizes[n], mesh);
            if (i == 1 && mesh[0] == 1) continue;                               /* is 2d */
            snprintf(shape, sizeof shape, "%dx%dx%d", mesh[0], mesh[1], mesh[2]);
            table_row(&t, "%d\t%s\t%s\t%s\t%s\t%s", sizes[n], names[i], shape + (mesh[0] == 1 ? 2 : 0),
                   ratio_text(tensor_crossing(tensor, s, sizes[n], TENSOR_SENT)).text,
                   ratio_text(tensor_crossing_by_formula(names[i], mesh, sizes[n])).text,
                   ratio_text(tensor_crossing(tensor, s, sizes[n], TENSOR_TIME)).text);
        }
    table_end(&t);
}

/* ---- with how many devices --------------------------------------------------------------------------------------- */

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
    say(stdout, 0,
        "\nFewest devices, up to %d, with which a scheme sends less than 1d (sent), and has shorter transfers\n"
        "on %s (time)\n", BENCH_TENSOR_DEVICES, tensor->cluster.name);
    struct table t = table_start(NULL, 1, "shape\tD\tS\tH\tB\t2d sent\ttime\t2.5d sent\ttime\t3d sent\ttime");
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        char numbers[120];
        int used = 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            used += snprintf(numbers + used, sizeof numbers - (size_t)used, "\t%s\t%s",
                             fewest_text(tensor_fewest(tensor, &shapes[n], tensor_named(names[i]), TENSOR_SENT)).text,
                             fewest_text(tensor_fewest(tensor, &shapes[n], tensor_named(names[i]), TENSOR_TIME)).text);
        table_row(&t, "%s\t%lld\t%lld\t%lld\t%lld%s", shapes[n].name, (long long)shapes[n].D, (long long)shapes[n].S,
                  (long long)shapes[n].H, (long long)shapes[n].B, numbers);
    }
    table_end(&t);
}

/* ---- what papers measured ---------------------------------------------------------------------------------------- */

static enum error_code print_published(const struct bench_tensor *tensor, struct error *err)
{
    const struct claims_setting setting = {
        .word = { "--cluster", tensor->cluster.name, "--dtype", dtype_name(tensor->dtype) }, .words = 4,
    };
    printf("\n");
    enum error_code e = claims_show("tensor-speedups", &setting, err);
    if (!e) e = claims_show("tensor-overlap", &setting, err);
    return e ? e : claims_show("tensor-memory", &setting, err);
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
    say(stdout, 0, "\nElements that each of %d devices sends, in units of N D: claimed, and by the cost functions, "
        "with the\nnorms' gradients\n", P);
    struct table t = table_start(NULL, 2, "source\tscheme\tclaim\tclaimed\tours");
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
        table_row(&t, "%s\t%s\t%s\t%.4f\t%.4f", claims[i].source, claims[i].scheme, claims[i].claim,
               claims[i].elements, tensor_needs(tensor, &tensor->shape, tensor_named(claims[i].scheme), P,
                                                TENSOR_SENT) / ND);
    table_end(&t);
}

enum error_code print_claims(const struct bench_tensor *tensor, struct error *err)
{
    const struct model_config model = shape_model(&tensor->shape);
    const enum error_code e = tensor_check(tensor_named("1d"), &model, 1, err);
    if (e) return e;
    print_derived(tensor);
    if (cluster_check(&tensor->cluster, BENCH_TENSOR_DEVICES, tensor->dtype, NULL) != OK)
        say(stdout, 0, "\nBelow, devices beyond those that %s has are taken to be on its last link.",
                tensor->cluster.name);
    print_crossings(tensor);
    print_shapes(tensor);
    return print_published(tensor, err);
}

/* ---- Korthikanti's account --------------------------------------------------------------------------------------- */

static enum error_code print_memory(const struct tensor_shape *shape, const char *name, int P, const char *recompute,
                                    struct error *err)
{
    static struct stand p;
    struct layer_memory_term term[LAYER_MEMORY_TERMS];
    double paper = 0, kept = 0;
    const int64_t N = shape_tokens(shape);
    enum error_code e = stand_open(&p, shape, BF16, tensor_named(name), P, err);
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
    say(stdout, 0, "\nBytes a layer keeps in 16 bits with dropout, in units of N D: V. Korthikanti et al.,\n"
        "arXiv:2205.05198, section 4, and ours");
    enum error_code e = print_memory(shape, "1d", 1, "none", err);
    if (!e) e = print_memory(shape, "1d", P, "none", err);
    if (!e) e = print_memory(shape, "1d-sp", P, "none", err);
    return e ? e : print_memory(shape, "1d-sp", P, "selective", err);
}
