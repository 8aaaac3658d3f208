/* tensor.c -- how many times as fast a layer is with one tensor scheme as with another one, by the cost functions.
 * quantities.c lists the quantities of this file by name; cli/bench/ asks for them.  ERR_USAGE names a mesh that is
 * not known; other errors are those of the predictions. */
#include "emulated_devices/bench/claims/quantity.h"
#include "emulated_devices/bench/schemes/at_memory.h"
#include "emulated_devices/bench/schemes/tensor.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The words of such a claim, and of the command: the cluster and the format. */
struct words {
    const char *scheme, *over, *count, *mesh, *cluster, *dtype;
    int tp, width, heads, sequence, batch;
};

static enum error_code take_words(const struct claim *claim, struct words *words, struct bench_tensor *bench,
                                  struct tensor_shape *shape, struct error *err)
{
    static const char *const counts[] = { "sent", "time", "mean", "most", NULL };
    *words = (struct words){ .count = NULL };
    const struct option table[] = {
        { "--scheme", "NAME", OPTION_STRING, &words->scheme, .required = true, .help = "" },
        { "--over", "NAME", OPTION_STRING, &words->over, .required = true, .help = "" },
        { "--count", "WHAT", OPTION_CHOICE, &words->count, .choices = counts, .required = true, .help = "" },
        { "--mesh", "4x4x4", OPTION_STRING, &words->mesh, .help = "of 2.5d" },
        { "--tp", "N", OPTION_INT, &words->tp, .min = 2, .max = BENCH_TENSOR_DEVICES, .required = true, .help = "" },
        { "--width", "D", OPTION_INT, &words->width, .min = 1, .max = 65536, .required = true, .help = "" },
        { "--heads", "H", OPTION_INT, &words->heads, .min = 1, .max = 1024, .required = true, .help = "" },
        { "--seq", "S", OPTION_INT, &words->sequence, .min = 1, .max = 1e6, .required = true, .help = "" },
        { "--batch", "B", OPTION_INT, &words->batch, .min = 1, .max = 65536, .required = true, .help = "" },
        { "--cluster", "NAME", OPTION_STRING, &words->cluster, .required = true, .help = "" },
        { "--dtype", "NAME", OPTION_STRING, &words->dtype, .required = true, .help = "" },
        { 0 }
    };
    const enum error_code e = claim_take(claim, table, err);
    if (e) return e;
    *shape = (struct tensor_shape){ "", words->width, words->heads, words->sequence, words->batch };
    *bench = (struct bench_tensor){ .shape = *shape, .dtype = dtype_by_name(words->dtype) };
    return cluster_find(&bench->cluster, words->cluster, err);
}

static const char *four_cubed(int P, int mesh[TENSOR_AXES])
{
    mesh[0] = mesh[1] = mesh[2] = 4;
    return P == 64 ? NULL : "64";
}

static enum error_code take_scheme(struct tensor_scheme *scheme, const char *name, const char *mesh, struct error *err)
{
    const struct tensor_scheme *found;
    const enum error_code e = tensor_scheme_find(&found, name, err);
    if (e) return e;
    *scheme = *found;
    if (mesh && strcmp(mesh, "4x4x4") != 0) return fail(err, ERR_USAGE, "--mesh %s: only 4x4x4 is known", mesh);
    if (mesh) scheme->mesh = four_cubed;
    return OK;
}

enum error_code quantity_tensor_speedup(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    struct bench_tensor bench;
    struct tensor_shape shape;
    struct tensor_scheme fast, slow;
    struct words words;
    (void)setting;
    enum error_code e = take_words(claim, &words, &bench, &shape, err);
    if (!e) e = take_scheme(&fast, words.scheme, words.mesh, err);
    if (!e) e = take_scheme(&slow, words.over, NULL, err);
    if (e) return e;
    const bool sent = strcmp(words.count, "sent") == 0;
    claim->ours = sent ? tensor_needs(&bench, &shape, &slow, words.tp, TENSOR_SENT) /
                         tensor_needs(&bench, &shape, &fast, words.tp, TENSOR_SENT)
                       : tensor_layer_time(&bench, &shape, &slow, words.tp) /
                         tensor_layer_time(&bench, &shape, &fast, words.tp);
    return OK;
}

/* The four products of a layer that end in a sum: forward in attention and in the feed-forward, and backward for the
 * inputs of QKV and up.  @param most  of them; else their geometric mean. */
static double gain_of_layer(const struct bench_tensor *bench, struct stand *stand, bool most)
{
    enum { SUMS = 4 };
    const int64_t D = bench->shape.D, P = stand->P;
    const int64_t widths[SUMS] = { D / P, 4 * D / P, 3 * D / P, 4 * D / P };
    double product = 1, largest = 0;
    for (int i = 0; i < SUMS; i++) {
        const double gain = tensor_overlap_gain(bench, stand, widths[i]);
        product *= gain;
        largest = fmax(largest, gain);
    }
    return most ? largest : pow(product, 1.0 / SUMS);
}

enum error_code quantity_overlap_speedup(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    static struct stand stand;
    struct bench_tensor bench;
    struct tensor_shape shape;
    struct words words;
    const struct tensor_scheme *scheme;
    (void)setting;
    enum error_code e = take_words(claim, &words, &bench, &shape, err);
    if (!e) e = tensor_scheme_find(&scheme, words.scheme, err);
    if (!e) e = stand_open(&stand, &shape, bench.dtype, scheme, words.tp, err);
    if (e) return e;
    clock_open(&stand.device.clock, &bench.cluster, bench.dtype);
    e = stand_at(&stand, 0, shape_tokens(&shape), err);
    if (!e) claim->ours = gain_of_layer(&bench, &stand, strcmp(words.count, "most") == 0);
    stand_close(&stand);
    return e;
}

/* Devices have a part of the depth each; the products are those of gain_of_layer. */
enum error_code quantity_memory_saved(struct claim *claim, const struct claims_setting *setting, struct error *err)
{
    enum { SUMS = 4 };
    static const char *const counts[] = { "mean", "most", NULL };
    static const int widths[SUMS] = { 1, 4, 3, 4 };     /* in units of D: attention, down, backward of QKV and of up */
    const char *count = NULL, *cluster = NULL, *dtype = NULL;
    int tp = 0, width = 0, sequence = 0, batch = 0;
    const struct option table[] = {
        { "--count", "WHAT", OPTION_CHOICE, &count, .choices = counts, .required = true, .help = "" },
        { "--tp", "N", OPTION_INT, &tp, .min = 2, .max = AT_MEMORY_DEVICES, .required = true, .help = "" },
        { "--width", "D", OPTION_INT, &width, .min = 1, .max = 65536, .required = true, .help = "" },
        { "--seq", "S", OPTION_INT, &sequence, .min = 1, .max = 1e6, .required = true, .help = "" },
        { "--batch", "B", OPTION_INT, &batch, .min = 1, .max = 65536, .required = true, .help = "" },
        { "--cluster", "NAME", OPTION_STRING, &cluster, .help = "of the command; nothing depends on it" },
        { "--dtype", "NAME", OPTION_STRING, &dtype, .help = "likewise" },
        { 0 }
    };
    (void)setting;
    const enum error_code e = claim_take(claim, table, err);
    double product = 1, largest = 0;
    for (int i = 0; i < SUMS && !e; i++) {
        const struct at_memory sizes = { tp, (int64_t)sequence * batch, (int64_t)widths[i] * width / tp, width };
        const double saved = at_memory_saved(&sizes);
        product *= saved, largest = fmax(largest, saved);
    }
    claim->ours = count && strcmp(count, "most") == 0 ? largest : pow(product, 1.0 / SUMS);
    return e;
}
