/* request.c -- completes a request for data parallelism with its scheme's defaults. */
#include "emulated_devices/schemes/data/data.h"

const char *data_allgather(const struct data_request *q)
{
    const struct data_scheme *scheme = NULL;
    return q->allgather || data_scheme_find(&scheme, q->scheme, NULL) ? q->allgather : scheme->allgather;
}

struct outer data_outer(const struct data_request *q)
{
    const struct data_scheme *scheme = NULL;
    if (data_scheme_find(&scheme, q->scheme, NULL) || scheme->outer.every == 0) return (struct outer){ 0 };
    return (struct outer){ .rule = scheme->outer.rule,
                           .every = q->outer.every ? q->outer.every : scheme->outer.every,
                           .lr = q->outer.lr > 0 ? q->outer.lr : scheme->outer.lr,
                           .momentum = q->outer.momentum > 0 ? q->outer.momentum : scheme->outer.momentum };
}

enum error_code data_shards(struct shards *s, const struct data_request *q, int P, int rank, struct error *err)
{
    const struct data_scheme *scheme = NULL;
    const enum error_code e = data_scheme_find(&scheme, q->scheme, err);
    if (e) return e;
    *s = (struct shards){
        .P = P, .rank = rank, .weights = 1, .gradients = 1, .optimizer = 1, .apart = scheme->outer.every > 0
    };
    if (q->group > 0 && P % q->group != 0)
        return fail(err, ERR_PLAN, "--shard-group %d: must divide --dp %d", q->group, P);
    const char *needs = scheme->share(s, q);
    if (needs) return fail(err, ERR_PLAN, "--data-parallel %s: %s", scheme->head.name, needs);
    return fail_about(err, shards_check(s, err), "--shards:");
}

static int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

enum error_code data_expert_shards(struct shards *s, const struct data_request *q, const struct shards *all, int P,
                                   int rank, struct error *err)
{
    if (!all->apart) return data_shards(s, q, P, rank, err);
    const int own = P / shards_replicas(all);
    /* Fewer devices hold an expert, so it is cut by divisors that both numbers have. */
    *s = (struct shards){ .P = P, .rank = rank, .weights = common_divisor(all->weights, own),
                          .gradients = common_divisor(all->gradients, own), .optimizer = own, .apart = true };
    return shards_check(s, err);
}
