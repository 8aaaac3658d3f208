/* request.c -- completes a request for data parallelism with its scheme's defaults.
 *
 * plan/check.c and plan/plan.c call data_shards; open.c calls all of these functions on every device with equal
 * results.  Errors are ERR_USAGE for an unknown scheme, and ERR_PLAN naming flag and value.  Nothing is allocated.
 */
#include "emulated_devices/schemes/data/data.h"

const char *data_allgather(const struct data_request *request)
{
    const struct data_scheme *scheme = NULL;
    /* The request's algorithm comes first, then the scheme's; an unknown scheme leaves the request's. */
    return request->allgather || data_scheme_find(&scheme, request->scheme, NULL) ? request->allgather
           : scheme->allgather;
}

struct outer data_outer(const struct data_request *request)
{
    const struct data_scheme *scheme = NULL;
    if (data_scheme_find(&scheme, request->scheme, NULL) || scheme->outer.every == 0) return (struct outer){ 0 };
    /* Each number of the request that is above 0 replaces the scheme's default. */
    return (struct outer){ .rule = scheme->outer.rule,
                           .every = request->outer.every ? request->outer.every : scheme->outer.every,
                           .lr = request->outer.lr > 0 ? request->outer.lr : scheme->outer.lr,
                           .momentum = request->outer.momentum > 0 ? request->outer.momentum : scheme->outer.momentum };
}

enum error_code data_shards(struct shards *shards, const struct data_request *request, int P, int rank,
                            struct error *err)
{
    const struct data_scheme *scheme = NULL;
    const enum error_code e = data_scheme_find(&scheme, request->scheme, err);
    if (e) return e;
    *shards = (struct shards){
        .P = P, .rank = rank, .weights = 1, .gradients = 1, .optimizer = 1, .apart = scheme->outer.every > 0,
        .late = scheme->late && !request->infers, .once = scheme->once && !request->infers
    };
    if (request->group > 0 && P % request->group != 0)
        return fail(err, ERR_PLAN, "--shard-group %d: must divide --dp %d", request->group, P);
    /* The scheme's own function sets w | g | o, and refuses options that the scheme does not have. */
    const char *needs = scheme->share(shards, request);
    if (needs) return fail(err, ERR_PLAN, "--data-parallel %s: %s", scheme->head.name, needs);
    return fail_about(err, shards_check(shards, err), "--shards:");
}

static int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

enum error_code data_expert_shards(struct shards *shards, const struct data_request *request,
                                   const struct shards *all, int P, int rank, struct error *err)
{
    if (!all->apart) return data_shards(shards, request, P, rank, err);
    const int own = P / shards_replicas(all);
    /* Fewer devices hold an expert, so it is cut by divisors that both numbers have. */
    *shards = (struct shards){ .P = P, .rank = rank, .weights = common_divisor(all->weights, own),
                          .gradients = common_divisor(all->gradients, own), .optimizer = own, .apart = true };
    return shards_check(shards, err);
}
