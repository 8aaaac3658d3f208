/* Packed integers of GPTQ and AWQ: words of their released programs (golden/make_packed.py) as numbers, bit for bit, in
 * boxes that begin anywhere; published words; a whole model; and what is refused. */
#include "ref/io/json.h"
#include "ref/model/weights.h"
#include "tests/ref/scratch.h"

static const char FILE_NAME[] = "golden/packed.safetensors";

static struct param_spec matrix(const char *name, int64_t rows, int64_t cols)
{
    struct param_spec s = { .ndim = 2, .dim = { rows, cols }, .parts = 1 };
    snprintf(s.name, sizeof s.name, "%s.weight", name);
    s.part[0] = (struct param_part){ .rows = rows, .rows_apart = 1 };
    snprintf(s.part[0].name, sizeof s.part[0].name, "%s.weight", name);
    return s;
}

static const struct { const char *name; int64_t N, K; struct packed_form form; } cases[] = {
    { "gptq2", 64, 96, { PACKED_GPTQ, 2, 32, true, false } }, { "gptq3", 64, 96, { PACKED_GPTQ, 3, 32, true, false } },
    { "gptq4", 64, 96, { PACKED_GPTQ, 4, 32, true, false } }, { "gptq8", 64, 96, { PACKED_GPTQ, 8, 32, true, false } },
    { "order", 32, 64, { PACKED_GPTQ, 4, 16, true, false } }, { "v2", 32, 64, { PACKED_GPTQ, 4, 0, false, false } },
    { "awq", 40, 96, { PACKED_AWQ, 4, 32, false, false } },
};

/* Boxes: all; the end; a part that begins and ends inside words. */
static void boxes_are_the_numbers(void **state)
{
    struct weights w;
    struct error err;
    (void)state;
    if (weights_open_file(&w, FILE_NAME, &err) != OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t N = cases[i].N, K = cases[i].K,
                      box[4][4] = { { 0, 0, N, K }, { N - 5, 3, 5, K - 3 }, { 7, 9, 12, 26 }, { 13, 31, 1, 2 } };
        const struct param_spec s = matrix(cases[i].name, N, K);
        const size_t bytes = (size_t)(N * K) * sizeof(float);
        float *const want = malloc(bytes), *const have = malloc(bytes);
        char name[32];
        w.packed = cases[i].form;
        assert_true(want && have);
        snprintf(name, sizeof name, "want/%s", cases[i].name);
        assert_int_equal(safetensors_read(&w.file[0], safetensors_find(&w.file[0], name), F32, want, &err), OK);
        for (int b = 0; b < 4; b++) {
            const int64_t *at = box[b];
            if (weights_read_box(&w, &s, "", at, at + 2, F32, have, &err) != OK) fail_msg("%s", err.text);
            for (int64_t k = 0; k < at[2] * at[3]; k++) {
                const int64_t r = at[0] + k / at[3], c = at[1] + k % at[3];
                if (have[k] != want[r * K + c])
                    fail_msg("%s, row %lld, column %lld: %.9g, not %.9g", cases[i].name, (long long)r, (long long)c,
                             have[k], want[r * K + c]);
            }
        }
        free(want), free(have);
    }
    weights_close(&w);
}

/* A matrix of 8 outputs and 8 inputs with these words everywhere. */
static void make_file(const char *path, uint32_t q, uint32_t zeros, bool awq, bool scales)
{
    struct safetensors_entry tensors[] = {
        { .name = "m.qweight", .dtype = "I32", .ndim = 2, .dim = { awq ? 8 : 1, awq ? 1 : 8 } },
        { .name = "m.qzeros", .dtype = "I32", .ndim = 2, .dim = { 1, 1 } },
        { .name = "m.scales", .dtype = "F32", .ndim = 2, .dim = { 1, 8 } },
    };
    struct safetensors_writer writer;
    struct error err;
    uint32_t words[8];
    float ones[8];
    for (int i = 0; i < 8; i++) words[i] = q, ones[i] = 1;
    assert_int_equal(safetensors_create(&writer, path, tensors, scales ? 3 : 2, NULL, 0, &err), OK);
    assert_int_equal(safetensors_write(&writer, 0, words, &err), OK);
    assert_int_equal(safetensors_write(&writer, 1, &zeros, &err), OK);
    if (scales) assert_int_equal(safetensors_write(&writer, 2, ones, &err), OK);
    assert_int_equal(safetensors_commit(&writer, &err), OK);
}

static enum error_code read_file(const char *path, struct packed_form form, float out[64], struct error *err)
{
    const int64_t start[2] = { 0, 0 }, extent[2] = { 8, 8 };
    const struct param_spec s = matrix("m", 8, 8);
    struct weights w;
    assert_int_equal(weights_open_file(&w, path, err), OK);
    w.packed = form;
    const enum error_code e = weights_read_box(&w, &s, "", start, extent, F32, out, err);
    weights_close(&w);
    return e;
}

/* 0 to 7 down a column of GPTQ are 0x76543210; along a row of AWQ they are 0x75316420.  Format "gptq" stores 8 as zero
 * point as 7. */
static void known_words(void **state)
{
    float out[64];
    struct error err;
    (void)state;
    make_file(scratch("gptq"), 0x76543210, 0x77777777, false, true);
    assert_int_equal(read_file(scratch("gptq"), (struct packed_form){ PACKED_GPTQ, 4, 8, true, true }, out, &err), OK);
    for (int i = 0; i < 64; i++) assert_true(out[i] == (float)(i % 8 - 8));
    make_file(scratch("awq"), 0x75316420, 0x88888888, true, true);
    assert_int_equal(read_file(scratch("awq"), (struct packed_form){ PACKED_AWQ, 4, 8, false, false }, out, &err), OK);
    for (int i = 0; i < 64; i++) assert_true(out[i] == (float)(i / 8 - 8));
}

static void expect_refused(const char *path, struct packed_form form, const char *words)
{
    float out[64];
    struct error err;
    if (read_file(path, form, out, &err) != ERR_FORMAT || strstr(err.text, words) == NULL)
        fail_msg("%s\n  should have: %s", err.text, words);
}

static void wrong_files_are_refused(void **state)
{
    (void)state;
    const struct packed_form form = { PACKED_GPTQ, 4, 8, true, true };
    make_file(scratch("v2"), 0, 0x88888888, false, true);
    expect_refused(scratch("v2"), form, "a zero point is 9; the config says sym, so that all are 8: is checkpoint_");
    make_file(scratch("unscaled"), 0, 0x77777777, false, false);
    expect_refused(scratch("unscaled"), form, "m.qweight is there, but not its scales");
    make_file(scratch("shape"), 0, 0x77777777, false, true);
    expect_refused(scratch("shape"), (struct packed_form){ PACKED_GPTQ, 8, 8, true, true }, "m.qweight must be 2 x 8");
    expect_refused(scratch("shape"), (struct packed_form){ PACKED_GPTQ, 4, 4, true, true }, "m.qzeros must be 2 x 1");
    expect_refused(scratch("shape"), (struct packed_form){ PACKED_GPTQ, 3, 8, true, true }, "do not fill words");
    expect_refused(scratch("shape"), (struct packed_form){ PACKED_AWQ, 4, 8, false, false }, "m.qweight must be 8 x 1");
    expect_refused(scratch("shape"), (struct packed_form){ PACKED_NONE, 0, 0, false, false }, "there is no tensor");
}

static void configs_are_read_or_refused(void **state)
{
    static const struct { const char *config, *why; } of[] = {
        { "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":-1}", NULL },
        { "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"version\":\"gemm\"}", NULL },
        { "{\"quant_method\":\"gptq\",\"bits\":5}", "bits 5" },
        { "{\"quant_method\":\"awq\",\"bits\":3}", "bits 3" },
        { "{\"quant_method\":\"gptq\",\"group_size\":0}", "group_size 0" },
        { "{\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"}", "checkpoint_format \"marlin\"" },
        { "{\"quant_method\":\"gptq\",\"is_marlin_format\":true}", "checkpoint_format \"marlin\"" },
        { "{\"quant_method\":\"gptq\",\"dynamic\":{\"x\":{}}}", "dynamic, settings by layer" },
        { "{\"quant_method\":\"awq\",\"version\":\"gemv\"}", "version \"gemv\"" },
        { "{\"quant_method\":\"mxfp4\"}", "" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        cJSON *const root = cJSON_Parse(of[i].config);
        struct packed_form form;
        char why[60];
        const bool reads = packed_form_of(root, &form, why, sizeof why);
        if (reads != (of[i].why == NULL) || strcmp(why, of[i].why ? of[i].why : "") != 0)
            fail_msg("%s: \"%s\"", of[i].config, why);
        cJSON_Delete(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_are_the_numbers), cmocka_unit_test(known_words),
        cmocka_unit_test(wrong_files_are_refused), cmocka_unit_test(configs_are_read_or_refused),
    };
    return cmocka_run_group_tests_name("weights_packed", tests, NULL, NULL);
}
