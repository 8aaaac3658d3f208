/* Between any two meshes with dp x tp x pp x cp x ep of up to 8 a job's state moves with the fewest bytes there can be:
 * those that the planner foresees are what a count of single elements needs, and what each device writes are all
 * elements, each once.
 */
#include "emulated_devices/model/collection/moves.h"
#include "emulated_devices/model/collection/outlined.h"
#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/verify/cases/case.h"
#include "tests/tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { DEVICES = 8, MESHES_MOST = 400 };

static struct error err;

/* For each element of a tensor, the set of ranks that have it, that want it, that write it: a bit for each rank. */
struct bits { uint8_t *has, *wants, *writes; };
struct mesh_case { char name[80]; struct outlined *at; struct bits *tensor; int ranks; };

static struct mesh_case meshes[MESHES_MOST];
static int count;

static int64_t elements(const struct named_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->dim[d];
    return n;
}

/* Element by element, by the coordinates alone; vectors are one row. */
static void mark(uint8_t *bits, const struct named_tensor *t, const struct boxes *boxes, int rank, const char *mesh)
{
    for (int b = 0; b < boxes->count; b++) {
        const struct box *const box = &boxes->at[b];
        const bool matrix = t->ndim == 2;
        const int64_t columns = t->dim[t->ndim - 1], rows = matrix ? box->extent[0] : 1;
        const int64_t top = matrix ? box->start[0] : 0, left = box->start[t->ndim - 1],
                      width = box->extent[t->ndim - 1];
        if (t->ndim > 2 || left + width > columns || (matrix && top + rows > t->dim[0]))
            fail_msg("%s: %s: device %d has a box outside the tensor", mesh, t->name, rank);
        for (int64_t i = top; i < top + rows; i++)
            for (int64_t j = left; j < left + width; j++) {
                uint8_t *const at = &bits[i * columns + j];
                if (*at >> rank & 1)
                    fail_msg("%s: %s: device %d has element %lld twice", mesh, t->name, rank,
                             (long long)(i * columns + j));
                *at |= (uint8_t)(1 << rank);
            }
    }
}

static void mark_tensor(struct mesh_case *m, int tensor)
{
    const struct collection *const c = &m->at->collection;
    const struct named_tensor *const t = &c->tensor[tensor];
    struct bits *const b = &m->tensor[tensor];
    struct boxes writes[DEVICES] = { { 0 } };
    b->has = calloc(3, (size_t)elements(t)), b->wants = b->has + elements(t), b->writes = b->wants + elements(t);
    if (collection_writes(c, tensor, writes, m->ranks, &err)) fail_msg("%s: %s", m->name, err.text);
    for (int r = 0; r < m->ranks; r++) {
        struct boxes has = { 0 }, wants = { 0 };
        assert_int_equal(collection_has(c, tensor, r, &has, &err), OK);
        assert_int_equal(collection_wants(c, tensor, r, &wants, &err), OK);
        mark(b->has, t, &has, r, m->name), mark(b->wants, t, &wants, r, m->name);
        mark(b->writes, t, &writes[r], r, m->name);
        boxes_free(&has), boxes_free(&wants), boxes_free(&writes[r]);
    }
    for (int64_t i = 0; i < elements(t); i++) {
        const uint8_t w = b->writes[i];
        if (w == 0 || (w & (w - 1)) != 0)
            fail_msg("%s: %s: element %lld is written by the devices of the set %02x, not by one", m->name, t->name,
                     (long long)i, w);
        if ((w & b->has[i]) == 0) fail_msg("%s: %s: a device writes element %lld without it", m->name, t->name,
                                           (long long)i);
    }
}

/* Below the third tier some meshes are left out, of a model that has many. */
static int mesh_every;

/* ZeRO and its variants take turns, as they do along the axes of the meshes. */
static const char *const schemes[] = { "ddp", "zero1", "zero2", "zero3" };

static void add_mesh(const int size[4], int ep, const struct plan *model, int turn)
{
    struct plan p = *model;
    const int sizes[AXIS_COUNT] = { [DP] = size[0], [TP] = size[1], [PP] = size[2], [CP] = size[3], [EP] = 1 };
    struct mesh_case *const m = &meshes[count];
    assert_true(count < MESHES_MOST);
    assert_int_equal(mesh_make(&p.mesh, sizes, &err), OK);
    if (!tier_takes(turn, mesh_every)) return;
    p.micros = 1, p.data.scheme = schemes[turn % 4], p.ep = ep;
    if (size[3] > 1) p.attention = "ring-zigzag";
    if (ep > 1) p.dispatch = "alltoall";
    if (plan_check(&p, &err)) return;
    m->at = calloc(1, sizeof *m->at);
    m->ranks = p.mesh.devices;
    snprintf(m->name, sizeof m->name, "dp %d tp %d pp %d cp %d ep %d %s", size[0], size[1], size[2], size[3], ep,
             p.data.scheme);
    if (outlined_open(m->at, &p, FOR_DEVICES, -1, &err)) fail_msg("%s: %s", m->name, err.text);
    m->tensor = calloc((size_t)m->at->collection.count, sizeof *m->tensor);
    for (int t = 0; t < m->at->collection.count; t++) mark_tensor(m, t);
    count++;
}

static void open_meshes(const struct plan *model, bool experts)
{
    int turn = 0;
    count = 0;
    for (int dp = 1; dp <= DEVICES; dp++)
        for (int tp = 1; dp * tp <= DEVICES; tp++)
            for (int pp = 1; dp * tp * pp <= DEVICES; pp++)
                for (int cp = 1; dp * tp * pp * cp <= DEVICES; cp++)
                    for (int ep = 1; dp * tp * pp * cp * ep <= (experts ? DEVICES : 0) || ep == 1; ep++)
                        if (dp * tp * cp % ep == 0) add_mesh((int[4]){ dp, tp, pp, cp }, ep, model, turn++);
}

static void close_meshes(void)
{
    for (int i = 0; i < count; i++) {
        for (int t = 0; t < meshes[i].at->collection.count; t++) free(meshes[i].tensor[t].has);
        outlined_close(meshes[i].at);
        free(meshes[i].at), free(meshes[i].tensor);
    }
}

/* The lower bound: each element that a rank wants and does not have, once. */
static uint64_t least(const struct mesh_case *from, const struct mesh_case *to)
{
    uint64_t bytes = 0;
    for (int t = 0; t < to->at->collection.count; t++) {
        const struct named_tensor *const n = &to->at->collection.tensor[t];
        uint64_t lacks = 0;
        for (int64_t i = 0; i < elements(n); i++)
            lacks += (uint64_t)__builtin_popcount((unsigned)(to->tensor[t].wants[i] & ~from->tensor[t].has[i]));
        bytes += lacks * dtype_size(n->format);
    }
    return bytes;
}

/* Everything that a rank wants is there after the moves, and was with who sends it. */
static void arrives(const struct moves *moves, const struct mesh_case *from, const struct mesh_case *to)
{
    for (int i = 0; i < moves->count; i++) {
        const struct move *const m = &moves->at[i];
        const struct named_tensor *const t = &to->at->collection.tensor[m->tensor];
        const struct boxes one = { 1, 1, (struct box *)&m->box };
        uint8_t *const bits = calloc(1, (size_t)elements(t));
        mark(bits, t, &one, 0, to->name);
        for (int64_t e = 0; e < elements(t); e++)
            if (bits[e] && (!(from->tensor[m->tensor].has[e] >> m->from & 1)
                            || !(to->tensor[m->tensor].wants[e] >> m->to & 1)))
                fail_msg("%s to %s: %s: element %lld goes from device %d to %d in vain", from->name, to->name, t->name,
                         (long long)e, m->from, m->to);
        free(bits);
    }
}

static void check_pair(const struct mesh_case *from, const struct mesh_case *to, bool closely)
{
    struct moves moves;
    uint64_t sent = 0, received = 0;
    const int ranks = from->ranks > to->ranks ? from->ranks : to->ranks;
    assert_int_equal(moves_open(&moves, ranks, NULL, &err), OK);
    if (moves_between(&moves, &from->at->collection, &to->at->collection, &err))
        fail_msg("%s to %s: %s", from->name, to->name, err.text);
    const uint64_t fewest = least(from, to);
    if (moves.bytes != fewest)
        fail_msg("%s to %s: moves %llu bytes; the fewest there can be are %llu", from->name, to->name,
                 (unsigned long long)moves.bytes, (unsigned long long)fewest);
    for (int r = 0; r < ranks; r++) sent += moves.of[r].sent, received += moves.of[r].received;
    assert_true(sent == moves.bytes && received == moves.bytes);
    if (from == to) assert_true(moves.bytes == 0 && moves.count == 0);
    if (closely) arrives(&moves, from, to);
    moves_close(&moves);
}

/* In the third tier all pairs; below it one in so many. */
static void check_model(struct plan model, enum dtype dtype, bool experts, int meshes_every, int least_meshes,
                        int every)
{
    mesh_every = meshes_every;
    assert_int_equal(optimizer_find(&model.optimizer, "adamw", &err), OK);
    model.dtype = dtype, model.model.L = 2;
    open_meshes(&model, experts);
    if (count < least_meshes) fail_msg("only %d meshes fit the model; the last that does not: %s", count, err.text);
    for (int a = 0, n = 0; a < count; a++)
        for (int b = 0; b < count; b++, n++)
            if (a == b || tier_takes(n, every)) check_pair(&meshes[a], &meshes[b], n % (31 * every) == 0);
    close_meshes();
}

static void test_gpt2(void **state)
{
    (void)state;
    check_model(case_plan(1, 1, 1), F32, false, 1, 40, 37);
}

static void test_masters(void **state)
{
    (void)state;
    struct plan p = case_plan(1, 1, 1);
    case_take_llama(&p);
    check_model(p, BF16, false, 3, 15, 7);
}

static void test_experts(void **state)
{
    (void)state;
    struct plan p = case_plan(1, 1, 1);
    case_take_deepseek_v3(&p);
    check_model(p, F32, true, 5, 8, 11);
}

/* A padded vocabulary has rows of no token, which move as all others. */
static void test_padded(void **state)
{
    (void)state;
    struct plan p = case_plan(1, 1, 1);
    p.model.V = 64, p.model.tied = true;
    check_model(p, F32, false, 5, 8, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_masters),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_padded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
