/* trained.h -- a plan that trains as one device does, or the test fails and says which.  Tests in tests/devices/ call
 * these functions. */
#ifndef TESTS_TRAINED_H
#define TESTS_TRAINED_H

#include "tests/mpi_cmocka.h"
#include "tests/tier.h"
#include "emulated_devices/verify/cases/case.h"

static struct error err;

/* What a plan was: the model, the mesh, and what it takes of each kind. */
static inline const char *describe(const struct plan *p, char *text, size_t size)
{
    char mesh[64] = "one device";
    int used = 0;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (p->mesh.size[a] > 1)
            used += snprintf(mesh + used, sizeof mesh - (size_t)used, "%s%s=%d", used ? " " : "", axis_name(a),
                             p->mesh.size[a]);
    snprintf(text, size, "%s, %s, %d microbatches, %s, %s, %s, %s, %s, %s%s%s%s", p->model.name, mesh, p->micros,
             p->schedule, p->tensor, p->attention, p->dispatch, p->data.scheme, dtype_name(p->dtype),
             p->recompute ? ", recompute " : "", p->recompute ? p->recompute : "",
             p->model.tied ? ", tied" : p->model.dropout_residual > 0 ? ", dropout" : "");
    return text;
}

/* Train a plan beside the reference; everything about it must hold. */
static inline struct outcome check(struct plan *p)
{
    char what[300];
    struct outcome o;
    describe(p, what, sizeof what);
    enum error_code e = plan_check(p, &err);
    ASSERT_ALL(e == OK, "%s: refused: %s", what, err.text);
    e = case_run(p, &o, &err);
    ASSERT_ALL(e == OK, "%s: %s", what, err.text);
    ASSERT_ALL(o.verdict.code == OK, "%s: %s", what, o.verdict.text);
    return o;
}

/* Plans that a scheme refuses are left out: their refusals are tested by words. */
static inline void check_if_taken(struct plan p)
{
    if (plan_check(&p, &err) == OK) check(&p);
}

static inline void expect_refused(struct plan p, const char *words)
{
    const enum error_code e = plan_check(&p, &err);
    ASSERT_ALL(e == ERR_PLAN && strstr(err.text, words), "not refused with \"%s\": %s", words,
               e ? err.text : "accepted");
}

static inline bool in_verify(void) { return tier_now() == TIER_VERIFY; }

/* Every mesh of all devices: the statement behind it runs with these sizes. */
#define FOR_MESHES(dp, tp, pp)                                                                                         \
    for (int dp = 1; dp <= test_size; dp++)                                                                            \
        for (int pp = 1, tp; dp * pp <= test_size; pp++)                                                               \
            if (tp = test_size / (dp * pp), dp * tp * pp == test_size)

#endif
