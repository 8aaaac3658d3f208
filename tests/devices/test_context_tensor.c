/* Sequence parallelism as Megatron-LM has it, tokens gathered along tp, together with every attention scheme along cp:
 * equal to one device; what each sends is its own part, by formula.
 * ranks: 4
 * verify ranks: 6
 *
 * tp 2 x cp 2, tp 2 x cp 3, tp 3 x cp 2.  In every case the counters also equal the predictions.
 */
#include "tests/devices/counted.h"
#include "tests/devices/trained.h"

static const char *const tensors[] = { "1d-sp", "1d-sp-keep", "1d-sp-overlap" };

/* Below `make verify` every attention scheme on one of three meshes, with one tensor scheme. */
static void each(void (*f)(const struct attention_scheme *, const char *tensor, int tp, int cp))
{
    for (int i = 1; attention_scheme_at(i); i++)        /* the first one cuts nothing */
        for (int tp = 2; tp <= 3; tp++) {
            const int cp = test_size / tp, mesh = test_size == 4 ? 0 : tp - 1;
            if (tp * cp != test_size || attention_scheme_at(i)->cuts_streams) continue;
            if (tier_now() == TIER_VERIFY)
                for (int t = 0; t < 3; t++) f(attention_scheme_at(i), tensors[t], tp, cp);
            else if (i % 3 == mesh) f(attention_scheme_at(i), tensors[i / 3 % 3], tp, cp);
        }
}

/* ---- the same model ---------------------------------------------------------------------------------------------- */

/* Packed samples, so that plans have something to place; tokens, heads and widths that divide by nothing. */
static void as_one_device(const struct attention_scheme *scheme, const char *tensor, int tp, int cp)
{
    struct plan p = case_plan(1, tp, 1);
    p.model.L = 2, p.B = 5, p.packed = true, p.tensor = tensor;
    case_take_context(&p, cp, scheme->head.name);
    check(&p);
}

static void test_equals_one_device(void **state) { (void)state; each(as_one_device); }

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static uint64_t over_devices(uint64_t mine)
{
    uint64_t sum = 0;
    MPI_Request request;
    MPI_Iallreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, harness, &request);
    patience_meet(&request);
    return sum;
}

enum { D = 24, B = 1, S = 24 };

static struct plan even_plan(int dp, int tp, int cp, const char *attention)
{
    struct plan p = case_plan(dp, tp, 1);
    p.model.D = D, p.model.H = p.model.K = 12, p.model.A = 2, p.model.F = 4 * D;
    p.S = p.model.S = S, p.B = B * dp, p.micros = 1;
    case_take_context(&p, cp, attention);
    return p;
}

/* Of all devices, for a block.  Tensor parallelism: 4 all-gathers and 4 reduce-scatters of the tokens that tp devices
 * share, 2 more if they are gathered again for the weights' gradient, and all-reduces of gradients of norms.
 * Attention: what tp copies send, each with as many sequences, over tp; a plan may leave a sequence on one device. */
static void each_its_part(const struct attention_scheme *scheme, const char *tensor, int tp, int cp)
{
    struct plan p = even_plan(1, tp, cp, scheme->head.name);
    p.tensor = tensor;
    const struct counted n = count_block(p), copies = count_block(even_plan(tp, 1, cp, scheme->head.name));
    const uint64_t sent = over_devices(n.sent[TRAFFIC_TENSOR]), attention = over_devices(n.sent[TRAFFIC_ATTENTION]),
                   whole = over_devices(copies.sent[TRAFFIC_ATTENTION]);
    const uint64_t gathered = strcmp(tensor, "1d-sp-keep") == 0 ? 8 : 10, norms = (uint64_t)cp * 2 * 4 * D,
                   want = 8 * (uint64_t)(tp - 1) * (gathered * B * S * D + norms);
    ASSERT_ALL(sent == want, "%s tp=%d, %s cp=%d: a block's tensor part is %llu bytes, not %llu", tensor, tp,
               scheme->head.name, cp, (unsigned long long)sent, (unsigned long long)want);
    ASSERT_ALL(attention * (uint64_t)tp == whole && (attention > 0 || scheme->plan),
               "%s tp=%d, %s cp=%d: a block's attention part is %llu bytes, not 1/%d of %llu", tensor, tp,
               scheme->head.name, cp, (unsigned long long)attention, tp, (unsigned long long)whole);
}

static void test_bytes_are_the_sum_of_both(void **state) { (void)state; each(each_its_part); }

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_equals_one_device), MPI_TEST(test_bytes_are_the_sum_of_both) };
    return MPI_RUN("context and tensor", tests);
}
