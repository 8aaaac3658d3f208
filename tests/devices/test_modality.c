/* Encoders of what is not text beside a language model: three steps equal one device on every mesh, wherever the
 * encoders are, in however many chunks embeddings are sent, with steps in which a modality is absent and sequences of
 * text only; with ZeRO, 16 bits, recomputation and packed samples; what the bridge sends, what encoders hold; who
 * encodes which clip, and where clips are in samples.
 * ranks: 2 4
 * verify ranks: 1 3 5 6 8
 */
#include "tests/devices/trained.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include "ref/model/sample_mask.h"
#include <stdlib.h>

static struct plan omni(int dp, int tp, int pp, int cp, enum encoder_placement placement)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_llama(&p);
    if (cp > 1) case_take_context(&p, cp, "ring-zigzag");
    p.encoders = (struct encoder_request){ .kinds = MODALITIES, .placement = placement, .chunks = 2, .slack = 50 };
    return p;
}

/* ---- clips ------------------------------------------------------------------------------------------------------- */

/* Every modality is absent in some step and there in another; some sequences are text; clips lie inside sequences. */
static void test_clips(void **state)
{
    (void)state;
    const int64_t B = 8, S = 24;
    int steps_with[MODALITIES] = { 0 };
    for (int64_t step = 0; step < 4; step++) {
        struct clips c;
        bool has[MODALITIES] = { false }, text[8] = { true, true, true, true, true, true, true, true };
        int64_t patches = 0, end = 0;
        assert_int_equal(clips_of_step(&c, MODALITIES, 0, 7, step, B, S, NULL, &err), OK);
        for (int i = 0; i < c.count; i++) {
            const struct clip *k = &c.clip[i];
            assert_true(k->row >= end && k->row % S > 0 && k->row % S + k->count < S);
            assert_int_equal(k->first, patches);
            has[k->modality] = true, text[k->row / S] = false;
            patches += k->count, end = k->row + k->count;
        }
        assert_int_equal(c.patches, patches);
        assert_true(text[3] && text[7] && c.count > 0);
        for (int m = 0; m < MODALITIES; m++) {
            assert_int_equal(has[m], !modality_is_absent(m, MODALITIES, step));
            steps_with[m] += has[m];
        }
        clips_free(&c);
    }
    for (int m = 0; m < MODALITIES; m++) assert_int_equal(steps_with[m], 3);
}

/* Two samples of 9 tokens, one of 4 and padding: a clip has a token of its own sample before and behind it, so a short
 * sample has none, and padding neither. */
static void test_clips_in_samples(void **state)
{
    (void)state;
    enum { S = 24 };
    int32_t within[S];
    bool seen[2] = { false };
    for (int i = 0; i < S; i++) within[i] = i < 18 ? i % 9 : i < 22 ? i - 18 : padding_at(i - 22);
    for (int64_t step = 0; step < 16; step++) {
        struct clips c;
        assert_int_equal(clips_of_step(&c, MODALITIES, 0, 7, step, 1, S, within, &err), OK);
        for (int i = 0; i < c.count; i++) {
            const struct clip *k = &c.clip[i];
            const int64_t sample = k->row < 18 ? k->row / 9 : 2, first = sample * 9, end = sample < 2 ? first + 9 : 22;
            if (sample < 2) seen[sample] = true;
            ASSERT_ALL(k->row > first && k->row + k->count < end, "a clip in rows %lld to before %lld, and its sample "
                       "in %lld to before %lld", (long long)k->row, (long long)(k->row + k->count), (long long)first,
                       (long long)end);
        }
        clips_free(&c);
    }
    assert_true(seen[0] && seen[1]);
}

/* Placeholders of a file's samples: each run of them is a clip. */
/* Clips that are left out take nothing with them but their places. */
static void test_clips_left_out(void **state)
{
    struct clips c;
    (void)state;
    for (int step = 0; step < 8; step++) {
        assert_int_equal(clips_of_step(&c, MODALITIES, 2, 7, step, 4, 24, NULL, &err), OK);
        for (int i = 0; i < c.count; i++)
            ASSERT_ALL(c.clip[i].modality == 1, "a clip of %s, which was left out",
                       modalities[c.clip[i].modality].name);
        clips_free(&c);
    }
}

static void test_clips_of_tokens(void **state)
{
    (void)state;
    const int32_t ids[12] = { 5, -1, -1, 6, -2, -3, 7, 8, 9, -1, 4, 3 };
    struct clips c;
    assert_int_equal(clips_of_tokens(&c, 2, 6, ids, &err), OK);
    assert_int_equal(c.count, 4), assert_int_equal(c.patches, 5);
    const struct clip want[] = { { 0, 1, 2, 0 }, { 1, 4, 1, 2 }, { 2, 5, 1, 3 }, { 0, 9, 1, 4 } };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(c.clip[i].modality, want[i].modality), assert_int_equal(c.clip[i].row, want[i].row);
        assert_int_equal(c.clip[i].count, want[i].count), assert_int_equal(c.clip[i].first, want[i].first);
    }
    clips_free(&c);
}

/* ---- who encodes what -------------------------------------------------------------------------------------------- */

static int64_t busiest(const struct clips *c, int devices, const int32_t device[])
{
    int64_t most = 0;
    for (int d = 0; d < devices; d++) {
        int64_t load = 0;
        for (int i = 0; i < c->count; i++) load += device[i] == d ? clip_work(&c->clip[i], 12) : 0;
        if (load > most) most = load;
    }
    return most;
}

/* The least load of the busiest device over all ways to share out clips from this one on. */
static int64_t best_share(const struct clips *c, int devices, int32_t device[], int clip)
{
    if (clip == c->count) return busiest(c, devices, device);
    int64_t best = INT64_MAX;
    for (int d = 0; d < devices; d++) {
        device[clip] = d;
        const int64_t found = best_share(c, devices, device, clip + 1);
        if (found < best) best = found;
    }
    return best;
}

/* Within 4/3 of the best (R. Graham, doi:10.1137/0117039), and no worse than in turns. */
static void test_share_out(void **state)
{
    (void)state;
    bool may[9 * 3], needs[9 * 3] = { false };
    int worse = 0;
    memset(may, 1, sizeof may);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct clips c;
        int32_t ours[16], other[16], turns[16];
        assert_int_equal(clips_of_step(&c, MODALITIES, 0, seed, 3, 4, 24, NULL, &err), OK);
        if (c.count > 9) c.count = 9;
        assert_int_equal(clips_share_out(&c, 12, 3, 0, may, needs, ours, &err), OK);
        for (int i = 0; i < c.count; i++) turns[i] = i % 3;
        const int64_t load = busiest(&c, 3, ours);
        assert_true(3 * load <= 4 * best_share(&c, 3, other, 0));
        assert_true(load <= busiest(&c, 3, turns));
        worse += load < busiest(&c, 3, turns);
        clips_free(&c);
    }
    assert_true(worse > 10);
}

/* Within the slack a clip stays where its embeddings are needed. */
static void test_slack(void **state)
{
    (void)state;
    struct clip one[] = { { 0, 1, 4, 0 }, { 0, 30, 4, 4 } };
    const struct clips c = { 2, 8, one };
    const bool may[4] = { true, true, true, true }, needs[4] = { false, true, false, true };
    int32_t device[2];
    assert_int_equal(clips_share_out(&c, 12, 2, 100, may, needs, device, &err), OK);
    assert_int_equal(device[0], 1), assert_int_equal(device[1], 1);
    assert_int_equal(clips_share_out(&c, 12, 2, 99, may, needs, device, &err), OK);
    assert_int_equal(device[0], 1), assert_int_equal(device[1], 0);
}

/* Each modality is somewhere; apart, on as many devices as any other, or one less. */
static void test_where_encoders_are(void **state)
{
    (void)state;
    const struct encoder_request r = { .kinds = MODALITIES, .placement = ENCODERS_APART };
    for (int P = 1; P <= 8; P++)
        for (int m = 0; m < MODALITIES; m++) {
            int n = 0;
            for (int d = 0; d < P; d++) n += encoder_is_on(&r, P, m, d);
            assert_true(P < MODALITIES ? n == 1 : n == P / MODALITIES || n == (P + MODALITIES - 1) / MODALITIES);
        }
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static void test_meshes(void **state)
{
    int n = 0;
    (void)state;
    for (int dp = 1; dp <= test_size; dp++)
        for (int tp = 1; dp * tp <= test_size; tp++)
            for (int pp = 1; dp * tp * pp <= test_size; pp++) {
                const int cp = test_size / (dp * tp * pp);
                if (dp * tp * pp * cp != test_size) continue;
                struct plan p = omni(dp, tp, pp, cp, n++ % 2 ? ENCODERS_APART : ENCODERS_EVERYWHERE);
                if (tp > 1 && n % 3 == 0) p.tensor = "1d-sp";
                if (plan_check(&p, &err) == OK && (in_verify() || test_size == 2 || n % 3 == 1)) check(&p);
            }
}

/* No bit depends on the number of chunks; their buffers need that part of the memory, rounded up to whole rows. */
static void test_chunks(void **state)
{
    static const int chunks[] = { 1, 2, 7, 1000 };
    struct outcome first = { 0 };
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct plan p = omni(test_size, 1, 1, 1, ENCODERS_APART);
        p.encoders.chunks = chunks[i];
        const struct outcome o = check(&p);
        if (i == 0) first = o;
        ASSERT_ALL(o.whole_hash == first.whole_hash, "%d chunks: other bits than in one", chunks[i]);
        const uint64_t row = (uint64_t)p.model.D * 8 * (1 + (uint64_t)test_size);
        ASSERT_ALL(test_size == 1 || o.bridge <= first.bridge, "%d chunks need %llu bytes of buffers, one %llu",
                   chunks[i], (unsigned long long)o.bridge, (unsigned long long)first.bridge);
        ASSERT_ALL(chunks[i] < 1000 || o.bridge <= row, "single rows need %llu bytes of buffers",
                   (unsigned long long)o.bridge);
    }
}

/* Four devices in two stages of two, of which the first needs all rows twice: what the third and the fourth encode,
 * audio and video, goes to both, and one of both returns the gradient.  Images are encoded there. */
static void test_bytes(void **state)
{
    (void)state;
    if (test_size != 4) skip();
    struct plan p = omni(1, 2, 2, 1, ENCODERS_APART);
    const struct outcome o = check(&p);
    double patches[MODALITIES] = { 0 };
    const double row = (double)p.model.D * 8;
    for (int64_t step = 0; step < case_steps(&p); step++) {
        struct clips c;
        assert_int_equal(clips_of_step(&c, MODALITIES, 0, p.seed, step, p.B, p.S, NULL, &err), OK);
        for (int i = 0; i < c.count; i++) patches[c.clip[i].modality] += (double)c.clip[i].count;
        clips_free(&c);
    }
    const double others = 3 * (patches[1] + patches[2]) * row, images = (double)o.bridged - others;
    assert_true(patches[0] > 0 && patches[1] > 0 && patches[2] > 0);
    ASSERT_ALL(test_rank != 0 || (images >= patches[0] * row && images <= 2 * patches[0] * row), "the bridge sent %g "
               "bytes; audio and video are %g, images %g to twice as many", images + others, others, patches[0] * row);
}

static void test_optimizers_and_schemes(void **state)
{
    const struct optimizer *adam;
    (void)state;
    struct plan p = omni(test_size, 1, 1, 1, ENCODERS_EVERYWHERE);
    assert_int_equal(optimizer_find(&adam, "adamw", &err), OK);
    case_take_optimizer(&p, adam, 1);
    p.data.scheme = "zero3";
    check(&p);
    p = omni(1, test_size, 1, 1, ENCODERS_APART);
    case_take_mixtral(&p);
    case_take_experts(&p, test_size, "alltoall");
    p.recompute = "full";
    check(&p);
}

/* Every data scheme that reduces in every step shares encoders as it shares the model; memory and bytes are equal to
 * their formulas, as in all these cases. */
static void test_data_schemes(void **state)
{
    static const char *const schemes[] = { "zero1", "zero2", "zero3", "fsdp", "zero1-overlap" };
    const struct optimizer *adam;
    (void)state;
    assert_int_equal(optimizer_find(&adam, "adamw", &err), OK);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        struct plan p = omni(test_size, 1, 1, 1, i % 2 ? ENCODERS_APART : ENCODERS_EVERYWHERE);
        if (!in_verify() && i != 2 && i != 4) continue;
        p.data.scheme = schemes[i];
        if (i == 2) case_take_optimizer(&p, adam, 1);
        if (i == 3) p.recompute = "full";
        check(&p);
    }
}

/* Bytes of weights and gradients that a device keeps for encoders: what there is more than without them. */
static uint64_t kept_for_encoders(struct plan p)
{
    struct plan_memory with, without;
    struct plan text = p;
    text.encoders.kinds = 0;
    assert_int_equal(plan_check(&p, &err), OK), assert_int_equal(plan_check(&text, &err), OK);
    assert_int_equal(plan_memory(&p, test_rank, 0, &with, &err), OK);
    assert_int_equal(plan_memory(&text, test_rank, 0, &without, &err), OK);
    return with.peak.total - without.peak.total;
}

/* ddp keeps all, zero2 a part of the gradients, zero3 a part of both; rows are padded to equal parts. */
static void test_kept(void **state)
{
    static const char *const scheme[] = { "ddp", "zero2", "zero3" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p = omni(test_size, 1, 1, 1, ENCODERS_EVERYWHERE);
        uint64_t want = 0;
        p.data.scheme = scheme[i];
        for (int m = 0; m < MODALITIES; m++) {
            const int64_t n = encoder_counts(&modalities[m], p.model.D), part = (n + test_size - 1) / test_size;
            want += 8 * (uint64_t)((i == 2 ? part : i == 1 ? part * test_size : n) + (i > 0 ? part : n));
        }
        const uint64_t kept = kept_for_encoders(p);
        ASSERT_ALL(kept == want, "with %s a device keeps %llu bytes of encoders, which should be %llu", scheme[i],
                   (unsigned long long)kept, (unsigned long long)want);
    }
}

/* In 16 bits encoders have fp32 masters; fp16 has a loss scale, which is in their gradients, too. */
static void test_formats(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p = omni(test_size, 1, 1, 1, ENCODERS_EVERYWHERE);
        if (!in_verify() && i == 0) continue;
        p.dtype = formats[i];
        if (i == 1) p.data.scheme = "zero3";
        check(&p);
    }
}

/* With recomputation an encoder holds its patches alone during the model's passes: the same bits, and less memory. */
static void test_recompute(void **state)
{
    (void)state;
    struct plan p = omni(test_size, 1, 1, 1, ENCODERS_EVERYWHERE);
    const struct outcome all = check(&p);
    p.recompute = "full";
    const struct outcome again = check(&p);
    ASSERT_ALL(test_rank != 0 || all.whole_hash == again.whole_hash, "recomputation changes bits");
    ASSERT_ALL(again.activations < all.activations, "recomputation: %llu bytes of activations, without %llu",
               (unsigned long long)again.activations, (unsigned long long)all.activations);
}

/* Several samples with clips in a sequence: as on one device, where no sample sees another. */
static void test_packed(void **state)
{
    static const char *const attention[] = { "ring-zigzag", "hdp" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int cp = test_size > 1 && i == 0 && test_size % 2 == 0 ? 2 : 1;
        struct plan p = omni(test_size / cp, 1, 1, cp, ENCODERS_EVERYWHERE);
        if (i == 1 && (test_size == 1 || !in_verify())) continue;
        if (i == 1) p = omni(1, 1, 1, test_size, ENCODERS_APART), case_take_context(&p, test_size, attention[i]);
        p.packed = true;
        p.S = p.model.S = 24;
        p.data.scheme = "zero3";
        check(&p);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct plan p = omni(1, 4, 1, 1, ENCODERS_APART);
    p.tensor = "2d";
    expect_refused(p, "--modalities: --tensor 2d cuts rows of the stream; encoders need whole rows");
    p = omni(2, 1, 1, 1, ENCODERS_APART), p.S = 4;
    expect_refused(p, "--modalities 3: the image encoder would never have a token: a clip has 3 patches or more");
    p = omni(4, 1, 1, 1, ENCODERS_APART), p.data.scheme = "diloco";
    expect_refused(p, "--modalities: --data-parallel diloco trains its replicas apart");
    p = omni(4, 1, 1, 1, ENCODERS_APART), p.data.scheme = "mics", p.data.group = 4;
    expect_refused(p, "--modalities: the image encoder is on 2 devices, and data parallelism cannot share it: "
                      "--shard-group 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_clips), MPI_TEST(test_clips_in_samples), MPI_TEST(test_clips_of_tokens),
        MPI_TEST(test_clips_left_out), MPI_TEST(test_share_out), MPI_TEST(test_slack),
        MPI_TEST(test_where_encoders_are),
        MPI_TEST(test_meshes), MPI_TEST(test_chunks), MPI_TEST(test_bytes),
        MPI_TEST(test_optimizers_and_schemes), MPI_TEST(test_data_schemes), MPI_TEST(test_kept), MPI_TEST(test_formats),
        MPI_TEST(test_recompute), MPI_TEST(test_packed), MPI_TEST(test_refusals),
    };
    return MPI_RUN("modality", tests);
}
