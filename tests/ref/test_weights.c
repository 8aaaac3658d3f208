/* Folders of weights: written and read back, in one file and in several, and wrong indexes.
 * tier: check
 */
#include "ref/io/json.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/weights.h"
#include "tests/ref/scratch.h"

static const struct model_config llama = { .name = "llama",
                                           .family = &family_llama, .S = 5, .D = 12, .H = 3, .K = 1, .A = 4, .F = 7,
                                           .L = 2, .V = 11, .norm = NORM_RMS, .positions = POSITIONS_ROTARY,
                                           .mlp = MLP_SWIGLU, .rotary = { .theta = 100 }, .eps = 1e-5,
                                           .init_std = 0.3 };

static struct model_config mixtral(void)
{
    struct model_config c = llama;
    c.mixture = (struct mixture_config){ .E = 3, .k = 2, .router = { .normalized = true, .scale = 1 } };
    c.family = &family_mixtral, c.mlp = MLP_MIXTURE, c.tied = true;
    return c;
}

static struct model_config gpt2(void)
{
    return (struct model_config){ .name = "gpt2",
                                  .S = 5, .D = 12, .H = 3, .K = 3, .A = 4, .F = 7, .L = 2, .V = 11,
                                  .family = &family_gpt2, .biases = BIASES_BLOCK, .eps = 1e-5, .init_std = 0.3 };
}

static struct model_config gptj(void)
{
    struct model_config c = gpt2();
    c.positions = POSITIONS_ROTARY, c.rotary = (struct rotary){ .theta = 10000, .turned = 2, .neighbours = true };
    c.family = &family_gptj, c.parallel = true, c.biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD);
    return c;
}

static void open_model(struct transformer *m, struct model_config c, enum dtype t, uint64_t seed)
{
    struct error err;
    if (transformer_open(m, &c, t, seed, &err) != OK) fail_msg("%s", err.text);
}

static void expect_loads(struct transformer *m, const char *dir)
{
    struct error err;
    if (weights_load(m, dir, &err) != OK) fail_msg("%s", err.text);
}

static void expect_same(const struct transformer *a, const struct transformer *b)
{
    for (int i = 0; i < a->params; i++)
        for (int64_t j = 0; j < tensor_count(a->w[i]); j++)
            if (!(tensor_get(a->w[i], j) == tensor_get(b->w[i], j))) fail_msg("%s element %d", a->spec[i].name, (int)j);
}

static void save_model(const struct transformer *m)
{
    struct error err;
    if (weights_save(m, scratch_folder, &err) != OK) fail_msg("%s", err.text);
}

static struct model_config gpt_oss(void)
{
    struct model_config c = mixtral();
    c.family = &family_gpt_oss, c.sinks = true, c.mixture.clamped = (struct clamped){ 1.5, 3 };
    c.biases = BIASES_FEED | HAS_BIAS(ROLE_ROUTER);
    return c;
}

static void what_is_saved_loads(void **state)
{
    (void)state;
    struct model_config qwen2 = llama;
    qwen2.family = &family_qwen2, qwen2.biases = HAS_BIAS(ROLE_QKV);
    struct model_config qwen3 = llama;
    qwen3.family = &family_qwen3, qwen3.head_norms = true, qwen3.A += 2;
    struct model_config biased = llama;
    biased.biases = BIASES_BLOCK;
    struct model_config qwen3_moe = mixtral();
    qwen3_moe.family = &family_qwen3_moe, qwen3_moe.head_norms = true, qwen3_moe.dense.F = 5,
    layer_set_add(&qwen3_moe.dense.at, 0);
    struct model_config gemma = llama;
    gemma.family = &family_gemma, gemma.mlp = MLP_GEGLU, gemma.norms_from_one = gemma.scaled_embedding = true;
    struct model_config olmo2 = qwen3;
    olmo2.family = &family_olmo2, olmo2.normed_together = true, olmo2.norms_at = NORMS_AFTER;
    struct model_config gemma2 = gemma;
    gemma2.family = &family_gemma2, gemma2.norms_at = NORMS_AROUND, gemma2.score_cap = 50;
    gemma2.windows = (struct windows){ 3, { 1 } };
    struct model_config gemma3 = gemma2;
    gemma3.family = &family_gemma3, gemma3.score_cap = 0, gemma3.local_theta = 50, gemma3.head_norms = true;
    struct model_config deepseek = qwen3_moe;
    deepseek.family = &family_deepseek_v2, deepseek.head_norms = false, deepseek.K = deepseek.H, deepseek.A = 6;
    deepseek.latent = (struct latent_config){ 5, 3, 2 };
    deepseek.rotary.turned = 2, deepseek.rotary.neighbours = true, deepseek.mixture.shared = 2 * deepseek.F;
    deepseek.mixture.router = (struct router_rule){ .scale = 1.5 };
    const struct model_config shapes[] = { gpt2(), llama, mixtral(), gptj(), qwen2, qwen3, biased, qwen3_moe, gemma,
                                          olmo2, deepseek, gpt_oss(), gemma2, gemma3 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct transformer a, b, wide;
        struct model_config read;
        open_model(&a, shapes[i], F32, 1), open_model(&b, shapes[i], F32, 2), open_model(&wide, shapes[i], F64, 3);
        save_model(&a);
        expect_loads(&b, scratch_folder), expect_loads(&wide, scratch_folder);
        expect_same(&b, &a), expect_same(&wide, &a);
        assert_int_equal(model_config_read(&read, scratch("config.json"), NULL), OK);
        assert_ptr_equal(read.family, shapes[i].family);
        transformer_close(&a), transformer_close(&b), transformer_close(&wide);
    }
}

/* Any rows and columns of an expert's first matrix, which is an item of a tensor of all experts: halves in turn. */
static void boxes_of_stacked_experts(void **state)
{
    const struct model_config c = gpt_oss();
    struct transformer m;
    struct weights w;
    struct error err;
    (void)state;
    open_model(&m, c, F64, 1);
    save_model(&m);
    if (weights_open(&w, scratch_folder, &err) != OK) fail_msg("%s", err.text);
    const int at = param_of_expert(&c, 0, c.mixture.E - 1, UP_W);
    const int64_t R = 2 * c.F, D = c.D;
    double *const box = malloc((size_t)(R * D) * sizeof *box);
    assert_non_null(box);
    for (int64_t r0 = 0; r0 < R; r0++)
        for (int64_t rows = 0; r0 + rows <= R; rows++) {
            const int64_t start[2] = { r0, r0 % D }, extent[2] = { rows, D - r0 % D };
            if (weights_read_box(&w, &m.spec[at], "", start, extent, F64, box, &err) != OK) fail_msg("%s", err.text);
            for (int64_t i = 0; i < extent[0] * extent[1]; i++)
                assert_true(box[i] == tensor_get(m.w[at], (r0 + i / extent[1]) * D + start[1] + i % extent[1]));
        }
    const struct safetensors_entry *up = safetensors_find(&w.file[0], "model.layers.0.mlp.experts.gate_up_proj");
    assert_true(up && up->ndim == 3 && up->dim[0] == c.mixture.E && up->dim[1] == D && up->dim[2] == R);
    free(box);
    weights_close(&w);
    transformer_close(&m);
}

/* Any rows and columns of a fused matrix, across the borders of its parts. */
static void boxes_cross_parts(void **state)
{
    (void)state;
    struct transformer m;
    struct weights w;
    struct error err;
    open_model(&m, llama, F64, 1);
    save_model(&m);
    if (weights_open(&w, scratch_folder, &err) != OK) fail_msg("%s", err.text);
    const int at = param_of_block(&llama, 1, QKV_W);
    double box[20 * 12];
    for (int64_t r0 = 0; r0 < 20; r0++)
        for (int64_t rows = 0; r0 + rows <= 20; rows++) {
            const int64_t start[2] = { r0, r0 % 5 }, extent[2] = { rows, 12 - r0 % 7 - r0 % 5 };
            if (weights_read_box(&w, &m.spec[at], "", start, extent, F64, box, &err) != OK) fail_msg("%s", err.text);
            for (int64_t i = 0; i < extent[0] * extent[1]; i++)
                assert_true(box[i] == tensor_get(m.w[at], (r0 + i / extent[1]) * 12 + start[1] + i % extent[1]));
        }
    weights_close(&w);
    transformer_close(&m);
}

/* ---- several files ----------------------------------------------------------------------------------------------- */

/* The saved model.safetensors dealt out to three files. */
static void deal_out(void)
{
    struct safetensors all;
    struct error err;
    if (safetensors_open(&all, scratch("model.safetensors"), &err) != OK) fail_msg("%s", err.text);
    cJSON *root = cJSON_CreateObject(), *map = cJSON_AddObjectToObject(root, "weight_map");
    for (int f = 0; f < 3; f++) {
        struct safetensors_entry part[64];
        struct safetensors_writer w;
        char name[64];
        int n = 0;
        snprintf(name, sizeof name, "model-%d-of-3.safetensors", f + 1);
        for (int i = f; i < all.count; i += 3) {
            part[n++] = all.entry[i];
            cJSON_AddStringToObject(map, all.entry[i].name, name);
        }
        if (safetensors_create(&w, scratch(name), part, n, NULL, 0, &err) != OK) fail_msg("%s", err.text);
        for (int i = 0; i < n; i++) {
            double data[1000];
            if (safetensors_read(&all, safetensors_find(&all, part[i].name), F64, data, &err) != OK)
                fail_msg("%s", err.text);
            if (safetensors_write(&w, i, data, &err) != OK) fail_msg("%s", err.text);
        }
        if (safetensors_commit(&w, &err) != OK) fail_msg("%s", err.text);
    }
    if (json_write(scratch("model.safetensors.index.json"), root, &err) != OK) fail_msg("%s", err.text);
    cJSON_Delete(root);
    safetensors_close(&all);
    unlink(scratch("model.safetensors"));
}

static void expect_refused(struct transformer *m, enum error_code code, const char *says)
{
    struct error err = { OK, "" };
    const enum error_code e = weights_load(m, scratch_folder, &err);
    if (e != code) fail_msg("code %d, want %d: %s", (int)e, (int)code, err.text);
    assert_says("index", err.text, says);
}

static void several_files_with_an_index(void **state)
{
    (void)state;
    struct transformer a, b;
    size_t n;
    open_model(&a, llama, F64, 1), open_model(&b, llama, F64, 2);
    save_model(&a);
    deal_out();
    expect_loads(&b, scratch_folder);
    expect_same(&b, &a);

    char *index = get_file(scratch("model.safetensors.index.json"), &n), *map = strstr(index, "model-2-of-3");
    assert_non_null(map);
    map[6] = '3';                                       /* the tensor is not in that file */
    put_text(scratch("model.safetensors.index.json"), index);
    expect_refused(&b, ERR_FORMAT, "there is no tensor|in the files of its index");
    map[6] = '9';
    put_text(scratch("model.safetensors.index.json"), index);
    expect_refused(&b, ERR_FILE, "model-9-of-3.safetensors|No such file");
    memcpy(map, "../..", 5);
    put_text(scratch("model.safetensors.index.json"), index);
    expect_refused(&b, ERR_FORMAT, "weight_map|must be in a file of this folder");
    put_text(scratch("model.safetensors.index.json"), "{\"weight_map\": {\"model.norm.weight\": 3}}");
    expect_refused(&b, ERR_FORMAT, "weight_map|model.norm.weight|must be in a file of this folder");
    put_text(scratch("model.safetensors.index.json"),
             "{\"weight_map\": {\"model.norm.weight\": \"model-1-of-3.safetensors\"}}");
    expect_refused(&b, ERR_FORMAT, "there is no tensor model.embed_tokens.weight in the files of its index");
    put_text(scratch("model.safetensors.index.json"), "{\"weight_map\": {}}");
    expect_refused(&b, ERR_FORMAT, "weight_map|names no tensor and no file");
    put_text(scratch("model.safetensors.index.json"), "{}");
    expect_refused(&b, ERR_FORMAT, "weight_map");
    put_text(scratch("model.safetensors.index.json"), "nothing");
    expect_refused(&b, ERR_FORMAT, "index.json");
    unlink(scratch("model.safetensors.index.json"));
    expect_refused(&b, ERR_FORMAT, "there is no model.safetensors; model-1-of-3.safetensors is a part of a model");
    free(index);
    transformer_close(&a), transformer_close(&b);
}

/* A file of a tied model may hold its one matrix twice, but not two matrices:
 * which of them transformers takes depends on its version. */
static void two_matrices_cannot_be_tied(void **state)
{
    (void)state;
    struct transformer both, tied;
    struct model_config c = llama;
    open_model(&both, c, F32, 1);
    c.tied = true;
    open_model(&tied, c, F32, 2);
    const struct tensor embedding = both.w[PARAM_WTE], head = both.w[param_head(&both.config)];
    for (int64_t i = 0; i < tensor_count(head); i++) tensor_set(head, i, tensor_get(embedding, i));
    save_model(&both);
    expect_loads(&tied, scratch_folder);
    assert_true(tensor_get(tied.w[PARAM_WTE], 7) == tensor_get(embedding, 7));
    tensor_set(head, 3 * c.D + 5, 0.25);
    save_model(&both);
    expect_refused(&tied, ERR_FORMAT,
                   "tie_word_embeddings is true, but row 3 of lm_head.weight is not that of model.embed_tokens.weight");
    transformer_close(&both), transformer_close(&tied);
}

/* A GPT-NeoX's output matrix has another name in files, and QKV is one tensor, head by head. */
static void names_in_files_may_differ(void **state)
{
    (void)state;
    struct transformer a, b;
    struct model_config c = gptj();
    struct weights w;
    struct error err;
    c.family = &family_gpt_neox, c.two_norms = true, c.biases = BIASES_BLOCK, c.rotary.neighbours = false;
    c.activation = ACTIVATION_EXACT_GELU;
    open_model(&a, c, F64, 1), open_model(&b, c, F64, 2);
    save_model(&a);
    expect_loads(&b, scratch_folder);
    for (int i = 0; i < a.params; i++) assert_memory_equal(a.w[i].data, b.w[i].data, tensor_bytes(a.w[i]));
    assert_int_equal(weights_open(&w, scratch_folder, &err), OK);
    assert_non_null(safetensors_find(&w.file[0], "embed_out.weight"));
    assert_null(safetensors_find(&w.file[0], "lm_head.weight"));
    assert_non_null(safetensors_find(&w.file[0], "gpt_neox.layers.1.attention.query_key_value.bias"));
    weights_close(&w), transformer_close(&b);
    c.tied = true;
    open_model(&b, c, F64, 2);
    expect_refused(&b, ERR_FORMAT, "but row 0 of embed_out.weight is not that of gpt_neox.embed_in.weight");
    transformer_close(&a), transformer_close(&b);
}

static void another_shape_is_refused(void **state)
{
    (void)state;
    struct transformer a, b;
    struct model_config c = llama;
    c.K = 3;
    open_model(&a, llama, F64, 1), open_model(&b, c, F64, 2);
    save_model(&a);
    expect_refused(&b, ERR_FORMAT, "self_attn.k_proj.weight is 4 x 12; the model needs 12 x 12");
    transformer_close(&a), transformer_close(&b);
}

/* ---- queries, keys and values that lie head by head -------------------------------------------------------------- */

enum { HEADS = 3, HEAD = 2, COLUMNS = 5, QKV = 3 * HEADS * HEAD };

static struct param_spec by_heads(const char *name, int ndim)
{
    struct param_spec s = { .role = ROLE_QKV, .ndim = ndim, .dim = { QKV, ndim == 2 ? COLUMNS : 0 }, .parts = 3 };
    snprintf(s.name, sizeof s.name, "%s", name);
    for (int i = 0; i < 3; i++) {
        s.part[i] = (struct param_part){ .rows = HEADS * HEAD, .rows_apart = 3, .first = i, .together = HEAD };
        snprintf(s.part[i].name, sizeof s.part[i].name, "%s", name);
    }
    return s;
}

/* In the file a head's queries come first, then its keys, then its values, then the next head. */
static void heads_lie_together_in_files(void **state)
{
    (void)state;
    const struct param_spec spec[] = { by_heads("m.weight", 2), by_heads("m.bias", 1) };
    const struct weights_suffix alone = { "", F64 };
    struct weights_writer writer;
    struct weights w;
    struct error err;
    double m[QKV][COLUMNS], b[QKV], lies[QKV][COLUMNS], box[QKV * COLUMNS];
    for (int i = 0; i < QKV; i++)
        for (int j = 0; j < COLUMNS; j++) m[i][j] = 10 * i + j, b[i] = 1000 + i;
    assert_int_equal(weights_create(&writer, spec, 2, scratch("heads"), &alone, 1, NULL, 0, &err), OK);
    assert_int_equal(weights_write(&writer, 0, 0, m, &err), OK);
    assert_int_equal(weights_write(&writer, 1, 0, b, &err), OK);
    assert_int_equal(weights_commit(&writer, &err), OK);
    weights_abort(&writer);
    if (weights_open_file(&w, scratch("heads"), &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(safetensors_find(&w.file[0], "m.weight")->dim[0], QKV);
    assert_int_equal(safetensors_read(&w.file[0], safetensors_find(&w.file[0], "m.weight"), F64, lies, &err), OK);
    for (int h = 0; h < HEADS; h++)
        for (int which = 0; which < 3; which++)
            for (int a = 0; a < HEAD; a++)
                assert_true(lies[(h * 3 + which) * HEAD + a][1] == m[(which * HEADS + h) * HEAD + a][1]);
    for (int64_t first = 0; first < QKV; first++)
        for (int64_t rows = 1; first + rows <= QKV; rows++) {
            const int64_t start[2] = { first, 2 }, extent[2] = { rows, 3 };
            assert_int_equal(weights_read_box(&w, &spec[0], "", start, extent, F64, box, &err), OK);
            for (int64_t k = 0; k < 3 * rows; k++) assert_true(box[k] == m[first + k / 3][2 + k % 3]);
            assert_int_equal(weights_read_box(&w, &spec[1], "", start, extent, F64, box, &err), OK);
            for (int64_t k = 0; k < rows; k++) assert_true(box[k] == b[first + k]);
        }
    weights_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_saved_loads, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(boxes_cross_parts, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(boxes_of_stacked_experts, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(heads_lie_together_in_files, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(several_files_with_an_index, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(two_matrices_cannot_be_tied, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(names_in_files_may_differ, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(another_shape_is_refused, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
