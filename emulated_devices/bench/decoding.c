/* decoding.c -- times of decoding.  cli/bench/decoding.c prints.  Errors: ERR_MEMORY, ERR_FILE, and those of a run. */
#include "emulated_devices/bench/decoding.h"
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/serve/requests.h"
#include "ref/machine/measure.h"
#include "ref/numeric/convert.h"
#include "ref/ops/ops.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The matrices of some layers of GPT-2's feed-forward part. */
enum { DECODING_OUT = 3072, DECODING_IN = 768, DECODING_MATRICES = 8 };

struct decoding_tensors { struct tensor X, W, Y, copied, wide_X, wide_W, wide_Y; };

static struct tensor decoding_matrix(enum dtype dtype, int64_t rows, int64_t cols, bool *ok)
{
    const struct tensor t = tensor_2d(calloc((size_t)(rows * cols), dtype_size(dtype)), dtype, rows, cols);
    *ok = *ok && t.data != NULL;
    return t;
}

static void decoding_in_place(const struct decoding_tensors *t)
{
    const struct ops *const ops = ops_for(t->Y.dtype);
    for (int m = 0; m < DECODING_MATRICES; m++)
        ops->linear_forward(t->Y, t->X, tensor_rows_of(t->W, m * DECODING_OUT, DECODING_OUT), tensor_none);
}

static void decoding_copied(const struct decoding_tensors *t)
{
    for (int m = 0; m < DECODING_MATRICES; m++) {
        tensor_convert(t->wide_X, t->X);
        tensor_convert(t->wide_W, tensor_rows_of(t->W, m * DECODING_OUT, DECODING_OUT));
        ops_for(F32)->linear_forward(t->wide_Y, t->wide_X, t->wide_W, tensor_none);
        tensor_convert(t->copied, t->wide_Y);
    }
}

static double decoding_seconds(void (*product)(const struct decoding_tensors *), const struct decoding_tensors *t)
{
    const double began = measure_processor();
    product(t);
    return (measure_processor() - began) / DECODING_MATRICES;
}

static void decoding_fill(struct tensor t)
{
    for (int64_t i = 0; i < tensor_count(t); i++) tensor_set(t, i, (double)(i * 7919 % 1013 - 506) / 512);
}

static void decoding_rounds(struct decoding_product *product, const struct decoding_tensors *t, int rounds)
{
    double in_place[DECODING_ROUNDS], copied[DECODING_ROUNDS], ratio[DECODING_ROUNDS];
    decoding_fill(t->X), decoding_fill(t->W);
    decoding_in_place(t), decoding_copied(t);           /* both warm up */
    product->same = memcmp(t->Y.data, t->copied.data, tensor_bytes(t->Y)) == 0;
    for (int i = 0; i < rounds; i++) {
        in_place[i] = decoding_seconds(decoding_in_place, t);
        copied[i] = decoding_seconds(decoding_copied, t);
        ratio[i] = in_place[i] / copied[i];
    }
    product->in_place = measure_median(in_place, rounds), product->copied = measure_median(copied, rounds);
    product->ratio = measure_median(ratio, rounds);
}

enum error_code decoding_product(struct decoding_product *product, int rounds, struct error *err)
{
    bool ok = true;
    const int64_t N = product->rows, O = DECODING_OUT, I = DECODING_IN;
    const enum dtype f = product->format;
    const struct decoding_tensors t = {
        decoding_matrix(f, N, I, &ok), decoding_matrix(f, O * DECODING_MATRICES, I, &ok),
        decoding_matrix(f, N, O, &ok), decoding_matrix(f, N, O, &ok),
        decoding_matrix(F32, N, I, &ok), decoding_matrix(F32, O, I, &ok), decoding_matrix(F32, N, O, &ok) };
    if (ok) decoding_rounds(product, &t, rounds);
    free(t.X.data), free(t.W.data), free(t.Y.data), free(t.copied.data);
    free(t.wide_X.data), free(t.wide_W.data), free(t.wide_Y.data);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to measure products");
}

/* ---- runs of `orrery serve` -------------------------------------------------------------------------------------- */

/* Each mesh answers twice, with few and with many tokens: the difference is that of the iterations between. */
enum { DECODING_PROMPT = 4, DECODING_FEW = 2, DECODING_MANY = 12 };

static enum error_code decoding_write(const char *path, int count, int tokens, struct error *err)
{
    int32_t prompt[DECODING_PROMPT];
    struct request *const at = calloc((size_t)count, sizeof *at);
    char (*const name)[12] = calloc((size_t)count, sizeof *name);
    enum error_code e = at && name ? OK : fail(err, ERR_MEMORY, "no memory for %d requests", count);
    for (int i = 0; i < DECODING_PROMPT; i++) prompt[i] = 3 * i;
    for (int i = 0; i < count && !e; i++) {
        snprintf(name[i], sizeof name[i], "%d", i);
        at[i] = (struct request){ .name = name[i], .prompt = { prompt, DECODING_PROMPT, DECODING_PROMPT },
                                  .most = tokens, .how = { .top_p = 1 } };
    }
    const struct requests requests = { at, count };
    if (!e) e = requests_write(&requests, path, err);
    free(at), free(name);
    return e;
}

/* Processor seconds of all processes that have ended and were waited for. */
static double decoding_ended(void)
{
    struct rusage use;
    getrusage(RUSAGE_CHILDREN, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* @param[out] seconds  of processors, and of the clock. */
static enum error_code decoding_answer(const struct decoding_runs *runs, const struct decoding_mesh *mesh,
                                       const char *path, int tokens, double seconds[2], struct error *err)
{
    char words[3][16], blocks[16];
    const int number[] = { mesh->dp, mesh->tp, mesh->pp };
    const int count = mesh->each ? runs->requests * mesh->dp : runs->requests;
    for (int i = 0; i < 3; i++) snprintf(words[i], sizeof words[i], "%d", number[i]);
    snprintf(blocks, sizeof blocks, "%d", 2 * runs->requests);
    enum error_code e = decoding_write(path, count, tokens, err);
    if (e) return e;
    const char *const call[] = { runs->program, "serve", "--model", runs->model, "--dtype", runs->dtype,
                                 "--trace", path, "--seq", "32", "--cache-blocks", blocks, "--share-prefixes", "no",
                                 "--threads", "1", "--dp", words[0], "--tp", words[1], "--pp", words[2], NULL };
    const double used = decoding_ended(), began = measure_now();
    e = run_aside(call, runs->limit, err);
    seconds[0] = decoding_ended() - used, seconds[1] = measure_now() - began;
    return e;
}

enum error_code decoding_run(const struct decoding_runs *runs, struct error *err)
{
    const char *const path = temporary_file(err);
    enum error_code e = path ? OK : err->code;
    for (int round = 0; round < runs->rounds; round++)
        for (int i = 0; i < runs->meshes && !e; i++) {
            struct decoding_mesh *const mesh = &runs->mesh[i];
            double few[2], many[2];
            e = decoding_answer(runs, mesh, path, DECODING_FEW, few, err);
            if (!e) e = decoding_answer(runs, mesh, path, DECODING_MANY, many, err);
            if (e) break;
            mesh->processor[round] = (many[0] - few[0]) / (DECODING_MANY - DECODING_FEW);
            mesh->clock[round] = (many[1] - few[1]) / (DECODING_MANY - DECODING_FEW);
        }
    return e;
}
