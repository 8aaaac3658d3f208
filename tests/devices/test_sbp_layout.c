/* Layouts of tensor parallelism as text: what is read, what is written, what is refused and in which words.
 * tier: check
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "ref/model/config.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct error err;
static const char stream[] = "stream S(0)\n", rest[] =
    "embedding S(0)\nqkv S(0)\nheads S(1)\nproj S(1)\nfc S(0)\nhidden S(1)\nfc2 S(1)\nhead S(0)\nlogits S(1)\n";

static enum error_code parse(struct sbp_layout *l, const char *first, const char *then)
{
    char text[1024];
    assert_true(snprintf(text, sizeof text, "%s%s", first, then) < (int)sizeof text);
    return sbp_layout_parse(l, text, "f", &err);
}

static void test_what_follows(void **state)
{
    struct sbp_layout l;
    (void)state;
    assert_int_equal(parse(&l, stream, rest), OK);
    assert_true(sbp_equal(l.of[SBP_INPUTS], (struct sbp)ON_S(0)) && sbp_equal(l.of[SBP_NORMS], (struct sbp)ON_B));
    const struct tensor_scheme s = sbp_scheme_of(&l, "s").scheme;
    assert_true(s.cuts_tokens && s.keeps_gradients && !s.keeps_inputs && s.takes_tiles && !s.cuts_vectors);
    assert_int_equal(parse(&l, "stream S(1)\n", rest), OK);
    assert_true(sbp_equal(l.of[SBP_INPUTS], (struct sbp)ON_S(1)) && sbp_equal(l.of[SBP_NORMS], (struct sbp)ON_S(0)));
    assert_int_equal(parse(&l, "stream S(0)\ninputs B\n", rest), OK);
    assert_true(sbp_scheme_of(&l, "s").scheme.keeps_inputs);
}

static void test_refusals(void **state)
{
    static const struct { const char *first, *then, *says; } wrong[] = {
        { "steam S(0)\n", rest, "f:1: role steam: there is no such choice; did you mean stream" },
        { stream, "stream B\n", "f:2: stream has a signature already, in line 1" },
        { "# a comment\n\nstream S[0]\n", rest, "f:3: stream S[0]: must be a signature like S(0)" },
        { "stream\n", rest, "f:1: stream : must be a signature like S(0)" },
        { stream, "qkv S(0)\n", "f:2: there is no line for embedding, such as: embedding S(0)" },
        { "stream P\n", rest, "f:1: stream P: what reads it needs whole numbers; it is B, S(0), tokens, or S(1), "
          "columns" },
        { "stream B\nqkv P\n", "heads S(1)\nembedding S(0)\nproj B\nfc B\nhidden B\nfc2 B\nhead B\nlogits B\n",
          "f:2: qkv P: nobody is given partial sums; a weight is B, S(0) or S(1)" },
        { "stream S(2)\n", rest, "f:1: stream S(2): has two dimensions: S(0) or S(1)" },
        { "stream S(0)\ninputs S(1)\n", rest,
          "f:2: inputs S(1): inputs lie as the stream, or are B beside a stream S(0)" },
        { "stream B\nnorms S(0)\n", rest, "f:2: norms S(0): beside a stream B, which reads them whole: B" },
        { "stream S(1)\nnorms B\n", rest, "f:2: norms B: beside a stream S(1), whose columns they belong to: S(0)" },
        { "", "", "f:0: there is no line for stream, such as: stream B" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sbp_layout l;
        assert_int_equal(parse(&l, wrong[i].first, wrong[i].then), ERR_FORMAT);
        err.text[strlen(wrong[i].says)] = '\0';
        assert_string_equal(err.text, wrong[i].says);
    }
}

static enum error_code check(const struct sbp_layout *l, const struct model_config *c, int devices)
{
    const struct sbp_scheme s = sbp_scheme_of(l, "s");
    return tensor_check(&s.scheme, c, devices, &err);
}

static void test_models(void **state)
{
    struct model_config c = { .S = 1, .D = 12, .H = 4, .K = 2, .A = 3, .F = 12, .L = 1, .V = 12, .tied = true };
    struct sbp_layout l;
    (void)state;
    assert_int_equal(parse(&l, stream, rest), OK);
    assert_int_equal(check(&l, &c, 3), OK);
    l.of[SBP_HEAD] = (struct sbp)ON_B;
    assert_int_equal(check(&l, &c, 3), ERR_PLAN);
    assert_string_equal(err.text, "--tensor s: head B: an output matrix that is the embedding needs the signature of "
                                  "the embedding");
    l.of[SBP_HEAD] = (struct sbp)ON_S(0), l.of[SBP_QKV] = (struct sbp)ON_S(1);
    assert_int_equal(check(&l, &c, 3), ERR_PLAN);
    assert_non_null(strstr(err.text, "qkv S(1): with more devices than key/value heads"));
    assert_int_equal(check(&l, &c, 2), OK);
    c.mixture.E = 4, l.of[SBP_FC2] = (struct sbp)ON_B;
    assert_int_equal(check(&l, &c, 2), ERR_PLAN);
    assert_string_equal(err.text, "--tensor s: fc2 B: a mixture of experts needs S(1)");
}

static void test_what_is_written_is_read(void **state)
{
    char folder[256], path[300], *text;
    struct sbp_layout l, again;
    size_t bytes;
    (void)state;
    snprintf(folder, sizeof folder, "%s/orrery-layout-XXXXXX", temporary_folder());
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/l.sbp", folder);
    for (const char *const *t = sbp_layout_texts; *t; t += 2) {
        assert_int_equal(parse(&l, t[1], ""), OK);
        assert_int_equal(sbp_layout_write(&l, "again", path, &err), OK);
        assert_int_equal(file_read_all(path, 4096, &text, &bytes, &err), OK);
        assert_int_equal(sbp_layout_parse(&again, text, path, &err), OK);
        assert_memory_equal(&l, &again, sizeof l);
        free(text);
    }
    remove(path), rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_follows), cmocka_unit_test(test_refusals), cmocka_unit_test(test_models),
        cmocka_unit_test(test_what_is_written_is_read),
    };
    return cmocka_run_group_tests_name("sbp layout", tests, NULL, NULL);
}
