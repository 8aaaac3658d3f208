/* scheduler.c -- plans iterations of a replica: sequences that run, then those that wait; preemption; prefixes from the
 * cache.  engine.c calls.  Pure: no devices, no time.  ERR_MEMORY of scheduler_open, ERR_INTERNAL of its checks. */
#include "emulated_devices/serve/scheduler.h"
#include <stdlib.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- sequences --------------------------------------------------------------------------------------------------- */

struct sequence *sequence_new(int64_t number, const int32_t *prompt, int64_t count, const struct answer_end *end,
                              int64_t block)
{
    struct sequence *const s = calloc(1, sizeof *s);
    const size_t all = (size_t)(count + end->most), blocks = (all + (size_t)block - 1) / (size_t)block;
    if (s == NULL) return NULL;
    *s = (struct sequence){ .number = number, .prompt = count, .count = count, .end = *end,
                            .token = malloc(all * sizeof *s->token), .block = malloc(blocks * sizeof *s->block),
                            .hash = malloc(blocks * sizeof *s->hash), .away = malloc(blocks * sizeof *s->away) };
    if (s->token && s->block && s->hash && s->away) return memcpy(s->token, prompt, (size_t)count * sizeof *prompt), s;
    sequence_free(s);
    return NULL;
}

void sequence_free(struct sequence *sequence)
{
    if (sequence == NULL) return;
    free(sequence->token), free(sequence->block), free(sequence->hash), free(sequence->away);
    free(sequence);
}

/* The hash of a full block of a sequence, which depends on all blocks before it. */
static const struct sha256_digest *hash_of(struct sequence *sequence, int64_t block, int64_t tokens)
{
    for (; sequence->hashes <= block; sequence->hashes++) {
        const int64_t i = sequence->hashes;
        sequence->hash[i] = block_hash(i > 0 ? &sequence->hash[i - 1] : NULL, sequence->token + i * tokens, tokens);
    }
    return &sequence->hash[block];
}

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

enum error_code scheduler_open(struct scheduler *scheduler, const struct serving_limits *limits, struct error *err)
{
    *scheduler = (struct scheduler){ .limits = *limits };
    scheduler->running = calloc((size_t)limits->running + 1, sizeof *scheduler->running);
    scheduler->now.piece = calloc((size_t)limits->running + 1, sizeof *scheduler->now.piece);
    scheduler->now.ended = calloc((size_t)limits->running + 1, sizeof *scheduler->now.ended);
    scheduler->now.out = calloc((size_t)limits->blocks + 1, sizeof *scheduler->now.out);
    scheduler->now.in = calloc((size_t)limits->blocks + 1, sizeof *scheduler->now.in);
    const struct iteration *const now = &scheduler->now;
    enum error_code e = scheduler->running && now->piece && now->ended && now->out && now->in ? OK
                        : fail(err, ERR_MEMORY, "no memory for %lld sequences", (long long)limits->running);
    if (!e) e = block_pool_open(&scheduler->pool, limits->blocks, limits->block_tokens, err);
    if (!e) e = block_pool_open(&scheduler->host, limits->host_blocks, limits->block_tokens, err);
    if (e) scheduler_close(scheduler);
    return e;
}

void scheduler_close(struct scheduler *scheduler)
{
    const struct iteration *const now = &scheduler->now;
    block_pool_close(&scheduler->pool), block_pool_close(&scheduler->host);
    free(scheduler->running), free(now->piece), free(now->ended), free(now->out), free(now->in);
    *scheduler = (struct scheduler){ 0 };
}

bool scheduler_idle(const struct scheduler *scheduler)
{
    return scheduler->active == 0 && scheduler->waiting == NULL;
}

/* ---- who waits --------------------------------------------------------------------------------------------------- */

void scheduler_add(struct scheduler *scheduler, struct sequence *sequence)
{
    sequence->next = NULL;
    if (scheduler->waiting) scheduler->latest->next = sequence;
    else scheduler->waiting = sequence;
    scheduler->latest = sequence;
}

bool scheduler_add_kept(struct scheduler *scheduler, struct sequence *sequence, int64_t kept)
{
    const int64_t n = blocks_for(&scheduler->host, kept);
    if (n > scheduler->host.free) return false;
    blocks_take(&scheduler->host, sequence->away, n);
    sequence->aways = n, sequence->kept = kept, sequence->handed = true;
    scheduler->counts.outs += n;
    scheduler_add(scheduler, sequence);
    return true;
}

static void wait_first(struct scheduler *scheduler, struct sequence *sequence)
{
    sequence->next = scheduler->waiting;
    if (scheduler->waiting == NULL) scheduler->latest = sequence;
    scheduler->waiting = sequence;
}

static void leave_waiting(struct scheduler *scheduler)
{
    scheduler->waiting = scheduler->waiting->next;
    if (scheduler->waiting == NULL) scheduler->latest = NULL;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Full blocks can be found from now on, before they are computed: who finds one in this iteration reads it after all
 * keys of its layer are written. */
static void register_blocks(struct scheduler *scheduler, struct sequence *sequence, int64_t tokens)
{
    const int64_t full = tokens / scheduler->pool.tokens;
    if (!scheduler->limits.shares) return;
    for (; sequence->registered < full; sequence->registered++)
        block_register(&scheduler->pool, sequence->block[sequence->registered],
                       hash_of(sequence, sequence->registered, scheduler->pool.tokens));
}

/* Give a sequence blocks for its first tokens.  @return false: there are not enough, and nothing has changed. */
static bool grow(struct scheduler *scheduler, struct sequence *sequence, int64_t tokens)
{
    const int64_t own = least(tokens, sequence->count);
    const int64_t more = blocks_for(&scheduler->pool, tokens) - sequence->blocks;
    if (more > scheduler->pool.free) return false;
    if (more > 0) {
        blocks_take(&scheduler->pool, sequence->block + sequence->blocks, more);
        sequence->blocks += more;
    }
    /* A block with a proposal may get another token in its place. */
    register_blocks(scheduler, sequence, own);
    return true;
}

static void release(struct scheduler *scheduler, struct sequence *sequence)
{
    blocks_release(&scheduler->pool, sequence->block, sequence->blocks);
    sequence->blocks = sequence->registered = 0;
}

static void release_host(struct scheduler *scheduler, struct sequence *sequence)
{
    blocks_release(&scheduler->host, sequence->away, sequence->aways);
    sequence->aways = sequence->kept = 0;
}

/* The blocks of the cache that hold a sequence's longest prefix, but never all of its tokens: the last one's logits
 * are wanted.  @param[out] block  [blocks] room for all of its tokens.  @return how many. */
static int64_t find_prefix(struct scheduler *scheduler, struct sequence *sequence, int64_t *block)
{
    const int64_t most = scheduler->limits.shares ? (sequence->count - 1) / scheduler->pool.tokens : 0;
    int64_t found = 0;
    for (; found < most; found++) {
        block[found] = block_find(&scheduler->pool, hash_of(sequence, found, scheduler->pool.tokens));
        if (block[found] == NO_BLOCK) break;
    }
    return found;
}

/* ---- the iteration ----------------------------------------------------------------------------------------------- */

static void add_piece(struct iteration *now, struct sequence *sequence, int64_t count)
{
    const int64_t more = sequence->computed + count - sequence->count;
    now->piece[now->pieces++] = (struct token_piece){ sequence, sequence->computed, count, more >= 0,
                                                      more > 0 ? more : 0 };
    now->tokens += count, now->samples += more >= 0, now->proposals += more > 0 ? more : 0;
}

/* Copy the keys and values of a sequence to the host, if there is room for all of them. */
static void send_away(struct scheduler *scheduler, struct sequence *sequence)
{
    struct iteration *const now = &scheduler->now;
    const int64_t n = blocks_for(&scheduler->pool, sequence->computed);
    if (n > scheduler->host.free) return;
    blocks_take(&scheduler->host, sequence->away, n);
    for (int64_t i = 0; i < n; i++)
        now->out[now->outs++] = (struct block_copy){ sequence->block[i], sequence->away[i] };
    sequence->aways = n, sequence->kept = sequence->computed;
}

/* Copy back what the cache has not, and give the host's blocks to others. */
static void bring_back(struct scheduler *scheduler, struct sequence *sequence, int64_t found)
{
    struct iteration *const now = &scheduler->now;
    for (int64_t i = found; i < sequence->aways; i++)
        now->in[now->ins++] = (struct block_copy){ sequence->away[i], sequence->block[i] };
    release_host(scheduler, sequence);
}

/* The last sequence that runs loses its blocks, and begins again with all of its tokens, or with those of the host. */
static struct sequence *preempt_last(struct scheduler *scheduler)
{
    struct sequence *const last = scheduler->running[--scheduler->active];
    send_away(scheduler, last);
    release(scheduler, last);
    last->computed = last->proposals = 0;
    last->preempted++;
    scheduler->now.preempted++, scheduler->counts.preemptions++;
    wait_first(scheduler, last);
    return last;
}

static void plan_running(struct scheduler *scheduler, int64_t *left)
{
    const int64_t chunk = scheduler->limits.chunk;
    for (int64_t i = 0; i < scheduler->active && *left > 0; i++) {
        struct sequence *const s = scheduler->running[i];
        int64_t n = least(s->count + s->proposals - s->computed, *left);
        if (chunk > 0) n = least(n, chunk);
        if (n == 0) continue;
        /* Without a block for a proposal there is none. */
        while (s->computed + n > s->count && !grow(scheduler, s, s->computed + n)) n--;
        /* Sequences behind this one have no tokens in this iteration yet, so the last can lose its blocks. */
        while (!grow(scheduler, s, s->computed + n))
            if (preempt_last(scheduler) == s) return;
        add_piece(&scheduler->now, s, n);
        *left -= n;
    }
}

/* Begin the first that waits.  @return false: it has no room. */
static bool start_first(struct scheduler *scheduler, int64_t *left)
{
    struct sequence *const s = scheduler->waiting;
    struct block_pool *const pool = &scheduler->pool;
    const int64_t found = find_prefix(scheduler, s, s->block), shared = found * pool->tokens;
    const int64_t first = shared > s->kept ? shared : s->kept;
    int64_t n = s->count - first, unused = 0;
    if (scheduler->limits.chunk > 0) n = least(n, scheduler->limits.chunk);
    if (scheduler->limits.whole_prompts && n > *left) return false;
    n = least(n, *left);
    for (int64_t i = 0; i < found; i++) unused += pool->users[s->block[i]] == 0;
    /* Blocks that were found leave the queue before others are taken from it. */
    if (blocks_for(pool, first + n) - found > pool->free - unused) return false;
    for (int64_t i = 0; i < found; i++) block_use(pool, s->block[i]);
    s->blocks = s->registered = found, s->computed = first;
    grow(scheduler, s, first + n);
    bring_back(scheduler, s, found);
    leave_waiting(scheduler);
    scheduler->running[scheduler->active++] = s;
    if (s->preempted == 0 && !s->handed)
        scheduler->counts.prompt_tokens += s->prompt, scheduler->counts.shared_tokens += shared;
    if (!s->handed) s->shared += shared;
    add_piece(&scheduler->now, s, n);
    scheduler->now.started++;
    *left -= n;
    return true;
}

const struct iteration *scheduler_plan(struct scheduler *scheduler)
{
    struct iteration *const now = &scheduler->now;
    struct serving_counts *const counts = &scheduler->counts;
    int64_t left = scheduler->limits.step_tokens;
    *now = (struct iteration){ .piece = now->piece, .ended = now->ended, .out = now->out, .in = now->in };
    plan_running(scheduler, &left);
    while (now->preempted == 0 && left > 0 && scheduler->waiting && scheduler->active < scheduler->limits.running)
        if (!start_first(scheduler, &left)) break;
    for (int64_t i = 0; i < now->pieces; i++) now->piece[i].of->computed += now->piece[i].count;
    const int64_t used = scheduler->pool.blocks - scheduler->pool.free;
    counts->outs += now->outs, counts->ins += now->ins;
    counts->iterations++, counts->tokens += now->tokens, counts->used_blocks += (double)used;
    if (used > counts->most_blocks) counts->most_blocks = used;
    return now;
}

/* ---- what was sampled -------------------------------------------------------------------------------------------- */

static enum finish finish_of(const struct sequence *sequence)
{
    const struct answer_end *const end = &sequence->end;
    for (int i = 0; i < end->stops; i++)
        if (end->stop[i] == sequence->token[sequence->count - 1]) return FINISH_STOP;
    return sequence->count - sequence->prompt == end->most ? FINISH_LENGTH : NOT_FINISHED;
}

/* The others that run keep their order. */
static void leave_running(struct scheduler *scheduler, const struct sequence *sequence)
{
    int64_t at = 0;
    while (scheduler->running[at] != sequence) at++;
    scheduler->active--;
    memmove(scheduler->running + at, scheduler->running + at + 1,
            (size_t)(scheduler->active - at) * sizeof *scheduler->running);
}

static void end_of_sequence(struct scheduler *scheduler, struct sequence *sequence)
{
    release(scheduler, sequence), release_host(scheduler, sequence);
    scheduler->now.ended[scheduler->now.ends++] = sequence;
}

/* The plan learns of a stop token one iteration late; of the last token that was asked for it knows. */
static bool ends_late(const struct scheduler *scheduler, const struct sequence *sequence)
{
    return scheduler->limits.ahead && sequence->finish == FINISH_STOP &&
           sequence->count - sequence->prompt < sequence->end.most;
}

/* The tokens of one piece.  Of its proposals those before the last of these tokens stay computed. */
static void take_piece(struct scheduler *scheduler, struct sequence *sequence, const struct taken_tokens *taken)
{
    if (sequence->ending) sequence->finish = FINISH_STOP, scheduler->counts.wasted++;
    for (int64_t i = 0; i < taken->tokens && sequence->finish == NOT_FINISHED; i++) {
        sequence->token[sequence->count++] = taken->token[i];
        sequence->finish = finish_of(sequence);
    }
    if (!sequence->ending && ends_late(scheduler, sequence)) sequence->ending = true, sequence->finish = NOT_FINISHED;
    sequence->computed = sequence->count - 1;
    sequence->proposals = taken->proposals;
    if (taken->proposals > 0)
        memcpy(sequence->token + sequence->count, taken->proposal,
               (size_t)taken->proposals * sizeof *taken->proposal);
    if (sequence->finish == NOT_FINISHED) return;
    leave_running(scheduler, sequence);
    end_of_sequence(scheduler, sequence);
}

/* A sequence that lost its blocks behind its stop token does not begin again. */
static void end_preempted(struct scheduler *scheduler)
{
    while (scheduler->waiting && scheduler->waiting->ending) {
        struct sequence *const s = scheduler->waiting;
        leave_waiting(scheduler);
        s->finish = FINISH_STOP;
        end_of_sequence(scheduler, s);
    }
}

enum error_code scheduler_take_proposed(struct scheduler *scheduler, const struct taken_tokens *taken,
                                        struct error *err)
{
    const struct iteration *const now = &scheduler->now;
    for (int64_t i = 0; i < now->pieces; i++)
        if (now->piece[i].samples) take_piece(scheduler, now->piece[i].of, taken++);
    end_preempted(scheduler);
    return scheduler_check(scheduler, err);
}

static void leave_list(struct scheduler *scheduler, const struct sequence *sequence)
{
    struct sequence *before = scheduler->waiting;
    if (before == sequence) { leave_waiting(scheduler); return; }
    while (before && before->next != sequence) before = before->next;
    if (before == NULL) return;
    before->next = sequence->next;
    if (scheduler->latest == sequence) scheduler->latest = before;
}

void scheduler_drop(struct scheduler *scheduler, struct sequence *sequence)
{
    release(scheduler, sequence), release_host(scheduler, sequence);
    for (int64_t i = 0; i < scheduler->active; i++)
        if (scheduler->running[i] == sequence) { leave_running(scheduler, sequence); return; }
    leave_list(scheduler, sequence);
}

enum error_code scheduler_take(struct scheduler *scheduler, const int32_t *token, struct error *err)
{
    const struct iteration *const now = &scheduler->now;
    for (int64_t i = 0; i < now->pieces; i++)
        if (now->piece[i].samples)
            take_piece(scheduler, now->piece[i].of, &(struct taken_tokens){ token++, 1, NULL, 0 });
    end_preempted(scheduler);
    return scheduler_check(scheduler, err);
}

enum error_code scheduler_check(struct scheduler *scheduler, struct error *err)
{
    int64_t lists = 0, away = 0;
    for (int64_t i = 0; i < scheduler->active; i++) {
        const struct sequence *const s = scheduler->running[i];
        lists += s->blocks;
        if (s->blocks < blocks_for(&scheduler->pool, s->computed))
            return fail(err, ERR_INTERNAL, "sequence %lld has %lld tokens in %lld blocks of the cache",
                        (long long)s->number, (long long)s->computed, (long long)s->blocks);
    }
    for (const struct sequence *s = scheduler->waiting; s; s = s->next) {
        away += s->aways;
        if (s->blocks > 0 || s->computed > 0)
            return fail(err, ERR_INTERNAL, "sequence %lld waits, and has %lld tokens in %lld blocks of the cache",
                        (long long)s->number, (long long)s->computed, (long long)s->blocks);
    }
    if (away != scheduler->host.blocks - scheduler->host.free)
        return fail(err, ERR_INTERNAL, "sequences that wait have %lld blocks of the host; it counts %lld",
                    (long long)away, (long long)(scheduler->host.blocks - scheduler->host.free));
    if (lists != scheduler->pool.uses)
        return fail(err, ERR_INTERNAL, "sequences have %lld blocks in their lists; the cache counts %lld",
                    (long long)lists, (long long)scheduler->pool.uses);
    const enum error_code e = block_pool_check(&scheduler->pool, err);
    return e ? e : block_pool_check(&scheduler->host, err);
}
