/* A layer that predicts one token more, against SGLang's module around a layer of transformers
 * (golden/predictor.safetensors): all rows at once and in pieces, the next step from its own stream, what files may
 * lack, what is refused.
 * tier: check
 */
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/predictor.h"
#include "ref/model/weights.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#define FILE_NAME "golden/predictor.safetensors"
enum { TOKENS = 9, V = 23, D = 16 };
static struct error err;

/* The shape of make_predictor.py. */
static const struct model_config config = {
    .name = "predictor", .family = &family_deepseek_v3, .S = 2 * TOKENS, .D = D, .H = 2, .K = 2, .A = 10, .F = 6,
    .L = 2, .V = V, .norm = NORM_RMS, .positions = POSITIONS_ROTARY,
    .rotary = { .theta = 10000, .turned = 4, .neighbours = true }, .latent = { .q = 8, .kv = 6, .v = 5 },
    .mlp = MLP_MIXTURE, .dense = { 20, { { 1 } } },
    .mixture = { .E = 6, .k = 2, .shared = 6,
                 .router = { .scores = SCORES_SIGMOID, .normalized = true, .scale = 1.5, .biased = true, .groups = 3,
                             .kept = 2, .sums_two = true, .bias_update = BIAS_BY_SIGN } },
    .eps = 1e-6, .init_std = 0.02,
};

struct opened { struct weights file; struct predictor predictor; };

/* Before the module is read, a tensor of the file gets another name. */
static void open_file(struct opened *o, const char *name, const char *other)
{
    if (weights_open_file(&o->file, FILE_NAME, &err) != OK) fail_msg("%s", err.text);
    struct safetensors *const file = &o->file.file[0];
    for (int i = 0; i < file->count && name; i++)
        if (strcmp(file->entry[i].name, name) == 0) file->entry[i].name = other, name = NULL;
    assert_null(name);
    assert_int_equal(predictor_open(&o->predictor, &config, F64, 1, &err), OK);
}

static void close_all(struct opened *o) { predictor_close(&o->predictor), weights_close(&o->file); }

static void take(const struct weights *file, const char *name, enum dtype dtype, int64_t count, void *to)
{
    const struct safetensors_entry *const e = safetensors_find(&file->file[0], name);
    if (e == NULL) fail_msg("the golden file has no %s", name);
    assert_int_equal(e->count, count);
    if (safetensors_read(&file->file[0], e, dtype, to, &err) != OK) fail_msg("%s", err.text);
}

/* Rows [first, first + rows of t) of a tensor of the file. */
static void check_rows(const struct weights *file, const char *name, int64_t rows, int64_t first, struct tensor t)
{
    double want[TOKENS * V], off = 0, size = 0;
    const int64_t cols = tensor_cols(t);
    take(file, name, F64, rows * cols, want);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        off = fmax(off, fabs(tensor_get(t, i) - want[first * cols + i]));
        size = fmax(size, fabs(want[first * cols + i]));
    }
    if (!(off <= 1e-12 * size && size > 0.01)) fail_msg("%s: off by %.3g, of %.3g", name, off, size);
}

/* The stream of the model itself, behind its norm, is what the module reads. */
static void test_the_models_stream(void **state)
{
    struct opened o;
    struct transformer model;
    int32_t ids[TOKENS];
    double loss, room[TOKENS * D];
    const struct tensor H = tensor_2d(room, F64, TOKENS, D);
    (void)state;
    open_file(&o, NULL, NULL);
    assert_int_equal(transformer_open(&model, &config, F64, 1, &err), OK);
    if (weights_read(&model, &o.file, &err) != OK) fail_msg("%s", err.text);
    if (predictor_read(&o.predictor, &o.file, &err) != OK) fail_msg("%s", err.text);
    take(&o.file, "ids", I32, TOKENS, ids);
    assert_int_equal(transformer_forward(&model, ids, ids, 1, TOKENS, &loss, &err), OK);
    check_rows(&o.file, "logits", TOKENS, 0, model.logits);
    check_rows(&o.file, "hidden", TOKENS, 0, model.lnf);
    memcpy(room, model.last.data, sizeof room);
    assert_int_equal(predictor_norm(&o.predictor, H, H, &err), OK);
    check_rows(&o.file, "hidden", TOKENS, 0, H);
    transformer_close(&model), close_all(&o);
}

/* Rows in pieces, then one of the module's own stream. */
static void check_steps(struct opened *o, int64_t piece)
{
    struct predictor *const p = &o->predictor;
    const int64_t rows = TOKENS - 1;
    int32_t ids[TOKENS], further;
    double room[TOKENS * D];
    struct tensor H = tensor_2d(room, F64, TOKENS, D);
    struct past past;
    take(&o->file, "ids", I32, TOKENS, ids), take(&o->file, "hidden", F64, TOKENS * D, room);
    take(&o->file, "further/token", I32, 1, &further);
    assert_int_equal(past_open(&past, &p->block, 2 * TOKENS, &err), OK);
    for (int64_t first = 0; first < rows; first += piece) {
        const int64_t n = first + piece < rows ? piece : rows - first;
        const enum error_code e = predictor_continue(p, &past, tensor_rows_of(H, first, n), ids + 1 + first, n, &err);
        if (e) fail_msg("%s", err.text);
        check_rows(&o->file, "next/logits", rows, first, p->block.logits);
        check_rows(&o->file, "next/hidden", rows, first, p->block.lnf);
    }
    H = tensor_rows_of(p->block.lnf, tensor_rows(p->block.lnf) - 1, 1);
    assert_int_equal(predictor_continue(p, &past, H, &further, 1, &err), OK);
    check_rows(&o->file, "further/logits", 1, 0, p->block.logits);
    further = V;
    assert_int_equal(predictor_continue(p, &past, H, &further, 1, &err), ERR_USAGE);
    past_close(&past);
}

/* Embedding and head may be the model's alone. */
static void test_its_rows(void **state)
{
    const char *const copy[] = { NULL, "model.layers.2.embed_tokens.weight", "model.layers.2.shared_head.head.weight" };
    const char *const gone[] = { NULL, "model.layers.2.embed_tokens.weighu", "model.layers.2.shared_head.head.weighu" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct opened o;
        open_file(&o, copy[i], gone[i]);
        if (predictor_read(&o.predictor, &o.file, &err) != OK) fail_msg("%s", err.text);
        for (int64_t piece = i ? 8 : 1; piece <= 8; piece *= 2) check_steps(&o, piece);
        close_all(&o);
    }
}

static void test_what_is_refused(void **state)
{
    struct opened o;
    (void)state;
    open_file(&o, "model.layers.2.enorm.weight", "model.layers.2.enorm.weighu");
    assert_int_equal(predictor_read(&o.predictor, &o.file, &err), ERR_FORMAT);
    if (!strstr(err.text, "there is no tensor model.layers.2.enorm.weight")) fail_msg("%s", err.text);
    close_all(&o);
    open_file(&o, "model.layers.2.shared_head.norm.weight", "model.layers.3.eh_proj.weight");
    assert_int_equal(predictor_read(&o.predictor, &o.file, &err), ERR_FORMAT);
    if (!strstr(err.text, "there is a second layer that predicts")) fail_msg("%s", err.text);
    close_all(&o);
}

/* A drawn module has the embedding and the head of a model with its seed, and a block of its own. */
static void test_drawn_weights(void **state)
{
    struct opened o;
    struct transformer model;
    (void)state;
    open_file(&o, NULL, NULL);
    assert_int_equal(transformer_open(&model, &config, F64, 1, &err), OK);
    const struct transformer *const block = &o.predictor.block;
    const int head = param_head(&block->config), there = param_head(&config), i = param_of_block(&block->config, 0,
                                                                                                 PROJ_W);
    assert_memory_equal(block->w[PARAM_WTE].data, model.w[PARAM_WTE].data, tensor_bytes(model.w[PARAM_WTE]));
    assert_memory_equal(block->w[head].data, model.w[there].data, tensor_bytes(model.w[there]));
    assert_string_equal(block->spec[i].part[0].name, "model.layers.2.self_attn.o_proj.weight");
    assert_memory_not_equal(block->w[i].data, model.w[param_of_block(&config, 1, PROJ_W)].data,
                            tensor_bytes(block->w[i]));
    assert_true(predictor_serves(&config));
    transformer_close(&model), close_all(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_models_stream), cmocka_unit_test(test_its_rows),
        cmocka_unit_test(test_what_is_refused), cmocka_unit_test(test_drawn_weights),
    };
    return cmocka_run_group_tests_name("predictor", tests, NULL, NULL);
}
