/* Batches of other sizes on each copy and in each step are trained as one device trains all their sequences at once.
 * tier: check
 * ranks: 1 2 4
 * verify ranks: 3
 */
#include "tests/devices/trained.h"
#include <string.h>

static struct batch_plan read_text(char *text)
{
    struct batch_plan b = { 0 };
    FILE *f = fmemopen(text, strlen(text), "r");
    const enum error_code e = f ? batch_plan_read(&b, f, "f", &err) : ERR_FILE;
    if (f) fclose(f);
    ASSERT_ALL(e == OK, "%s", err.text);
    return b;
}

/* Of each number of copies: uneven, a copy without sequences, empty microbatches first, between and last. */
static struct batch_plan nasty(int copies)
{
    static char one[] = "orrery batches 1\n2 1\n1 0 2\n1\n",
                two[] = "orrery batches 1\n2 1 | 3\n- | 0 1 2\n1 1 1 | 2\n",
                three[] = "orrery batches 1\n2 1 | 1 | -\n- | 0 3 | 2\n1 1 1 | 1 | 1 2\n";
    return read_text(copies == 1 ? one : copies == 2 ? two : three);
}

static void take(struct plan *p, const struct batch_plan *b)
{
    p->batches = b;
    p->micros = b->micros;
    plan_take_step(p, 0);
}

static void trains(struct plan p, struct batch_plan b)
{
    take(&p, &b);
    check(&p);
    batch_plan_free(&b);
}

static void test_where_sequences_are(void **state)
{
    (void)state;
    struct batch_plan b = nasty(2);
    struct plan p = case_plan(1, 1, 1);
    assert_int_equal(b.steps, 3);
    assert_int_equal(b.copies, 2);
    assert_int_equal(b.micros, 3);
    assert_int_equal(b.most, 6);
    /* step 4 is step 1 again */
    const struct interval none = batch_plan_at(&b, 1, 0, 2), late = batch_plan_at(&b, 4, 1, 2);
    assert_true(none.count == 0 && late.first == 1 && late.count == 2);
    take(&p, &b);
    assert_int_equal(p.B, 6);
    plan_take_step(&p, 1);
    assert_int_equal(p.B, 3);
    batch_plan_free(&b);
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    const struct data_scheme *s;
    for (int i = 0; (s = data_scheme_at(i)) != NULL && test_size <= 3; i++) {
        struct plan p = case_plan(test_size, 1, 1);
        struct shards shards;
        case_take_data(&p, s);
        if (data_shards(&shards, &p.data, test_size, 0, &err) == OK && !shards.apart) trains(p, nasty(test_size));
    }
}

static void test_with_other_axes(void **state)
{
    (void)state;
    if (test_size != 4) return;
    trains(case_plan(2, 1, 2), nasty(2));
    struct plan p = case_plan(2, 2, 1);
    case_take_dropout(&p);
    p.data.scheme = "zero3", p.recompute = "full";
    trains(p, nasty(2));
    p = case_plan(2, 1, 2), p.schedule = "zb-h1";
    trains(p, nasty(2));
    for (int i = 0; tensor_scheme_at(i) != NULL; i++) {
        p = case_plan(2, 2, 1), p.tensor = tensor_scheme_at(i)->head.name;
        if (plan_check(&p, &err) == OK) trains(p, nasty(2));
    }
    for (int i = 0; attention_scheme_at(i) != NULL; i++) {
        p = case_plan(2, 1, 1), p.attention = attention_scheme_at(i)->head.name;
        const int size[AXIS_COUNT] = { [DP] = 2, [TP] = 1, [PP] = 1, [CP] = 2, [EP] = 1 };
        assert_int_equal(mesh_make(&p.mesh, size, &err), OK);
        if (plan_check(&p, &err) == OK) trains(p, nasty(2));
    }
}

/* Four devices share three experts, so one of them has none.  It has more rows in the second step than in the first,
 * and all together have fewer: the second step's memory is not that of both maxima. */
static void test_a_device_without_experts(void **state)
{
    static char first[] = "orrery batches 1\n1 | 1 | 5 | 5\n3 | 3 | 1 | 1\n",
                last[] = "orrery batches 1\n5 | 5 | 1 | 1\n1 | 1 | 3 | 3\n";
    const struct expert_scheme *s;
    (void)state;
    for (int i = 0; (s = expert_scheme_at(i)) != NULL && test_size == 4; i++)
        for (int k = 0; k < 2; k++) {
            struct plan p = case_plan(4, 1, 1);
            case_take_mixtral(&p);
            p.model.mixture.E = 3;
            case_take_experts(&p, s->cuts_experts ? 4 : 1, s->head.name);
            struct batch_plan b = read_text(k ? first : last);
            take(&p, &b);
            check_if_taken(p);
            batch_plan_free(&b);
        }
}

static void test_refused(void **state)
{
    (void)state;
    struct batch_plan b = nasty(2);
    struct plan p = case_plan(1, 1, 1);
    take(&p, &b);
    assert_int_equal(plan_check(&p, &err), ERR_PLAN);
    assert_string_equal(err.text, "--batches: its steps have 2 copies; --dp 1 needs 1");
    batch_plan_free(&b);
    b = nasty(1);
    take(&p, &b);
    p.micros = 2;
    assert_int_equal(plan_check(&p, &err), ERR_PLAN);
    assert_string_equal(err.text, "--batches: its copies have up to 3 microbatches; the schedule is for 2");
    batch_plan_free(&b);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct { char *text; const char *says; } bad[] = {
        { "# nothing\n", "f: ends after line 1: expected orrery batches 1" },
        { "orrery batches 1\n\n", "f: ends after line 2: expected a step" },
        { "orrery batches 2\n", "f:1: orrery batches 2: expected orrery batches 1" },
        { "orrery batches 1\n1 | 2\n3\n", "f:3: this step: expected as many copies, parted by |, as in the first one" },
        { "orrery batches 1\n1 |\n",
          "f:2: a copy without a word: expected the sequences of its microbatches, or - for none" },
        { "orrery batches 1\n1 | - 2\n", "f:2: 2: expected - alone, or numbers of sequences" },
        { "orrery batches 1\n1 -\n", "f:2: -: expected - alone, or numbers of sequences" },
        { "orrery batches 1\n1 | -1\n", "f:2: -1: expected a number of sequences, 0..1000000, or -" },
        { "orrery batches 1\n1 | 99999999999\n", "f:2: 99999999999: expected a number of sequences, 0..1000000, or -" },
        { "orrery batches 1\n1\n0 0\n", "f:3: this step: expected at least one sequence" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct batch_plan b;
        FILE *f = fmemopen(bad[i].text, strlen(bad[i].text), "r");
        assert_non_null(f);
        assert_int_equal(batch_plan_read(&b, f, "f", &err), ERR_FORMAT);
        fclose(f);
        assert_string_equal(err.text, bad[i].says);
    }
}

/* Words and comments do not count, numbers do. */
static void test_digest(void **state)
{
    (void)state;
    static char a[] = "orrery batches 1\n2 1 | 3\n", same[] = "# said otherwise\norrery batches 1\n2   1|3 # here\n",
                other[] = "orrery batches 1\n2 1 | 2\n";
    struct batch_plan one = read_text(a), two = read_text(same), three = read_text(other);
    assert_string_equal(one.digest.text, two.digest.text);
    assert_string_not_equal(one.digest.text, three.digest.text);
    batch_plan_free(&one), batch_plan_free(&two), batch_plan_free(&three);
}

static void test_devices_agree(void **state)
{
    (void)state;
    static char a[] = "orrery batches 1\n2\n", other[] = "orrery batches 1\n3\n";
    struct batch_plan one = read_text(a), two = read_text(other);
    struct device device;
    struct comm comm;
    ASSERT_ALL(device_open(&device, NULL, F64, 0, &err) == OK && comm_open(&comm, &device, &err) == OK, "%s", err.text);
    ASSERT_ALL(batch_plan_agree(&one, &comm, &err) == OK, "%s", err.text);
    if (test_size > 1) {
        const enum error_code e = batch_plan_agree(test_rank == test_size - 1 ? &two : &one, &comm, &err);
        char want[80];
        snprintf(want, sizeof want, "--batches: the plan of device %d is not that of device 0", test_size - 1);
        ASSERT_ALL(e == ERR_PLAN && strcmp(err.text, want) == 0, "%s", err.text);
    }
    comm_close(&comm);
    device_close(&device);
    batch_plan_free(&one), batch_plan_free(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_where_sequences_are), MPI_TEST(test_every_data_scheme), MPI_TEST(test_with_other_axes),
        MPI_TEST(test_a_device_without_experts), MPI_TEST(test_refused), MPI_TEST(test_bad_files),
        MPI_TEST(test_digest), MPI_TEST(test_devices_agree),
    };
    return MPI_RUN("batch_plan", tests);
}
