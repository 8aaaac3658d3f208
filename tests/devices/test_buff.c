/* Weights in groups of their own, independent of those that share sequences (buff): the same model whoever keeps what;
 * bytes of a block and the crossing with tensor parallelism as published; two blocks of weights at once; optimizer
 * state over dp x cp.
 * ranks: 4
 * verify ranks: 8
 *
 * That each agrees with one device, and that messages, bytes and memory equal their formulas, is part of every case.
 */
#include "ref/model/params.h"
#include "tests/devices/counted.h"
#include "tests/devices/trained.h"

/* ---- the same model ---------------------------------------------------------------------------------------------- */

static struct plan plan_of(int sp, int w, int o)
{
    struct plan p = case_plan(test_size / sp, 1, 1);
    p.model.L = 1, p.model.tied = false, p.S = p.model.S = 9, p.micros = 1;
    p.data.scheme = "buff";
    p.data.shards[0] = p.data.shards[1] = w, p.data.shards[2] = o;
    case_take_context(&p, sp, sp > 1 ? "ulysses" : "whole");
    return p;
}

static uint64_t bits_of(struct plan p)
{
    uint64_t hash = 0;
    ASSERT_ALL(plan_check(&p, &err) == OK && case_train(&p, CASE_STEPS, &hash, NULL, &err) == OK, "%s: %s",
               p.data.scheme, err.text);
    return hash;
}

/* Gradients are added in groups of w, then of o, then of all: with the same such sizes in the same order.  The first of
 * each class is compared with one device to 1e-12, the others have its bits. */
static void one_sequence_group(int sp)
{
    uint64_t of_class[16 + 1] = { 0 };
    for (int w = 1; w <= test_size; w *= 2)
        for (int o = w; o <= test_size; o *= 2) {
            struct plan p = plan_of(sp, w, o);
            const int class = (w < test_size ? w : 1) | (o < test_size ? o : 1);
            const bool first = of_class[class] == 0;
            const uint64_t bits = first ? check(&p).whole_hash : bits_of(p);
            if (first) of_class[class] = test_rank == 0 ? bits : 1;
            ASSERT_ALL(test_rank > 0 || bits == of_class[class],
                       "sp=%d, weights over %d, optimizer state over %d: not the bits of the same order of sums", sp, w,
                       o);
        }
}

static void test_every_group_of_weights(void **state)
{
    (void)state;
    for (int sp = 1; sp <= test_size; sp *= 2)
        if (tier_now() == TIER_VERIFY || sp == 2 || sp == test_size) one_sequence_group(sp);
}

static void test_is_a_choice_of_chain(void **state)
{
    (void)state;
    struct plan p = plan_of(2, 2, test_size), chain = p;
    chain.data.scheme = "chain";
    const uint64_t given = bits_of(p), same = bits_of(chain);
    p.data.shards[0] = p.data.shards[1] = p.data.shards[2] = 0;         /* weights over cp, state over all */
    const uint64_t usual = bits_of(p);
    p.data.group = 2;
    const uint64_t grouped = bits_of(p);
    ASSERT_ALL(usual == given && grouped == given && same == given, "buff of 2 | 2 | %d: other bits than chain",
               test_size);
    p.data.shards[0] = p.data.shards[1] = p.data.shards[2] = 2;
    ASSERT_ALL(plan_check(&p, &err) == ERR_PLAN && strstr(err.text, "not both"), "%s", err.text);
    p.data.group = 3, p.data.shards[0] = 0;
    ASSERT_ALL(plan_check(&p, &err) == ERR_PLAN && strstr(err.text, "--shard-group 3"), "%s", err.text);
}

/* ---- what is counted --------------------------------------------------------------------------------------------- */

enum { D = 32, H = 8 };

static struct plan even_plan(int dp, int tp, int cp, const char *data)
{
    struct plan p = case_plan(dp, tp, 1);
    p.model.D = D, p.model.H = p.model.K = H, p.model.A = D / H, p.model.F = 4 * D, p.model.V = 32;
    p.S = p.model.S = 32, p.B = 4, p.micros = 1, p.dtype = F32;
    p.data.scheme = data;
    p.data.bucket = 1 << 20;
    if (cp > 1) case_take_context(&p, cp, "ulysses");
    return p;
}

/* Weights, tokens and parts of layers. */
static uint64_t sent_by_a_block(struct plan p)
{
    const struct counted n = count_block(p);
    return n.sent[TRAFFIC_DATA] + n.sent[TRAFFIC_ATTENTION] + n.sent[TRAFFIC_TENSOR];
}

/* n: of a block of GPT-2, 12 D^2 of matrices and 13 D of biases and norms.  Weights travel over w devices for each
 * microbatch.  Once a step gradients are reduce-scattered among P/w devices, and new weights gathered. */
static void test_bytes_of_a_block(void **state)
{
    (void)state;
    const int P = test_size;
    const int64_t n = 12 * D * D + 13 * D;
    for (int w = 1; w <= P; w *= 2) {
        struct plan p = even_plan(1, 1, P, "buff");
        p.data.group = w, p.micros = 2;
        const int64_t BSD = p.B * p.S * D, weights = p.micros * 3 * n * (w - 1) / w,
                      tokens = 8 * BSD * (P - 1) / (P * P), replicas = 2 * (n / w) * (P / w - 1) / (P / w);
        const uint64_t sent = sent_by_a_block(p), want = 4 * (uint64_t)(weights + tokens + replicas);
        ASSERT_ALL(sent == want, "weights over %d of %d: a block sends %llu bytes, not %llu", w, P,
                   (unsigned long long)sent, (unsigned long long)want);
    }
}

/* Whole weights and gathered tokens: 8 B S D (P-1)/P, and gradients of two norms.  Fewer bytes with weights that travel
 * if B S (1 - 1/P) > 4.5 D, on either side of it. */
static void test_crossing_with_tensor_parallelism(void **state)
{
    (void)state;
    const int P = test_size;
    for (int above = 0; above < 2; above++) {
        struct plan buff = even_plan(1, 1, P, "buff"), tensor = even_plan(1, P, 1, "ddp");
        tensor.tensor = "1d-sp-keep";
        const int64_t S = above ? 64 : 32;
        buff.S = tensor.S = buff.model.S = tensor.model.S = S;
        const int64_t BS = buff.B * S, norms = 2 * 4 * D * (P - 1) / P;
        const uint64_t weights = sent_by_a_block(buff), tokens = sent_by_a_block(tensor);
        assert_int_equal((double)BS * (P - 1) / P > 4.5 * D, above);
        ASSERT_ALL(tokens == 4 * (uint64_t)(8 * BS * D * (P - 1) / P + norms), "1d-sp-keep sends %llu bytes a block",
                   (unsigned long long)tokens);
        ASSERT_ALL((weights < tokens) == above, "%lld tokens: buff sends %llu bytes a block, 1d-sp-keep %llu",
                   (long long)BS, (unsigned long long)weights, (unsigned long long)tokens);
    }
}

/* Its own part of everything and two blocks, or one if nothing is gathered in advance.  The embedding and the loss are
 * smaller than a block. */
static void test_two_blocks_at_once(void **state)
{
    (void)state;
    const uint64_t block = 4 * (12 * D * D + 13 * D);
    for (int slots = 1; slots <= 2; slots++)
        for (int w = 2; w <= test_size; w *= 2) {
            struct plan p = even_plan(1, 1, test_size, "buff");
            p.model.L = 4, p.data.group = w, p.data.no_prefetch = slots == 1;
            const uint64_t own = 4 * (uint64_t)model_elements(&p.model) / (uint64_t)w, peak = count(p).peak[PARAMETERS];
            ASSERT_ALL(peak == own + (uint64_t)slots * block,
                       "weights over %d: %llu bytes at once, not the own %llu and %d blocks of %llu", w,
                       (unsigned long long)peak, (unsigned long long)own, slots, (unsigned long long)block);
        }
}

/* LoongTrain's hybrid ZeRO: 12 n/(dp cp) bytes of masters and moments, whoever keeps the weights. */
static void test_optimizer_state_over_copies_and_sequences(void **state)
{
    static const char *const schemes[] = { "zero1", "buff", "zero3" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p = even_plan(2, 1, test_size / 2, schemes[i]);
        case_take_context(&p, test_size / 2, "loongtrain");
        p.split.heads = 2, p.dtype = BF16;
        assert_int_equal(optimizer_find(&p.optimizer, "adamw", NULL), OK);
        p.hyper = p.optimizer->usual;
        const uint64_t kept = count(p).peak[OPTIMIZER], n = (uint64_t)model_elements(&p.model);
        ASSERT_ALL(kept == 12 * n / (uint64_t)test_size, "%s: %llu bytes of optimizer state, not 12 x %llu / %d",
                   p.data.scheme, (unsigned long long)kept, (unsigned long long)n, test_size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_group_of_weights), MPI_TEST(test_is_a_choice_of_chain), MPI_TEST(test_bytes_of_a_block),
        MPI_TEST(test_crossing_with_tensor_parallelism), MPI_TEST(test_two_blocks_at_once),
        MPI_TEST(test_optimizer_state_over_copies_and_sequences),
    };
    return MPI_RUN("buff", tests);
}
