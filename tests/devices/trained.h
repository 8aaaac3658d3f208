/* trained.h -- a plan that trains as one device does, or the test fails and says which. */
#ifndef TESTS_TRAINED_H
#define TESTS_TRAINED_H

#include "tests/mpi_cmocka.h"
#include "emulated_devices/verify/cases/case.h"

static struct error err;

static const char *describe(const struct plan *p, char *text, size_t size)
{
    snprintf(text, size, "dp=%d tp=%d pp=%d micro=%d %s %s%s", p->mesh.size[DP], p->mesh.size[TP], p->mesh.size[PP],
             p->micros, p->schedule, p->model.tied ? "tied" : "untied",
             p->model.dropout_residual > 0 ? " dropout" : "");
    return text;
}

/* Train a plan beside the reference; everything about it must hold. */
static struct outcome check(struct plan *p)
{
    char what[128];
    struct outcome o;
    describe(p, what, sizeof what);
    enum error_code e = plan_check(p, &err);
    ASSERT_ALL(e == OK, "%s: refused: %s", what, err.text);
    e = case_run(p, &o, &err);
    ASSERT_ALL(e == OK, "%s: %s", what, err.text);
    ASSERT_ALL(o.verdict.code == OK, "%s: %s", what, o.verdict.text);
    return o;
}

#endif
