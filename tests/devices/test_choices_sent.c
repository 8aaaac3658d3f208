/* What devices send to experts in training, by the choices that the one-device model makes of the same batch: a row for
 * each choice that an expert elsewhere computes, and nothing for the others.
 * ranks: 2
 * verify ranks: 1 3 4 6
 */
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/transformer.h"
#include "ref/routers/router.h"
#include "tests/devices/session.h"
#include "tests/devices/trained.h"
#include <stdlib.h>

static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    const struct plan *p = context;
    (void)step, (void)within;
    for (int64_t i = 0; i < count * p->S; i++) {
        const int64_t at = first * p->S + i;
        ids[i] = (int32_t)((at * 7 + at * at) % p->model.V), labels[i] = (int32_t)(at % p->model.V);
    }
}

/* The choices [L,N,k] of the one-device model for the first batch. */
static int32_t *choices_of_one(const struct plan *p)
{
    const int64_t N = p->B * p->S, n = N * p->model.mixture.k;
    int32_t *ids = calloc((size_t)(2 * N), sizeof *ids), *all = calloc((size_t)(p->model.L * n), sizeof *all);
    struct transformer one;
    double loss;
    ASSERT_ALL(ids && all && transformer_open(&one, &p->model, F64, p->seed, &err) == OK, "%s", err.text);
    fill(p, 0, 0, p->B, ids, ids + N, NULL);
    ASSERT_ALL(transformer_forward(&one, ids, ids + N, p->B, p->S, &loss, &err) == OK, "%s", err.text);
    for (int64_t l = 0; l < p->model.L; l++)
        memcpy(all + l * n, one.block[l].experts.data, (size_t)n * sizeof *all);
    transformer_close(&one), free(ids);
    return all;
}

/* The device of a choice's expert; -1: no expert computes it. */
static int device_of(const struct plan *p, int32_t choice)
{
    for (int m = 0; m < p->ep; m++) {
        const struct interval own = block_at(p->model.mixture.E, p->ep, m);
        if (choice >= own.first && choice < interval_end(own)) return m;
    }
    return -1;
}

/* D numbers there and back, forward and backward, for each choice that crosses; counts to the next device of a ring. */
static uint64_t bytes_by_choices(const struct plan *p, const int32_t *choices, int64_t *absent)
{
    const int64_t N = p->B * p->S, k = p->model.mixture.k;
    int64_t crossing = 0;
    *absent = 0;
    for (int64_t i = 0; i < p->model.L * N * k; i++) {
        const int64_t sequence = i / k % N / p->S;
        const int to = device_of(p, choices[i]);
        int from = 0;
        while (sequence >= interval_end(block_at(p->B, p->ep, from))) from++;
        *absent += to < 0;
        crossing += to >= 0 && to != from && (from == test_rank || to == test_rank);
    }
    return (uint64_t)(crossing * 2 * p->model.D * 8 +
                      p->micros * p->model.L * (p->ep - 1) * p->model.mixture.E * 4);
}

static void check_bytes(struct plan *p, const char *what)
{
    struct session s;
    int64_t absent;
    int32_t *choices = choices_of_one(p);
    const uint64_t want = bytes_by_choices(p, choices, &absent);
    check(p);
    session_open(&s, p, (struct batch_source){ fill, p });
    session_gradients(&s);
    const uint64_t sent = account_total(&s.comm.counted.of[TRAFFIC_EXPERTS]).bytes_sent;
    ASSERT_ALL(absent > 0, "%s: every choice is computed", what);
    ASSERT_ALL(sent == want, "%s: sent %llu bytes to experts; the choices that experts compute say %llu", what,
               (unsigned long long)sent, (unsigned long long)want);
    session_close(&s), free(choices);
}

static struct plan experts_everywhere(const char *rule)
{
    struct plan p = case_plan(test_size, 1, 1);
    const struct router *r;
    assert_int_equal(router_find(&r, rule, &err), OK);
    case_take_mixtral(&p);
    case_take_router(&p, r);
    case_take_experts(&p, test_size, "alltoall");
    p.dtype = F64;
    return p;
}

static void test_dropped_choices_stay(void **state)
{
    (void)state;
    for (int by_weight = 0; by_weight < 2; by_weight++) {
        struct plan p = experts_everywhere("softmax");
        p.model.mixture.capacity_factor = 0.5, p.model.mixture.drops_by_weight = by_weight;
        check_bytes(&p, by_weight ? "dropped by weight" : "dropped by position");
    }
}

/* Experts that return what they get do so where the token is. */
static void test_identities_send_nothing(void **state)
{
    struct plan p = experts_everywhere("longcat");
    (void)state;
    assert_int_equal(p.model.mixture.zero, 3);
    p.model.mixture.capacity_factor = 0;
    check_bytes(&p, "identities");
}

/* A token that is sure goes to fewer experts than another; null experts get nothing. */
static void test_fewer_choices(void **state)
{
    struct plan p = experts_everywhere("top-p");
    (void)state;
    assert_true(p.model.mixture.zero_is_null && p.model.mixture.k == 3);
    check_bytes(&p, "top-p");
    p.dispatch = "alltoall", p.recompute = "full";
    check(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_dropped_choices_stay), MPI_TEST(test_identities_send_nothing),
                                        MPI_TEST(test_fewer_choices) };
    return MPI_RUN("choices sent", tests);
}
