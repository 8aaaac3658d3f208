/* Sums of a backward pass: gradients whose parts ranks have, and more summands than anybody listed.
 *
 * A silu reads x and the gradient of its result, of which two ranks have parts.  A program adds the parts up and stores
 * the sum, or computes with each part: both are right.  A part alone is wrong, and said so.
 * tier: check
 */
#include "ref/numeric/philox.h"
#include "emulated_devices/check/mistakes/explainer.h"
#include "emulated_devices/check/recompute/graph.h"
#include "ref/model/config.h"
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

enum { ROWS = 24, WIDTH = 32, N = ROWS * WIDTH, READERS = 20 };
static const enum dtype formats[] = { F32, BF16, F16 };

static enum dtype format;
static struct model_config config;

static double stored(double x)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, format, 1);
    tensor_set(one, 0, x);
    return tensor_get(one, 0);
}

static double drawn(uint32_t n)
{
    const uint32_t counter[4] = { n, 0, 0, 0 }, key[2] = { 5, 23 };
    uint32_t word[4];
    philox4x32(counter, key, word);
    return stored((double)word[0] / 0x1p31 - 1);
}

/* d times the slope of x sigmoid(x). */
static double silu_back(double d, double x)
{
    const double g = 1 / (1 + exp(-x));
    return d * (g + x * g * (1 - g));
}

/* ---- the program's tensors --------------------------------------------------------------------------------------- */

/* dy is part[0] + part[1]; parts of it are told if in_parts[0], parts of dx if in_parts[1]. */
static struct {
    double x[N], part[2][N], dx[2][N], weight[N];
    bool in_parts[2];
    int readers;
    struct single_result first;         /* wrong */
    int right, wrong, lacking;
} run;

static double element(const char *name, int part, int i)
{
    if (strncmp(name, "act/y", 5) == 0) return stored(run.x[i] / (1 + exp(-run.x[i])));
    if (strncmp(name, "grad/y", 6) == 0)
        return part > 0 ? run.part[part - 1][i] : part < 0 ? run.part[0][i] + run.part[1][i] : 0;
    if (strcmp(name, "grad/x") == 0) return run.dx[0][i] + run.dx[1][i];
    return run.x[i];
}

static enum error_code fetch(void *context, const char *name, struct tensor out, enum single_found *found,
                             struct error *err)
{
    int part = -1;
    (void)context, (void)err;
    if (strncmp(name, "part/", 5) == 0) part = atoi(name + 5), name += 7;
    *found = strcmp(name, "act/x") == 0 || strncmp(name, "act/y", 5) == 0 || strncmp(name, "grad/y", 6) == 0 ||
             strcmp(name, "grad/x") == 0 ? SINGLE_HAS : SINGLE_HAS_NOT;
    for (int i = 0; i < tensor_count(out) && *found == SINGLE_HAS; i++)
        ((double *)out.data)[i] = element(name, part, i);
    return OK;
}

static enum error_code parts_of(void *context, const char *name, int64_t first, int64_t whole, struct tensor absolute,
                                int *parts, struct error *err)
{
    (void)context, (void)first, (void)whole, (void)err;
    const bool of_y = strncmp(name, "grad/y", 6) == 0, of_x = strcmp(name, "grad/x") == 0;
    *parts = (of_y && run.in_parts[0]) || (of_x && run.in_parts[1]) ? 2 : 1;
    for (int i = 0; *parts == 2 && i < tensor_count(absolute); i++)
        ((double *)absolute.data)[i] = of_y ? fabs(run.part[0][i]) + fabs(run.part[1][i])
                                            : fabs(run.dx[0][i]) + fabs(run.dx[1][i]);
    return OK;
}

static void found(void *context, const struct single_result *result)
{
    (void)context;
    if (strcmp(result->name, "grad/x") != 0) return;
    run.right += result->verdict < SINGLE_WRONG, run.lacking += result->verdict > SINGLE_WRONG;
    if (result->verdict == SINGLE_WRONG) run.wrong++, run.first = *result;
}

static void check(void)
{
    struct single_slot slot[1 + READERS] = { { .name = "x", .rows = ROWS, .cols = WIDTH, .maker = -1, .route = -1 } };
    struct single_node node[READERS];
    for (int i = 0; i < run.readers; i++) {
        slot[1 + i] = (struct single_slot){ .rows = ROWS, .cols = WIDTH, .maker = i, .route = -1 };
        snprintf(slot[1 + i].name, sizeof slot->name, "y%d", i);
        node[i] = (struct single_node){ &single_silu, "", { 0, -1, -1 }, 1 + i, .weight = -1, .bias = -1 };
    }
    const struct single_graph graph = { slot, node, 1 + run.readers, run.readers };
    static const int32_t ids[ROWS], labels[ROWS];
    struct error err;
    run.right = run.wrong = run.lacking = 0;
    if (single_check(&config, &graph, (struct single_batch){ ids, labels, 1, ROWS, 0, NULL },
                     rounding_of(format, DTYPE_COUNT, 1),
                     (struct single_source){ .explainer = &mistakes_explainer, .fetch = fetch, .found = found,
                                             .parts = parts_of }, &err) != OK)
        fail_msg("%s", err.text);
}

/* size: of the second part, against the first. */
static void draw_inputs(double size)
{
    for (int i = 0; i < N; i++) {
        run.x[i] = 2 * drawn((uint32_t)i), run.part[0][i] = drawn((uint32_t)(N + i));
        run.part[1][i] = stored(size * drawn((uint32_t)(2 * N + i)));
        run.dx[0][i] = run.dx[1][i] = 0;
    }
    run.readers = 1;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void parts_that_are_added_first_are_right(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++) {
        format = formats[t], draw_inputs(1), run.in_parts[0] = true, run.in_parts[1] = false;
        for (int i = 0; i < N; i++)
            run.dx[0][i] = stored(silu_back(stored(run.part[0][i] + run.part[1][i]), run.x[i]));
        check();
        if (run.right != 1) fail_msg("%s: %g times its bound", dtype_name(format), run.first.ratio);
    }
}

/* The result is a sum, or its parts. */
static void parts_that_are_computed_with_are_right(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++)
        for (int in_parts = 0; in_parts < 2; in_parts++) {
            format = formats[t], draw_inputs(1), run.in_parts[0] = true, run.in_parts[1] = in_parts;
            for (int i = 0; i < N; i++)
                for (int k = 0; k < 2; k++) run.dx[k][i] = stored(silu_back(run.part[k][i], run.x[i]));
            for (int i = 0; i < N && !in_parts; i++)
                run.dx[0][i] = stored(run.dx[0][i] + run.dx[1][i]), run.dx[1][i] = 0;
            check();
            if (run.right != 1) fail_msg("%s: %g times its bound", dtype_name(format), run.first.ratio);
        }
}

static void a_part_alone_is_wrong(void **state)
{
    (void)state;
    for (int t = 0; t < 3; t++) {
        format = formats[t], draw_inputs(1), run.in_parts[0] = true, run.in_parts[1] = false;
        for (int i = 0; i < N; i++) run.dx[0][i] = stored(silu_back(run.part[1][i], run.x[i]));
        check();
        assert_int_equal(run.wrong, 1);
        assert_string_equal(run.first.mistake, "part 1 of 2 of its gradient alone: parts are not summed");
    }
}

/* Parts so large that their sum is mostly rounding say nothing, neither right nor wrong. */
static void parts_that_cancel_are_left_open(void **state)
{
    (void)state;
    format = BF16, draw_inputs(1), run.in_parts[0] = true, run.in_parts[1] = false;
    for (int i = 0; i < N; i++) {
        run.part[0][i] = stored(64 * drawn((uint32_t)i));
        run.part[1][i] = -run.part[0][i] + stored(drawn((uint32_t)(N + i)) / 64);
        run.dx[0][i] = stored(2 * silu_back(run.part[0][i] + run.part[1][i], run.x[i]));
    }
    check();
    assert_int_equal(run.lacking, 1);
}

/* The seventeenth reader's gradient counts as the first's. */
static void every_reader_counts(void **state)
{
    (void)state;
    format = F32, draw_inputs(1), run.in_parts[0] = run.in_parts[1] = false, run.readers = READERS;
    for (int i = 0; i < N; i++)
        run.dx[0][i] = stored(READERS * silu_back(run.part[0][i] + run.part[1][i], run.x[i]));
    check();
    assert_int_equal(run.right, 1);
}

int main(void)
{
    struct error err;
    int64_t batch;
    if (model_config_preset(&config, &batch, "tiny", &err) != OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_that_are_added_first_are_right),
        cmocka_unit_test(parts_that_are_computed_with_are_right),
        cmocka_unit_test(a_part_alone_is_wrong), cmocka_unit_test(parts_that_cancel_are_left_open),
        cmocka_unit_test(every_reader_counts),
    };
    return cmocka_run_group_tests_name("sums of gradients", tests, NULL, NULL);
}
