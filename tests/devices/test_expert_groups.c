/* Parallel folding: the groups of experts over the devices of a stage, beside a brute-force generator and beside the
 * arrangement tp-cp-ep-dp-pp of Megatron Core, where etp takes the place of tp, as its own generator lists the groups
 * (golden/folding.txt).
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/plan/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STOP(...) do { print_error(__VA_ARGS__); _fail(__FILE__, __LINE__); } while (0)

static struct plan plan_of(int tp, int cp, int dp, int pp, int ep, int etp)
{
    struct plan p = { .ep = ep, .etp = etp };
    struct error err;
    const int size[AXIS_COUNT] = { [PP] = pp, [DP] = dp, [CP] = cp, [EP] = 1, [TP] = tp };
    assert_int_equal(mesh_make(&p.mesh, size, &err), OK);
    return p;
}

/* Count through all coordinates, the fastest first.  Two ranks are in a group of an axis if they differ in this
 * coordinate alone. */
static bool brute_force(int world, const int size[4], int axis, int a, int b)
{
    int at[2][4] = { { 0 } };
    for (int r = 0, now[4] = { 0 }; r < world; r++) {
        for (int i = 0; i < 4; i++) {
            if (r == a) at[0][i] = now[i];
            if (r == b) at[1][i] = now[i];
        }
        for (int i = 0; i < 4; i++) {
            if (++now[i] < size[i]) break;
            now[i] = 0;
        }
    }
    for (int i = 0; i < 4; i++)
        if (i != axis && at[0][i] != at[1][i]) return false;
    return true;
}

/* The group of a rank along an axis of an arrangement: its n members are those that brute force finds. */
static void check_group(const struct plan *p, const int size[4], int axis, const char *name, int rank,
                        const int member[], int n)
{
    const int *const m = p->mesh.size;
    int found = 0;
    bool same = true;
    for (int other = 0; other < p->mesh.devices && same; other++)
        if (brute_force(p->mesh.devices, size, axis, rank, other)) same = found < n && member[found++] == other;
    if (!same || found != n)
        STOP("tp=%d cp=%d dp=%d pp=%d ep=%d etp=%d: the group of device %d along %s is another one", m[TP], m[CP],
             m[DP], m[PP], p->ep, p->etp, rank, name);
}

static const char *const axis_names[] = { "etp", "ep", "the copies of experts" };

/* Experts are etp x ep x copies x pp. */
static void check_groups_of_experts(const struct plan *p)
{
    const int world = p->mesh.devices,
              size[4] = { p->etp, p->ep, world / p->mesh.size[PP] / p->ep / p->etp, p->mesh.size[PP] };
    int member[64];
    for (int rank = 0; rank < world; rank++)
        for (enum expert_axis axis = EXPERT_SLICES; axis <= EXPERT_COPIES; axis++) {
            const int n = plan_expert_members(p, rank, axis, member);
            check_group(p, size, (int)axis, axis_names[axis], rank, member, n);
            if (member[plan_expert_place(p, rank, axis)] != rank)
                STOP("%d devices, ep=%d etp=%d: device %d has another place along %s", world, p->ep, p->etp, rank,
                     axis_names[axis]);
        }
}

/* Attention is tp x cp x dp x pp.  The stages of both arrangements are the same devices. */
static void check_groups(const struct plan *p)
{
    static const enum axis axes[4] = { TP, CP, DP, PP };
    const int size[4] = { p->mesh.size[TP], p->mesh.size[CP], p->mesh.size[DP], p->mesh.size[PP] };
    int member[64];
    for (int rank = 0; rank < p->mesh.devices; rank++)
        for (int i = 0; i < 4; i++) {
            const int n = mesh_members(&p->mesh, rank, AXIS_BIT(axes[i]), member);
            check_group(p, size, i, axis_name(axes[i]), rank, member, n);
        }
    check_groups_of_experts(p);
}

/* All arrangements of stages of up to 12 devices, in up to 4 stages. */
static void test_all_meshes(void **state)
{
    int checked = 0;
    (void)state;
    for (int stage = 1; stage <= 12; stage++)
        for (int pp = 1; pp <= 4; pp++)
            for (int ep = 1; ep <= stage; ep++)
                for (int etp = 1; ep * etp <= stage; etp++) {
                    if (stage % (ep * etp) != 0) continue;
                    for (int tp = 1; tp <= stage; tp++)
                        for (int cp = 1; tp * cp <= stage; cp++) {
                            if (stage % (tp * cp) != 0 || checked++ % 3 != 0) continue;
                            const struct plan p = plan_of(tp, cp, stage / (tp * cp), pp, ep, etp);
                            check_groups(&p);
                        }
                }
    assert_true(checked > 1000);
}

static void expect_group(const struct plan *p, int rank, enum expert_axis axis, const int want[], int n)
{
    int member[64];
    if (plan_expert_members(p, rank, axis, member) != n || memcmp(member, want, (size_t)n * sizeof *want) != 0)
        STOP("64 devices: device %d has another group along %s", rank, axis_names[axis]);
}

/* 64 devices with tp, cp, pp, ep and etp of 2: attention has dp = 8, experts have 8 copies; each group once. */
static void test_64_devices(void **state)
{
    const struct plan p = plan_of(2, 2, 8, 2, 2, 2);
    int stages[2], member[64];
    (void)state;
    expect_group(&p, 0, EXPERT_SLICES, (int[]){ 0, 1 }, 2);
    expect_group(&p, 63, EXPERT_SLICES, (int[]){ 62, 63 }, 2);
    expect_group(&p, 0, EXPERT_PARTS, (int[]){ 0, 2 }, 2);
    expect_group(&p, 37, EXPERT_PARTS, (int[]){ 37, 39 }, 2);
    expect_group(&p, 0, EXPERT_COPIES, (int[]){ 0, 4, 8, 12, 16, 20, 24, 28 }, 8);
    expect_group(&p, 62, EXPERT_COPIES, (int[]){ 34, 38, 42, 46, 50, 54, 58, 62 }, 8);
    check_groups(&p);
    for (int rank = 0; rank < 32; rank++) {             /* both arrangements have the same stages */
        assert_int_equal(mesh_members(&p.mesh, rank, AXIS_BIT(PP), stages), 2);
        assert_int_equal(stages[1], rank + 32);
        for (enum expert_axis axis = EXPERT_SLICES; axis <= EXPERT_COPIES; axis++)
            for (int n = plan_expert_members(&p, rank, axis, member), i = 0; i < n; i++) assert_true(member[i] < 32);
    }
}

/* ---- the released generator -------------------------------------------------------------------------------------- */

static const struct { const char *name; unsigned axes; } of_attention[] = {
    { "tp", AXIS_BIT(TP) }, { "cp", AXIS_BIT(CP) }, { "dp", AXIS_BIT(DP) }, { "pp", AXIS_BIT(PP) },
    { "dp-cp", AXIS_BIT(DP) | AXIS_BIT(CP) }, { "epp", AXIS_BIT(PP) },
};
static const struct { const char *name; enum expert_axis axis; } of_experts[] = {
    { "etp", EXPERT_SLICES }, { "ep", EXPERT_PARTS }, { "edp", EXPERT_COPIES },
};

/* The group of a device along an axis of that name.  @return how many; -1: there is no such axis. */
static int members_along(const struct plan *p, const char *name, int rank, int member[])
{
    for (size_t i = 0; i < sizeof of_attention / sizeof *of_attention; i++)
        if (strcmp(name, of_attention[i].name) == 0)
            return mesh_members(&p->mesh, rank, of_attention[i].axes, member);
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++)
        if (strcmp(name, of_experts[i].name) == 0) return plan_expert_members(p, rank, of_experts[i].axis, member);
    return -1;
}

/* A line: devices tp cp pp ep etp, the axis, the ranks. */
static void check_line(const char *line)
{
    int world, tp, cp, pp, ep, etp, at, want[64], member[64], n = 0, step;
    char name[8];
    if (sscanf(line, "%d %d %d %d %d %d %7s%n", &world, &tp, &cp, &pp, &ep, &etp, name, &at) != 7)
        STOP("golden/folding.txt: not a group: %s", line);
    for (; n < 64 && sscanf(line + at, "%d%n", &want[n], &step) == 1; at += step) n++;
    const struct plan p = plan_of(tp, cp, world / (tp * cp * pp), pp, ep, etp);
    for (int i = 0; i < n; i++) {
        if (members_along(&p, name, want[i], member) != n || memcmp(member, want, (size_t)n * sizeof *want) != 0)
            STOP("device %d has another group than Megatron Core's: %s", want[i], line);
    }
}

static void test_as_released(void **state)
{
    char line[512];
    int groups = 0;
    (void)state;
    FILE *file = fopen("golden/folding.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (line[0] != '#') check_line(line), groups++;
    fclose(file);
    assert_true(groups > 500);
}

/* ---- the published counts ---------------------------------------------------------------------------------------- */

/* The largest ep that divides a stage, if an expert's devices must be found along these axes of attention. */
static int largest_ep(struct plan p, unsigned axes)
{
    int member[64], allowed[64], most = 0;
    for (p.ep = 1; p.ep <= p.mesh.devices / p.mesh.size[PP]; p.ep++) {
        if (p.mesh.devices / p.mesh.size[PP] % p.ep != 0) continue;
        const int n = plan_expert_members(&p, 0, EXPERT_PARTS, member), all = mesh_members(&p.mesh, 0, axes, allowed);
        if (n == p.ep && n <= all) most = n;
    }
    return most;
}

/* TP 4, CP 2, DP 8, PP 4: in the data-parallel group ep is at most 8; folded it may be all 64 devices of a stage. */
static void test_all_of_a_stage(void **state)
{
    const struct plan p = plan_of(4, 2, 8, 4, 64, 1);
    int member[64];
    (void)state;
    assert_int_equal(largest_ep(p, AXIS_BIT(DP)), 8);
    assert_int_equal(largest_ep(p, AXIS_BIT(DP) | AXIS_BIT(CP) | AXIS_BIT(TP)), 64);
    assert_int_equal(plan_expert_members(&p, 130, EXPERT_PARTS, member), 64);
    assert_int_equal(member[0], 128);
    assert_int_equal(member[63], 191);
    assert_int_equal(plan_expert_copies(&p), 1);
}

/* CP 8 with EP 8: 64 devices if an expert's devices must be copies along dp; folded 8, and both groups are the same. */
static void test_context_and_experts(void **state)
{
    int parts[64], context[64];
    (void)state;
    for (int dp = 1; dp < 8; dp++) assert_true(largest_ep(plan_of(1, 8, dp, 1, 8, 1), AXIS_BIT(DP)) < 8);
    const struct plan apart = plan_of(1, 8, 8, 1, 8, 1), folded = plan_of(1, 8, 1, 1, 8, 1);
    assert_int_equal(apart.mesh.devices, 64);
    assert_int_equal(largest_ep(apart, AXIS_BIT(DP)), 8);
    assert_int_equal(folded.mesh.devices, 8);
    assert_int_equal(largest_ep(folded, AXIS_BIT(CP)), 8);
    assert_int_equal(plan_expert_members(&folded, 5, EXPERT_PARTS, parts), 8);
    assert_int_equal(mesh_members(&folded.mesh, 5, AXIS_BIT(CP), context), 8);
    assert_memory_equal(parts, context, 8 * sizeof *parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_meshes), cmocka_unit_test(test_64_devices), cmocka_unit_test(test_as_released),
        cmocka_unit_test(test_all_of_a_stage), cmocka_unit_test(test_context_and_experts),
    };
    return cmocka_run_group_tests_name("expert groups", tests, NULL, NULL);
}
