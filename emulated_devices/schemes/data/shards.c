#include "emulated_devices/schemes/data/shards.h"

enum error_code shards_check(const struct shards *s, struct error *err)
{
    const int chain[] = { s->weights, s->gradients, s->optimizer, s->P };
    static const char *const name[] = { "weights", "gradients", "optimizer state" };
    for (int i = 0; i < 3; i++)
        if (chain[i] < 1 || chain[i + 1] % chain[i] != 0)
            return fail(err, ERR_PLAN, "%s shared by %d devices: that must divide %d, %s%s", name[i], chain[i],
                        chain[i + 1], i == 2 ? "the copies along --dp" : "the devices that share the ",
                        i == 2 ? "" : name[i + 1]);
    return OK;
}

int shards_stride(const struct shards *s, enum shard_level level)
{
    const int stride[] = { 1, s->weights, s->gradients, s->optimizer };
    return stride[level];
}

int shards_size(const struct shards *s, enum shard_level level)
{
    return (level == BY_COPIES ? s->P : shards_stride(s, level + 1)) / shards_stride(s, level);
}

int shards_digit(const struct shards *s, enum shard_level level)
{
    return s->rank / shards_stride(s, level) % shards_size(s, level);
}

int shards_replicas(const struct shards *s) { return s->apart ? s->P / s->optimizer : 1; }
int shards_replica_of(const struct shards *s, int rank) { return s->apart ? rank / s->optimizer : 0; }

struct interval shards_members(const struct shards *s, int replica)
{
    return s->apart ? (struct interval){ (int64_t)replica * s->optimizer, s->optimizer } : (struct interval){ 0, s->P };
}

int64_t shards_pad(const struct shards *s, int64_t n) { return (n + s->optimizer - 1) / s->optimizer * s->optimizer; }

struct interval shards_range(const struct shards *s, enum shard_level level, int64_t padded)
{
    struct interval r = { 0, padded };
    /* Each level cuts what the level before has left. */
    for (enum shard_level l = BY_WEIGHTS; l <= level && l < BY_COPIES; l++) {
        r.count /= shards_size(s, l);
        r.first += shards_digit(s, l) * r.count;
    }
    return r;
}

struct model_state shards_state(const struct shards *s, int64_t elements, struct state_bytes each)
{
    const uint64_t n = (uint64_t)shards_pad(s, elements);
    return (struct model_state){ .weights = n / (uint64_t)s->weights * each.weight,
                                 .gradients = n / (uint64_t)s->gradients * each.gradient,
                                 .optimizer = n / (uint64_t)s->optimizer * each.optimizer };
}
