/* test_passes.c -- a pass of our model from another program's weights: its numbers, its bounds, its choices of experts.
 * Passes begin with the golden files' own weights and have the batch of the second step, of which files have no
 * tensors.
 */
#include "emulated_devices/check/recompute/own_pass.h"
#include "emulated_devices/check/report/choices.h"
#include "emulated_devices/check/report/passes.h"
#include "ref/model/kinds.h"
#include "ref/model/operands.h"
#include "ref/numeric/distance.h"
#include "tests/ref/scratch.h"
#include "ref/model/params.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

static bool every_gradient(const void *context, const char *name)
{
    (void)context;
    return strncmp(name, "grad/", 5) == 0 || strcmp(name, "loss") == 0;
}

/* A golden file, and its starting weights as those of a program. */
struct start { struct golden golden; struct own_weights own; };

static void open_start(struct start *start, const char *path)
{
    if (golden_open(&start->golden, path, &err) != OK) fail_msg("%s", err.text);
    const int params = model_param_count(&start->golden.config);
    start->own = (struct own_weights){ .params = params, .complete = true,
                                       .all = calloc((size_t)params, sizeof(struct tensor)) };
    for (int i = 0; i < params; i++) {
        const struct param_spec spec = model_param(&start->golden.config, i);
        const int64_t count = spec.dim[0] * (spec.ndim > 1 ? spec.dim[1] : 1);
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "start/%s", spec.name);
        start->own.all[i] = tensor_1d(malloc((size_t)count * sizeof(double)), F64, count);
        if (golden_read(&start->golden, name, F64, count, start->own.all[i].data, &err) != OK) fail_msg("%s", err.text);
    }
}

static void close_start(struct start *start)
{
    own_weights_free(&start->own);
    golden_close(&start->golden);
}

/* From the start and with the first batch our pass is the golden file's. */
static void a_pass_is_the_golden_one(void **state)
{
    struct start s;
    struct replay pass, whole;
    (void)state;
    open_start(&s, "golden/llama-grouped.safetensors");
    const struct replay_pass begins = { .weights = s.own.all, .wanted = every_gradient };
    if (replay_pass_run(&pass, &s.golden, F64, &begins, NULL, &err) != OK) fail_msg("%s", err.text);
    if (replay_run(&whole, &s.golden, F64, NULL, &err) != OK) fail_msg("%s", err.text);
    int same = 0;
    for (int i = 0; i < pass.records; i++)
        for (int k = 0; k < whole.records; k++)
            if (strcmp(pass.record[i].name, whole.record[k].name) == 0) {
                assert_true(squared_distance(pass.record[i].values, whole.record[k].values) == 0);
                same++;
            }
    assert_int_equal(same, pass.records);
    assert_true(same > 30);
    replay_free(&pass), replay_free(&whole);
    close_start(&s);
}

static void fill_results(struct own_pass *, const struct replay *);

/* A program whose gradients are half as large again is off by half of ours. */
static void a_distance_is_a_part_of_the_norm(void **state)
{
    struct start s;
    struct own_pass pass;
    struct replay program;
    const double zero = 0;
    (void)state;
    open_start(&s, "golden/llama-grouped.safetensors");
    const struct replay_pass begins = { .step = 1, .weights = s.own.all, .wanted = every_gradient };
    if (replay_pass_run(&program, &s.golden, F64, &begins, NULL, &err) != OK) fail_msg("%s", err.text);
    if (own_pass_open(&pass, &s.own, &s.golden, 1, &zero, &err) != OK) fail_msg("%s", err.text);
    fill_results(&pass, &program);
    for (int i = 0; i < pass.count; i++)
        for (int64_t k = 0; k < pass.all[i].count; k++) pass.all[i].have[k] *= 1.5;
    if (own_pass_run(&pass, &s.golden, &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(pass.count, program.records);
    for (int i = 0; i < pass.count; i++) assert_true(fabs(pass.all[i].off - 0.5) < 1e-12);
    own_pass_close(&pass), replay_free(&program);
    close_start(&s);
}

/* Numbers at right angles to ours, as long as these: each pair takes places, with a sign.  The last of an odd number is
 * zero. */
static double at_right_angles(struct tensor ours, int64_t i)
{
    const int64_t count = tensor_count(ours);
    if (i == count - 1 && count % 2 == 1) return 0;
    return i % 2 == 0 ? tensor_get(ours, i + 1) : -tensor_get(ours, i - 1);
}

/* The share of zeros and of what is at right angles to ours is 1, that of a half 0.5, that of the negated 2.  What is
 * added at right angles changes none of that. */
static void a_share_is_along_ours(void **state)
{
    static const double times[] = { 1, 0.5, 0, -1, 1.25 };
    struct start s;
    struct replay program;
    const double zero = 0;
    (void)state;
    open_start(&s, "golden/llama-grouped.safetensors");
    const struct replay_pass begins = { .step = 1, .weights = s.own.all, .wanted = every_gradient };
    if (replay_pass_run(&program, &s.golden, F64, &begins, NULL, &err) != OK) fail_msg("%s", err.text);
    for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
        struct own_pass pass;
        if (own_pass_open(&pass, &s.own, &s.golden, 1, &zero, &err) != OK) fail_msg("%s", err.text);
        fill_results(&pass, &program);
        for (int i = 0; i < pass.count; i++)
            for (int64_t n = 0; n < pass.all[i].count; n++)
                pass.all[i].have[n] = times[k] * pass.all[i].have[n]
                                      + 0.7 * at_right_angles(program.record[i].values, n);
        if (own_pass_run(&pass, &s.golden, &err) != OK) fail_msg("%s", err.text);
        for (int i = 0; i < pass.count; i++) {
            const struct own_result *const r = &pass.all[i];
            const double size = squared_distance(tensor_1d(r->have, F64, r->count), tensor_none),
                         apart = squared_distance(tensor_1d(r->have, F64, r->count),
                                                  pass.plain.record[r->record].values);
            assert_true(fabs(r->share.off - fabs(times[k] - 1)) < 1e-9);
            /* Numbers that are stored in bf16 may be a step further off. */
            const double stored = own_share_of(r, apart, size, BF16) - r->share.off;
            assert_true(fabs(stored - 2 * dtype_unit(BF16)) < 1e-9);
        }
        own_pass_close(&pass);
    }
    replay_free(&program);
    close_start(&s);
}

/* Roundings of stored parts are a random walk: parts of a usual mesh count as they are, sixty as twelve.  Those of a
 * gradient's microbatches may be alike: each counts. */
static void parts_are_a_random_walk(void **state)
{
    static const struct { int parts, twin; } of[] = { { 1, 2 }, { 2, 2 }, { 3, 3 }, { 4, 4 }, { 8, 5 }, { 20, 7 },
                                                      { 60, 12 } };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct rounding rounding = rounding_of(BF16, DTYPE_COUNT, of[i].parts);
        const struct perturbation twin = choices_twin(BF16, &rounding);
        assert_int_equal(twin.parts, of[i].twin);
        assert_int_equal(twin.gradient_parts, of[i].parts > 2 ? of[i].parts : 2);
    }
}

/* The largest distance of some twins' records from the pass. */
static void furthest_of(const struct replay *pass, enum dtype dtype, int first, int last, double most[])
{
    struct perturbation disturb = bound_twin(dtype);
    struct replay twin;
    double *apart = calloc((size_t)pass->records, sizeof *apart);
    if (replay_twin_open(&twin, pass, dtype, &err) != OK) fail_msg("%s", err.text);
    for (int seed = first; seed <= last; seed++) {
        disturb.seed = (uint64_t)seed;
        if (replay_twin_run(&twin, &disturb, apart, NULL, &err) != OK) fail_msg("%s", err.text);
        for (int i = 0; i < pass->records; i++) most[i] = fmax(most[i], sqrt(apart[i]));
    }
    replay_free(&twin), free(apart);
}

/* The worst case is a tensor whose errors have one cause: twins are off by |z| times 4 s, a right program by |z| times
 * s, z normal.  Where a right program is further off than passes stop at, a right program would be called wrong. */
static void a_right_program_is_seldom_called_wrong(void **state)
{
    static const int twins[] = { 8, 16, 36 };
    const double step = 1e-4;
    (void)state;
    for (size_t k = 0; k < sizeof twins / sizeof *twins; k++) {
        double times = 1.001, chance = 0;
        while (!passes_is_settled(times, 1, twins[k])) times += 0.01;
        assert_true(times < 9);
        for (double m = 0; m < 8; m += step) {
            const double furthest = pow(erf((m + step) / sqrt(2)), twins[k]) - pow(erf(m / sqrt(2)), twins[k]);
            chance += furthest * erfc(4 * times * m / sqrt(2));
        }
        print_message("after %d twins %.2f times the bound: %.1e\n", twins[k], times, chance);
        assert_true(chance < 1e-9);
    }
    assert_true(passes_is_settled(1, 1, 0) && !passes_is_settled(1e9, 1, 7) && !passes_is_settled(1.5, 1, 35));
}

/* The bound that 8 twins have measured does not become 8 times as large with 64. */
static void few_twins_are_enough(void **state)
{
    static const char *const files[] = { "golden/gpt2-tied.safetensors", "golden/llama-grouped.safetensors",
                                         "golden/mixtral-top2.safetensors", "golden/gemma-wider.safetensors" };
    double most = 0;
    (void)state;
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct start s;
        struct replay pass;
        open_start(&s, files[f]);
        const struct replay_pass begins = { .step = 1, .weights = s.own.all, .wanted = every_gradient };
        if (replay_pass_run(&pass, &s.golden, F64, &begins, NULL, &err) != OK) fail_msg("%s", err.text);
        double *few = calloc((size_t)pass.records, sizeof *few), *all = calloc((size_t)pass.records, sizeof *all);
        furthest_of(&pass, BF16, 1, 8, few);
        furthest_of(&pass, BF16, 1, bound_twins(BF16), all);
        for (int i = 0; i < pass.records; i++)
            if (few[i] > 0) most = fmax(most, all[i] / few[i]);
        free(few), free(all);
        replay_free(&pass);
        close_start(&s);
    }
    print_message("64 twins get %.2f times as far as 8\n", most);
    assert_true(most > 1 && most < 8);
}

/* Fill the results that a program has whose tokens chose as in a disturbed run, and that has no other roundings. */
static void fill_results(struct own_pass *pass, const struct replay *program)
{
    pass->all = calloc((size_t)program->records, sizeof *pass->all);
    for (int i = 0; i < program->records; i++) {
        const struct tensor x = program->record[i].values;
        struct own_result *r = &pass->all[pass->count++];
        *r = (struct own_result){ .count = tensor_count(x), .record = -1, .bound = 1e-3 };
        snprintf(r->name, sizeof r->name, "%s", program->record[i].name);
        r->have = malloc((size_t)r->count * sizeof *r->have);
        for (int64_t k = 0; k < r->count; k++) r->have[k] = tensor_get(x, k);
    }
}

/* A run with disturbed roundings whose tokens chose otherwise than those of the plain run; its choices as a route. */
static int32_t *another_route(const struct start *start, const struct replay_pass *begins, const struct replay *plain)
{
    const struct model_config *c = &start->golden.config;
    for (int seed = 1; seed < 200; seed++) {
        struct perturbation disturb = bound_twin(BF16);
        struct replay run;
        disturb.seed = (uint64_t)seed;
        if (replay_pass_run(&run, &start->golden, BF16, begins, &disturb, &err) != OK) fail_msg("%s", err.text);
        int32_t *route = NULL;
        if (memcmp(run.choice, plain->choice, (size_t)run.choices * sizeof *run.choice) != 0) {
            assert_int_equal(run.choices, c->L * start->golden.B * start->golden.S * c->mixture.k);
            route = malloc((size_t)run.choices * sizeof *route);
            memcpy(route, run.choice, (size_t)run.choices * sizeof *route);
        }
        replay_free(&run);
        if (route) return route;
    }
    fail_msg("no token is near a tie");
    return NULL;
}

/* The choices of a program that went elsewhere are found by its gradients, and then explain them all. */
static void choices_are_found(void **state)
{
    struct start s;
    struct own_pass pass;
    struct replay plain, program;
    (void)state;
    open_start(&s, "golden/mixtral-top2.safetensors");
    const double *zeros = calloc((size_t)(s.golden.config.L * 64), sizeof *zeros);
    struct replay_pass begins = { .step = 1, .weights = s.own.all, .wanted = every_gradient };
    if (replay_pass_run(&plain, &s.golden, F64, &begins, NULL, &err) != OK) fail_msg("%s", err.text);
    int32_t *route = another_route(&s, &begins, &plain);
    begins.route = route;
    if (replay_pass_run(&program, &s.golden, F64, &begins, NULL, &err) != OK) fail_msg("%s", err.text);
    if (own_pass_open(&pass, &s.own, &s.golden, 1, zeros, &err) != OK) fail_msg("%s", err.text);
    fill_results(&pass, &program);
    if (own_pass_run(&pass, &s.golden, &err) != OK) fail_msg("%s", err.text);
    double before = 0, after = 0;
    for (int i = 0; i < pass.count; i++) before = fmax(before, pass.all[i].off);
    const struct rounding rounding = rounding_of(BF16, DTYPE_COUNT, 1);
    if (choices_explain(&pass, &s.golden, BF16, &rounding, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < pass.count; i++) after = fmax(after, pass.all[i].off);
    assert_true(before > 1e-3);                 /* tokens that went elsewhere are seen */
    assert_true(after < 1e-9);
    for (int i = 0; i < pass.count; i++) assert_true(pass.all[i].spread > 0);
    own_pass_close(&pass);
    replay_free(&plain), replay_free(&program);
    free(route), free((void *)(uintptr_t)zeros);
    close_start(&s);
}

/* Choices follow a program's own logits, and the corrections of each layer: one expert of each is made the first. */
static void choices_are_read_with_corrections(void **state)
{
    static const char path[] = "golden/deepseekv3-yarn.safetensors";
    struct start s;
    struct own_pass pass;
    struct actual actual;
    (void)state;
    open_start(&s, path);
    const struct model_config *c = &s.golden.config;
    const int64_t E = mixture_columns(&c->mixture), n = s.golden.B * s.golden.S, k = c->mixture.k;
    double *bias = calloc((size_t)(c->L * E), sizeof *bias);
    for (int64_t l = 0; l < c->L; l++) bias[l * E + l % E] = 100;
    if (own_pass_open(&pass, &s.own, &s.golden, 0, bias, &err) != OK) fail_msg("%s", err.text);
    if (actual_open(&actual, path, NULL, &err) != OK) fail_msg("%s", err.text);
    if (choices_read(&pass, &s.golden, &actual, "", &err) != OK) fail_msg("%s", err.text);
    assert_non_null(pass.route);
    int layers = 0;
    for (int64_t l = 0; l < c->L; l++) {
        if (layer_mlp(c, l) != MLP_MIXTURE) continue;
        layers++;
        for (int64_t t = 0; t < n; t++) {
            bool chosen = false;
            for (int64_t i = 0; i < k; i++) chosen = chosen || pass.route[(l * n + t) * k + i] == l % E;
            assert_true(chosen);
        }
    }
    assert_true(layers > 1);
    actual_close(&actual), own_pass_close(&pass), free(bias);
    close_start(&s);
}

/* How far the gradients of a run in fp16 are from ours, the furthest of all. */
static double apart_with_scale(const struct start *start, const struct replay *ours, double scale)
{
    const struct replay_pass begins = { .step = 1, .weights = start->own.all, .wanted = every_gradient,
                                        .loss_scale = scale };
    struct replay run;
    double most = 0;
    if (replay_pass_run(&run, &start->golden, F16, &begins, NULL, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < run.records; i++)
        most = fmax(most, sqrt(squared_distance(run.record[i].values, ours->record[i].values) /
                               squared_distance(ours->record[i].values, tensor_none)));
    replay_free(&run);
    return most;
}

/* A pass in fp16 has the loss scale of the program: with a small one gradients are subnormal, and far from ours. */
static void a_pass_has_the_loss_scale(void **state)
{
    struct start s;
    struct replay ours;
    (void)state;
    open_start(&s, "golden/gpt2-tied.safetensors");
    const struct replay_pass begins = { .step = 1, .weights = s.own.all, .wanted = every_gradient };
    if (replay_pass_run(&ours, &s.golden, F64, &begins, NULL, &err) != OK) fail_msg("%s", err.text);
    const double usual = apart_with_scale(&s, &ours, 0);
    assert_true(apart_with_scale(&s, &ours, REPLAY_LOSS_SCALE) == usual);
    const double small = apart_with_scale(&s, &ours, 0x1p-13);
    print_message("with 2^-13 %.3g, with ours %.3g\n", small, usual);
    assert_true(small > 8 * usual);
    replay_free(&ours);
    close_start(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_is_the_golden_one),
        cmocka_unit_test(a_distance_is_a_part_of_the_norm),
        cmocka_unit_test(a_share_is_along_ours),
        cmocka_unit_test(parts_are_a_random_walk),
        cmocka_unit_test(a_right_program_is_seldom_called_wrong),
        cmocka_unit_test(few_twins_are_enough),
        cmocka_unit_test(a_pass_has_the_loss_scale),
        cmocka_unit_test(choices_are_found),
        cmocka_unit_test(choices_are_read_with_corrections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
