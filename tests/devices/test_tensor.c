/* Every tensor-parallel scheme, mixed with copies and pipelines, equals the one-device model.
 * ranks: 1 3 4
 * verify ranks: 8 9
 *
 * On every mesh that a scheme takes: loss, gradients and weights of three SGD steps in fp64 to 1e-12, messages, bytes,
 * additions and memory peaks by formula.  The shape is one in which nothing divides.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/verify/cases/case.h"
#include "tests/tier.h"

static struct error err;

static struct outcome check(struct plan *p, const char *what)
{
    struct outcome o;
    enum error_code e = case_run(p, &o, &err);
    ASSERT_ALL(e == OK, "%s dp=%d tp=%d pp=%d %s: %s", p->tensor, p->mesh.size[DP], p->mesh.size[TP], p->mesh.size[PP],
               what, err.text);
    ASSERT_ALL(o.verdict.code == OK, "%s dp=%d tp=%d pp=%d %s: %s", p->tensor, p->mesh.size[DP], p->mesh.size[TP],
               p->mesh.size[PP], what, o.verdict.text);
    return o;
}

static void each_fitting(void (*f)(const struct tensor_scheme *, struct plan))
{
    for (int i = 0; tensor_scheme_at(i); i++)
        for (int dp = 1; dp <= test_size; dp++)
            for (int pp = 1; dp * pp <= test_size; pp++) {
                if (test_size % (dp * pp) != 0 || (test_size > 1 && dp * pp == test_size)) continue;
                if (test_size > 6 && dp * pp > 2) continue;         /* `orrery verify tensor` does them all */
                struct plan p = case_plan(dp, test_size / (dp * pp), pp);
                p.tensor = tensor_scheme_at(i)->head.name;
                if (plan_check(&p, &err) == OK) f(tensor_scheme_at(i), p);
            }
}

static void tied(const struct tensor_scheme *s, struct plan p)
{
    (void)s;
    check(&p, "tied");
}

static void untied_dropout(const struct tensor_scheme *s, struct plan p)
{
    static int tried;
    if (p.mesh.size[PP] > 2 || p.mesh.size[DP] > 2) return;
    (void)s;
    if (!tier_takes(tried++ + test_size, 2)) return;
    case_take_dropout(&p);
    p.recompute = "full";
    p.micros = CASE_BATCH / p.mesh.size[DP] < 3 ? CASE_BATCH / p.mesh.size[DP] : 3;
    ASSERT_ALL(plan_check(&p, &err) == OK, "%s", err.text);
    check(&p, "untied dropout");
}

static void test_every_scheme(void **state) { (void)state; each_fitting(tied); }
static void test_every_scheme_untied_dropout(void **state) { (void)state; each_fitting(untied_dropout); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_scheme),
        MPI_TEST(test_every_scheme_untied_dropout),
    };
    return MPI_RUN("tensor", tests);
}
