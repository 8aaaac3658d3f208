/* Mixed precision: 16-bit weights with fp32 masters under every data scheme, gradients in either format, loss scaling
 * that all agree on.
 * ranks: 1 4
 * verify ranks: 2
 */
#include "ref/model/params.h"
#include "tests/devices/trained.h"
#include <math.h>

struct formats { enum dtype dtype; bool narrow_gradients; };
static const struct formats formats[] = { { BF16, false }, { BF16, true }, { F16, false }, { F16, true } };
enum { FORMATS = sizeof formats / sizeof *formats };

static const char *in(struct formats f, char *out, size_t size)
{
    snprintf(out, size, "%s, gradients in %s", dtype_name(f.dtype), dtype_name(f.narrow_gradients ? f.dtype : F32));
    return out;
}

/* SGD, untied; a scale that nothing overflows with in three steps. */
static struct plan mixed_plan(int dp, int tp, int pp, struct formats f)
{
    struct plan p = case_plan(dp, tp, pp);
    p.model.L = pp;
    p.model.tied = false;
    p.dtype = f.dtype;
    p.data.narrow_gradients = f.narrow_gradients;
    p.loss_scale = f.dtype == F16 ? 1024 : 0;
    return p;
}

/* ---- one device's numbers, and whoever keeps what the same bits -------------------------------------------------- */

static void test_agrees_with_one_device(void **state)
{
    (void)state;
    for (int f = 0; f < FORMATS; f++) {
        struct plan p = mixed_plan(test_size, 1, 1, formats[f]), tp = mixed_plan(1, test_size, 1, formats[f]),
                    pp = mixed_plan(1, 1, test_size, formats[f]);
        p.data.scheme = f % 2 ? "zero3" : "fsdp";
        const struct outcome o = check(&p);
        ASSERT_ALL(o.skipped == 0, "%lld steps were skipped", (long long)o.skipped);
        check(&tp);
        check(&pp);
    }
}

/* Sums of gradients over tp are made, and counted, in the gradients' format, as are those of copied keys and values. */
static void test_every_tensor_scheme(void **state)
{
    (void)state;
    for (int i = 0; tensor_scheme_at(i) && test_size > 1; i++) {
        struct plan p = mixed_plan(1, test_size, 1, formats[i % FORMATS / 2 * 2]);
        if (i % 2) case_take_llama(&p);
        p.tensor = tensor_scheme_at(i)->head.name;
        check_if_taken(p);
    }
    struct plan copies = mixed_plan(1, test_size, 1, formats[0]);
    case_take_llama(&copies);
    copies.model.K = 1;
    check(&copies);
}

static struct plan adam_plan(struct formats f)
{
    struct plan p = mixed_plan(test_size, 1, 1, f);
    p.B = 2 * test_size + 1, p.S = 3, p.micros = 1;
    p.optimizer = optimizers[0];
    p.hyper = p.optimizer->usual;
    p.hyper.clip = 0;
    p.allreduce = "two_shot", p.data.reduce_scatter = "direct";         /* both add in the order of ranks */
    return p;
}

static void test_same_gradients_in_same_weights_out(void **state)
{
    static const char *const schemes[] = { "ddp", "zero1", "zero2", "zero3", "fsdp" };
    char what[64];
    (void)state;
    for (int f = 0; f < FORMATS; f++) {
        uint64_t first = 0, hash = 0;
        for (int i = 0; i < 5; i++) {
            struct plan p = adam_plan(formats[f]);
            p.data.scheme = schemes[i];
            ASSERT_ALL(plan_check(&p, &err) == OK && case_train(&p, 6, &hash, NULL, &err) == OK, "%s: %s", schemes[i],
                       err.text);
            if (i == 0) first = hash;
            ASSERT_ALL(test_rank != 0 || hash == first, "%s: weights of %s have other bits than ddp's",
                       in(formats[f], what, sizeof what), schemes[i]);
        }
    }
}

/* The format of gradients decides something. */
static void test_gradients_of_other_formats_are_others(void **state)
{
    uint64_t wide = 0, narrow = 0;
    (void)state;
    for (int f = 0; f < FORMATS; f += 2) {
        struct plan a = adam_plan(formats[f]), b = adam_plan(formats[f + 1]);
        ASSERT_ALL(plan_check(&a, &err) == OK && case_train(&a, 2, &wide, NULL, &err) == OK, "%s", err.text);
        ASSERT_ALL(plan_check(&b, &err) == OK && case_train(&b, 2, &narrow, NULL, &err) == OK, "%s", err.text);
        ASSERT_ALL(test_rank != 0 || wide != narrow, "%s: gradients in 16 bits make the same weights as in fp32",
                   dtype_name(formats[f].dtype));
    }
}

/* ---- loss scale -------------------------------------------------------------------------------------------------- */

/* Whatever the scale, everything is what one device computes, counts included, and both skip the same steps. */
static void test_overflow_is_agreed_on(void **state)
{
    int64_t some = 0;
    (void)state;
    for (int power = 12; power <= 127; power += power < 24 ? 1 : 103) {
        struct plan p = mixed_plan(test_size, 1, 1, formats[power % 2 ? 3 : 2]);
        p.data.scheme = power % 3 ? "zero2" : "zero1";
        p.loss_scale = ldexp(1, power);
        const struct outcome o = check(&p);
        ASSERT_ALL(power < 127 || o.skipped == CASE_STEPS, "with a scale of 2^127 %lld steps of %d were skipped",
                   (long long)o.skipped, CASE_STEPS);
        some += o.skipped > 0 && o.skipped < CASE_STEPS;
    }
    ASSERT_ALL(some > 0, "no run skipped some steps and took others");
}

/* Nothing of a skipped step is left: neither in the weights nor in their masters. */
static void test_skipped_steps_change_nothing(void **state)
{
    struct step_result last;
    uint64_t before, after;
    (void)state;
    struct plan p = adam_plan(formats[3]);
    p.data.scheme = "zero1";
    p.loss_scale = 0x1p127;
    ASSERT_ALL(plan_check(&p, &err) == OK && case_train(&p, 0, &before, NULL, &err) == OK &&
                   case_train(&p, 3, &after, &last, &err) == OK,
               "%s", err.text);
    ASSERT_ALL(last.skipped && last.loss_scale == 0x1p125, "the third step's scale was %g", last.loss_scale);
    ASSERT_ALL(test_rank != 0 || before == after, "steps were skipped, and the weights are others");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Elements of all units, each padded for the devices that share it; of the largest;
 * of the two neighbours that are largest together. */
struct sizes { uint64_t all, largest, two; };

static struct sizes padded_sizes(const struct model_config *c, uint64_t P)
{
    uint64_t unit[16] = { 0 }, part[16] = { 0 };
    struct sizes s = { 0 };
    const int parts = (int)c->L + 2;
    for (int i = 0; i < model_param_count(c); i++) {
        const struct param_spec p = model_param(c, i);
        unit[unit_of(&p)] += (uint64_t)(p.dim[0] * (p.ndim == 2 ? p.dim[1] : 1));
    }
    for (int u = 0; u < unit_count(c); u++) {
        const uint64_t n = (unit[u] + P - 1) / P * P;
        s.all += n;
        part[u < UNIT_BLOCKS ? 0 : u - UNIT_BLOCKS + 1] += n;
    }
    for (int i = 0; i < parts; i++) {
        if (part[i] > s.largest) s.largest = part[i];
        if (i + 1 < parts && part[i] + part[i + 1] > s.two) s.two = part[i] + part[i + 1];
    }
    return s;
}

/* Adam: 2 bytes of weights, 2 or 4 of gradients, 12 of master and moments, each shared by those who share it; of zero2
 * and zero3 one part's gradients are whole for a while, of zero3 two parts' weights.  Counted by the arena. */
static void test_bytes_a_parameter(void **state)
{
    static const struct {
        const char *scheme;
        bool w, g, o;
    } kept[] = { { "ddp", 0, 0, 0 }, { "zero1", 0, 0, 1 }, { "zero2", 0, 1, 1 }, { "zero3", 1, 1, 1 } };
    (void)state;
    for (int f = 0; f < FORMATS; f++)
        for (int i = 0; i < 4; i++) {
            struct plan p = adam_plan(formats[f]);
            const uint64_t gradient = formats[f].narrow_gradients ? 2 : 4, P = (uint64_t)test_size;
            const struct sizes n = padded_sizes(&p.model, i == 0 ? 1 : P);
            const bool w = kept[i].w && P > 1, g = kept[i].g && P > 1;
            p.data.scheme = kept[i].scheme;
            const uint64_t want = 2 * (n.all / (w ? P : 1) + w * n.two) +
                                  gradient * (n.all / (g ? P : 1) + g * n.largest) + 12 * n.all / (kept[i].o ? P : 1);
            const struct outcome o = check(&p);
            ASSERT_ALL(o.model_state == want, "%s, %s: %llu bytes, not %llu", kept[i].scheme, dtype_name(p.dtype),
                       (unsigned long long)o.model_state, (unsigned long long)want);
        }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void test_what_does_not_fit(void **state)
{
    (void)state;
    struct plan p = mixed_plan(1, 1, test_size, formats[2]);
    p.loss_scale = 1000;
    expect_refused(p, "must be a power of two");
    p.dtype = BF16, p.loss_scale = 1024;
    expect_refused(p, "is for --dtype fp16");
    p = mixed_plan(1, 1, test_size, formats[2]);
    p.schedule = "pipedream-2bw", p.micros = 2 * test_size;
    if (test_size > 1) expect_refused(p, "before devices can agree");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_agrees_with_one_device),
        MPI_TEST(test_every_tensor_scheme),
        MPI_TEST(test_same_gradients_in_same_weights_out),
        MPI_TEST(test_gradients_of_other_formats_are_others),
        MPI_TEST(test_overflow_is_agreed_on),
        MPI_TEST(test_skipped_steps_change_nothing),
        MPI_TEST(test_bytes_a_parameter),
        MPI_TEST(test_what_does_not_fit),
    };
    return MPI_RUN("mixed", tests);
}
