/* shards.c -- the arithmetic of w | g | o: digits of a device's rank, and its part of a row.
 *
 * The whole data room calls these functions, and so do plan/ and model/ for replicas.  All are pure; only
 * shards_check can fail, with ERR_PLAN.
 */
#include "emulated_devices/schemes/data/shards.h"

enum error_code shards_check(const struct shards *shards, struct error *err)
{
    /* Each number of the chain must divide the next; P stands at the end. */
    const int chain[] = { shards->weights, shards->gradients, shards->optimizer, shards->P };
    static const char *const name[] = { "weights", "gradients", "optimizer state" };
    for (int i = 0; i < 3; i++)
        if (chain[i] < 1 || chain[i + 1] % chain[i] != 0)
            return fail(err, ERR_PLAN, "%s shared by %d devices: that must divide %d, %s%s", name[i], chain[i],
                        chain[i + 1], i == 2 ? "the copies along --dp" : "the devices that share the ",
                        i == 2 ? "" : name[i + 1]);
    return OK;
}

/* The stride of a digit is the product of the sizes of all faster digits. */
int shards_stride(const struct shards *shards, enum shard_level level)
{
    const int stride[] = { 1, shards->weights, shards->gradients, shards->optimizer };
    return stride[level];
}

/* Sizes are w, g/w, o/g and P/o. */
int shards_size(const struct shards *shards, enum shard_level level)
{
    return (level == BY_COPIES ? shards->P : shards_stride(shards, level + 1)) / shards_stride(shards, level);
}

int shards_digit(const struct shards *shards, enum shard_level level)
{
    return shards->rank / shards_stride(shards, level) % shards_size(shards, level);
}

/* Replicas are groups of o adjacent devices. */
int shards_replicas(const struct shards *shards) { return shards->apart ? shards->P / shards->optimizer : 1; }
int shards_replica_of(const struct shards *shards, int rank) { return shards->apart ? rank / shards->optimizer : 0; }

struct interval shards_members(const struct shards *shards, int replica)
{
    return shards->apart ? (struct interval){ (int64_t)replica * shards->optimizer, shards->optimizer }
           : (struct interval){ 0, shards->P };
}

/* The row becomes a multiple of o, so every digit cuts its part evenly. */
int64_t shards_pad(const struct shards *shards, int64_t n) { return (n + shards->optimizer - 1) / shards->optimizer
                                                            * shards->optimizer; }

struct interval shards_range(const struct shards *shards, enum shard_level level, int64_t padded)
{
    struct interval r = { 0, padded };
    /* Each level cuts what the level before has left. */
    for (enum shard_level l = BY_WEIGHTS; l <= level && l < BY_COPIES; l++) {
        r.count /= shards_size(shards, l);
        r.first += shards_digit(shards, l) * r.count;
    }
    return r;
}

/* Bytes = padded elements / (devices that share) * bytes of an element, for each of the three kinds. */
struct model_state shards_state(const struct shards *shards, int64_t elements, struct state_bytes each)
{
    const uint64_t n = (uint64_t)shards_pad(shards, elements);
    return (struct model_state){ .weights = n / (uint64_t)shards->weights * each.weight,
                                 .gradients = n / (uint64_t)shards->gradients * each.gradient,
                                 .optimizer = n / (uint64_t)shards->optimizer * each.optimizer };
}
