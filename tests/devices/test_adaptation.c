/* Schemes that plan or adapt: each has invariants, and every one of these is compared, for drawn inputs or in a run.
 * tier: check
 * ranks: 4
 * verify ranks: 2 3 6 8
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/cases/drawn.h"
#include "ref/routers/router.h"
#include <string.h>

static struct error err;

/* By what its interface says: it makes plans, searches schedules, chooses by what devices tell, remembers steps, or
 * predicts. */
static bool adapts(const struct scheme *s)
{
    const struct attention_scheme *const a = (const struct attention_scheme *)s;
    const struct expert_scheme *const e = (const struct expert_scheme *)s;
    if (s->kind == ATTENTION_SCHEME) return a->plan != NULL;
    if (s->kind == PIPELINE_SCHEME) return ((const struct schedule_generator *)s)->searches;
    return s->kind == EXPERT_SCHEME && (e->choose || e->step || e->predicts);
}

static void test_who_adapts_has_invariants(void **state)
{
    int count = 0;
    (void)state;
    for (int k = 0; k < SCHEME_KINDS; k++) {
        const struct scheme *s;
        for (int i = 0; (s = scheme_at((enum scheme_kind)k, i)) != NULL; i++) {
            ASSERT_ALL(adapts(s) == (s->invariants != NULL), "%s: adapts %d, has invariants %d", s->name, adapts(s),
                       s->invariants != NULL);
            int n = 0;
            for (; s->invariants && s->invariants[n].name; n++, count++)
                ASSERT_ALL(n < INVARIANTS_MOST && s->invariants[n].sentence && s->invariants[n].holds, "%s", s->name);
            ASSERT_ALL(!adapts(s) || n > 0, "%s has no invariant", s->name);
        }
    }
    ASSERT_ALL(count >= 13, "%d invariants", count);
}

/* Whether an invariant can be compared of choices alone: without a pass, and with nodes of more than one size. */
static bool is_drawn(const char *name)
{
    return strcmp(name, "early") != 0 && strcmp(name, "again") != 0 && strcmp(name, "pipeline") != 0 &&
           (strcmp(name, "remap nodes") != 0 || test_size >= 4);
}

static void test_drawn_inputs(void **state)
{
    const enum scheme_kind kinds[] = { ATTENTION_SCHEME, EXPERT_SCHEME, PIPELINE_SCHEME };
    struct device device;
    struct comm comm;
    (void)state;
    ASSERT_ALL(device_open(&device, NULL, F64, 0, &err) == OK && comm_open(&comm, &device, &err) == OK, "%s", err.text);
    for (int k = 0; k < 3; k++) {
        const struct scheme *s;
        for (int i = 0; (s = scheme_at(kinds[k], i)) != NULL; i++) {
            struct invariant_counts c;
            const enum error_code e = adaptation_drawn(s, &comm, &c, &err);
            ASSERT_ALL(e == OK, "%s", err.text);
            const bool drawn = s->invariants && strcmp(s->name, "speculative") != 0;
            for (int n = 0; drawn && s->invariants[n].name; n++)
                ASSERT_ALL(c.checked[n] > 0 || !is_drawn(s->invariants[n].name),
                           "%s %s was not compared", s->name, s->invariants[n].name);
        }
    }
    comm_close(&comm), device_close(&device);
}

/* parts: of rows; again: copies are sent again; the scheme's invariants but `left_out` are all compared. */
static void run_mixture_by(const char *dispatch, const char *tensor, int tp, int parts, bool again,
                           const char *left_out)
{
    struct outcome o;
    struct plan p = case_plan(test_size / tp, tp, 1);
    case_take_mixtral(&p);
    p.tensor = tensor, p.row_parts = parts, p.copying.again = again;
    case_take_experts(&p, tp > 1 ? tp : test_size, dispatch);
    ASSERT_ALL(plan_check(&p, &err) == OK, "%s: %s", dispatch, err.text);
    ASSERT_ALL(case_run(&p, &o, &err) == OK, "%s: %s", dispatch, err.text);
    ASSERT_ALL(o.verdict.code == OK, "%s: %s", dispatch, o.verdict.text);
    const struct invariant_counts *c = &o.adapted[ADAPTS_EXPERTS];
    for (int n = 0; c->scheme->invariants[n].name; n++)
        ASSERT_ALL(c->checked[n] > 0 || strcmp(c->scheme->invariants[n].name, left_out) == 0, "%s %s was not compared",
                   dispatch, c->scheme->invariants[n].name);
}

/* In a run: loads of experts that differ from step to step; rows by their ids. */
static void test_in_a_run(void **state)
{
    (void)state;
    run_mixture_by("fssdp", "1d", 1, 0, false, "again");
    run_mixture_by("fssdp", "1d", 1, 0, true, "");
    run_mixture_by("tutel", "1d", 1, -1, false, "pipeline");    /* the scheme may choose one part */
    run_mixture_by("tutel", "1d", 1, 2, false, "parts");
    if (test_size % 2 == 0) run_mixture_by("speculative", "1d-sp", 2, 0, false, "");
}

/* Plans of a run with packed samples. */
static void test_plans_of_a_run(void **state)
{
    static const char *const names[] = { "hdp", "zeppelin", "flexsp", "dcp" };
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct outcome o;
        struct plan p = case_plan(1, 1, 1);
        case_take_context(&p, test_size, names[i]);
        p.packed = true;
        ASSERT_ALL(plan_check(&p, &err) == OK && case_run(&p, &o, &err) == OK, "%s: %s", names[i], err.text);
        ASSERT_ALL(o.verdict.code == OK, "%s: %s", names[i], o.verdict.text);
        ASSERT_ALL(o.adapted[ADAPTS_ATTENTION].checked[0] > 0, "%s: its first invariant was not compared", names[i]);
    }
}

static int64_t compared(const struct outcome *o, enum adapting which)
{
    return invariants_checked(&o->adapted[which]);
}

/* Layers by speed, and routers with correction biases, moved by sign and by share. */
static void test_without_a_scheme(void **state)
{
    struct outcome o;
    struct plan p = case_plan(1, 1, test_size);
    (void)state;
    case_take_speeds(&p);
    ASSERT_ALL(plan_check(&p, &err) == OK && case_run(&p, &o, &err) == OK, "%s", err.text);
    ASSERT_ALL(o.verdict.code == OK, "%s", o.verdict.text);
    ASSERT_ALL(compared(&o, ADAPTS_PLACEMENT) == (test_size - 1), "%lld stages were compared with the slowest",
               (long long)compared(&o, ADAPTS_PLACEMENT));
    for (int i = 0; routers[i]; i++) {
        if (!routers[i]->rule.biased) continue;
        p = case_plan(test_size, 1, 1);
        case_take_mixtral(&p), case_take_router(&p, routers[i]);
        ASSERT_ALL(plan_check(&p, &err) == OK && case_run(&p, &o, &err) == OK, "%s", err.text);
        ASSERT_ALL(o.verdict.code == OK, "%s: %s", routers[i]->name, o.verdict.text);
        ASSERT_ALL(compared(&o, ADAPTS_ROUTERS) > 0, "%s: no biases were compared", routers[i]->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_who_adapts_has_invariants), MPI_TEST(test_drawn_inputs), MPI_TEST(test_in_a_run),
        MPI_TEST(test_plans_of_a_run), MPI_TEST(test_without_a_scheme),
    };
    return MPI_RUN("adaptation", tests);
}
