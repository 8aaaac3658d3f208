/* A trace of requests from anybody: one that is accepted has requests that the model can take, and a scheduler serves
 * all of them.
 * tier: check
 */
#include "emulated_devices/serve/requests.h"
#include "emulated_devices/serve/scheduler.h"
#include "tests/fuzz/fuzz.h"

enum { V = 100, POSITIONS = 24, FEW = 6 };

/* Requests have only tokens of the model, and fit. */
static void look(const struct request *r)
{
    must(r->name != NULL && r->arrival >= 0 && r->most >= 1, "request %s", r->name ? r->name : "without a name");
    must(r->prompt.count >= 1 && r->prompt.count + r->most <= POSITIONS, "%d tokens", (int)r->prompt.count);
    for (int64_t i = 0; i < r->prompt.count; i++) must(r->prompt.id[i] >= 0 && r->prompt.id[i] < V, "a token");
    for (int64_t i = 0; i < r->stop.count; i++) must(r->stop.id[i] >= 0 && r->stop.id[i] < V, "a stop token");
    must(r->how.temperature >= 0 && r->how.top_p > 0 && r->how.top_p <= 1 && r->how.top_k >= 0, "how it is drawn");
}

/* Serve the first few with a token that is always the same. */
static void serve(const struct requests *all)
{
    const struct serving_limits limits = { .step_tokens = 5, .running = 3, .blocks = 7, .block_tokens = 4,
                                           .shares = true };
    const int32_t same[3] = { 1, 1, 1 };
    const int64_t few = all->count < FEW ? all->count : FEW;
    struct sequence *sequence[FEW];
    struct scheduler s;
    struct error err;
    must(scheduler_open(&s, &limits, &err) == OK, "%s", err.text);
    for (int64_t i = 0; i < few; i++) {
        const struct request *const r = &all->at[i];
        sequence[i] = sequence_new(i, r->prompt.id, r->prompt.count,
                                   &(struct answer_end){ r->most, r->stop.id, (int)r->stop.count },
                                   limits.block_tokens);
        scheduler_add(&s, sequence[i]);
    }
    for (int step = 0; !scheduler_idle(&s); step++) {
        scheduler_plan(&s);
        must(step < 1000 && scheduler_take(&s, same, &err) == OK, "%s", err.text);
    }
    must(s.pool.free == limits.blocks, "%d blocks are free", (int)s.pool.free);
    for (int64_t i = 0; i < few; i++) sequence_free(sequence[i]);
    scheduler_close(&s);
}

static void try(const uint8_t *data, size_t size)
{
    static const int32_t stop[] = { 10 };
    const struct request_rules rules = { .V = V, .S = POSITIONS, .stop = stop, .stops = 1, .seed = 3 };
    struct error err = { 0 };
    struct requests all;
    if (requests_read(&all, as_file(data, size), &rules, &err) != OK) {
        must(err.text[0] != '\0' && all.count == 0, "refused without a word");
        return;
    }
    for (int64_t i = 0; i < all.count; i++) {
        look(&all.at[i]);
        must(i == 0 || all.at[i - 1].arrival <= all.at[i].arrival, "not by arrival");
    }
    serve(&all);
    requests_free(&all);
}

FUZZ_TARGET("trace")
