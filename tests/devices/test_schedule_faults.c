/* What is wrong with a schedule is named; what cannot be made is refused.  And how layers are placed, and how schedules
 * are drawn.
 * tier: check
 */
#include "tests/devices/scheduling.h"
#include "emulated_devices/draw/schedule.h"
#include "emulated_devices/schemes/pipeline/placement.h"

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void expect_fault(struct schedule *s, const char *want)
{
    struct error err = { OK, "accepted" };
    schedule_validate(s, &err);
    if (strcmp(err.text, want) != 0) fail_msg("got  \"%s\"\n      want \"%s\"", err.text, want);
    schedule_free(s);
}

/* 1F1B, P=2, M=3: device 0 is F0 sa0 F1 sa1 rg0 B0 F2 sa2 rg1 B1 rg2 B2, device 1 is ra0 F0 B0 sg0 ra1
 * F1 B1 sg1 ra2 F2 B2 sg2. */
static struct schedule small(void) { return made("1f1b", (struct schedule_request){ .devices = 2, .micros = 3 }); }

static void drop(struct schedule *s, int d, int i)
{
    memmove(&s->actions[d][i], &s->actions[d][i + 1], (size_t)(--s->count[d] - i) * sizeof(struct action));
}

static void swap(struct schedule *s, int d, int i, int j)
{
    const struct action a = s->actions[d][i];
    s->actions[d][i] = s->actions[d][j];
    s->actions[d][j] = a;
}

static void test_validator_names_the_fault(void **state)
{
    (void)state;
    struct schedule s = small();
    drop(&s, 1, 1);
    expect_fault(&s, "device 1: F0 of chunk 0 is missing (forward of a stage)");
    s = small();
    drop(&s, 0, 1);
    expect_fault(&s, "device 0: sa0 of chunk 0 is missing (a stage's output to the device of the next stage)");
    s = small();
    drop(&s, 0, 4);
    expect_fault(&s, "device 0: rg0 of chunk 0 is missing (the gradient of a stage's output from the device after)");
    s = small();
    s.actions[0][2] = s.actions[0][0];
    expect_fault(&s, "device 0, action 2: F0 of chunk 0: done twice, first as action 0");
    s = small();
    swap(&s, 1, 0, 1);
    expect_fault(&s, "device 1, action 0: F0 of chunk 0: expected after ra0 of chunk 0, which is action 1");
    s = small();
    swap(&s, 0, 0, 1);
    expect_fault(&s, "device 0, action 0: sa0 of chunk 0: expected after F0 of chunk 0, which is action 1");
    s = small();
    s.actions[0][1].peer = 0;
    expect_fault(&s, "device 0, action 1: sa0 of chunk 0: peer is device 0, expected 1");
    s = small();
    s.actions[1][4].micro = 3;
    expect_fault(&s, "device 1, action 4: ra3 of chunk 0: expected a microbatch of 0..2");
    s = small();
    s.actions[0][5].kind = BACKWARD_INPUT;
    expect_fault(&s, "device 0: W0 of chunk 0 is missing (backward for the stage's weights; frees the microbatch)");
    s = small();
    s.actions[0][5].kind = UPDATE;
    expect_fault(&s, "device 0: the backward of microbatch 0, chunk 0 is missing: expected B0, or I0 and W0");
    s = small();
    s.route[0][1].device = 0;
    expect_fault(&s, "route 0: stage 1 is not on device 0, chunk 0");
    s = small();
    s.stage_of[1][0] = 0;
    expect_fault(&s, "stage 1 is on no device");
    s = small();
    s.actions[1][s.count[1]++] = (struct action){ .kind = SEND_ACTIVATION };
    expect_fault(
        &s,
        "device 1, action 12: sa0 of chunk 0: no message is needed: the neighbouring stage is here, or there is none");
    s = small();
    s.route_of[1] = 1;
    expect_fault(&s, "microbatch 1: route 1 is not one of 0..0");
    s = made("chimera", (struct schedule_request){ .devices = 2, .micros = 2 });   /* microbatch 1 begins on device 1 */
    s.actions[0][0].micro = 1;
    expect_fault(
        &s,
        "device 0, action 0: F1 of chunk 0: microbatch 1 does not come here: its route computes stage 0 on device 1");
    /* F0 B0 U0 F1 B1 U1 */
    s = made("pipedream-2bw", (struct schedule_request){ .devices = 1, .micros = 2, .update_every = 1 });
    swap(&s, 0, 1, 2);
    expect_fault(&s, "device 0, action 1: U0 of chunk 0: expected after B0 of chunk 0, which is action 2");
}

/* Each device alone is in order, but device 0 wants gradient 0 before it sends what device 1 needs to make it. */
static void test_validator_finds_deadlock(void **state)
{
    (void)state;
    struct schedule s = small();
    const struct action receive = s.actions[1][0];
    /* F0 B0 sg0 ra1 | ra0: not yet a cycle, but wrong */
    memmove(&s.actions[1][0], &s.actions[1][1], 4 * sizeof receive);
    s.actions[1][4] = receive;
    expect_fault(&s, "device 1, action 0: F0 of chunk 0: expected after ra0 of chunk 0, which is action 4");
    s = small();
    /* device 0: F0 F1 rg0 sa0 sa1 ...: rg0 now comes before sa0 */
    const struct action gradient = s.actions[0][4];
    memmove(&s.actions[0][2], &s.actions[0][1], 3 * sizeof gradient);
    s.actions[0][1] = gradient;
    expect_fault(&s, "deadlock: device 0, action 1 (rg0 of chunk 0) waits for device 1; device 1, action 0 (ra0 of "
                     "chunk 0) waits for device 0");
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct schedule_request q;
        enum error_code code;
        const char *text;
    } bad[] = {
        { "1f2b",
          { .devices = 2, .micros = 2 },
          ERR_USAGE,
          "--schedule 1f2b: there is no such choice; did you mean 1f1b?" },
        { "1f1b",
          { .devices = 0, .micros = 2 },
          ERR_PLAN,
          "schedule 1f1b: devices=0, micros=2, chunks=0: expected at least 1" },
        { "1f1b",
          { .devices = 2, .micros = 2, .chunks = 3 },
          ERR_PLAN,
          "schedule 1f1b: chunks=3, but it holds 1 on each device" },
        { "chimera",
          { .devices = 3, .micros = 2 },
          ERR_PLAN,
          "schedule chimera: P=3, M=2, v=2: P must be even: two pipelines meet in the middle; P=2 or P=4 would fit" },
        { "skippipe",
          { .devices = 4, .micros = 2, .skip = 3 },
          ERR_PLAN,
          "schedule skippipe: P=4, M=2, v=1: only the P-2 middle stages can be left out; skip=1..2 would fit" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct schedule s;
        struct error err;
        assert_int_equal(schedule_make(&s, bad[i].name, &bad[i].q, &err), bad[i].code);
        assert_string_equal(err.text, bad[i].text);
        assert_int_equal(schedule_make(&s, bad[i].name, &bad[i].q, NULL), bad[i].code);
    }
    struct schedule s;
    assert_int_equal(schedule_make(&s, "gpipe", &(struct schedule_request){ .devices = 4096, .micros = 1 << 20 }, NULL),
                     ERR_PLAN);
}

/* ---- placement, drawing ------------------------------------------------------------------------------------------ */

/* The slowest stage's time, layers/speed, as a fraction compared by cross multiplication, over all ways to cut. */
static void best_cut(int left, int stages, const int64_t *speed, int64_t layers, int64_t per, int64_t best[2])
{
    if (stages == 0) {
        if (left == 0 && layers * best[1] < best[0] * per) best[0] = layers, best[1] = per;
        return;
    }
    for (int n = 1; n <= left - (stages - 1); n++) {
        const bool slower = n * per > layers * speed[0];
        best_cut(left - n, stages - 1, speed + 1, slower ? n : layers, slower ? speed[0] : per, best);
    }
}

static void test_layers_by_speed(void **state)
{
    (void)state;
    static const int64_t speed[][4] = {
        { 1, 1, 1, 1 }, { 197, 160, 122, 149 }, { 1, 2, 3, 4 }, { 100, 1, 1, 1 }, { 3, 3, 2, 2 }
    };
    int count[4];
    for (size_t k = 0; k < sizeof speed / sizeof speed[0]; k++)
        for (int layers = 4; layers <= 20; layers++) {
            assert_int_equal(layers_by_speed(layers, 4, speed[k], count, NULL), OK);
            int64_t best[2] = { 1000000, 1 }, got[2] = { 0, 1 };
            int sum = 0;
            best_cut(layers, 4, speed[k], 0, 1, best);
            for (int i = 0; i < 4; i++) {
                sum += count[i];
                if (count[i] * got[1] > got[0] * speed[k][i]) got[0] = count[i], got[1] = speed[k][i];
            }
            assert_int_equal(sum, layers);
            assert_int_equal(got[0] * best[1], best[0] * got[1]);
        }
    assert_int_equal(layers_by_speed(6, 4, speed[0], count, NULL), OK);       /* of equals the first */
    assert_memory_equal(count, ((int[]){ 2, 2, 1, 1 }), sizeof count);
    struct error err;
    assert_int_equal(layers_by_speed(3, 4, speed[0], count, &err), ERR_PLAN);
    assert_int_equal(layers_by_speed(8, 2, (int64_t[]){ 1, 0 }, count, &err), ERR_PLAN);
}

static void read_back(FILE *f, char *text, size_t room)
{
    rewind(f);
    text[fread(text, 1, room - 1, f)] = '\0';
    fclose(f);
}

static void test_drawing(void **state)
{
    (void)state;
    static char text[1 << 16];
    struct schedule s = made("zb-h1", (struct schedule_request){ .devices = 3, .micros = 5 });
    struct timing t = timed(&s, (struct times){ 1, 1, 1 }, 0);
    FILE *f = tmpfile();
    schedule_draw_text(f, &s, &t, 100, false);
    read_back(f, text, sizeof text);
    assert_string_equal(text, "  0  F0-F1-F2-......I0-W0-F3-I1-W1-F4-I2-W2-I3-W3-I4-W4-\n"
                              "  1  ...F0-F1-...I0-F2-I1-W0-F3-I2-W1-F4-I3-W2-I4-W3-W4-\n"
                              "  2  ......F0-I0-F1-I1-F2-I2-W0-F3-I3-W1-F4-I4-W2-W3-W4-\n"
                              "     F forward  I backward for input  W backward for weights  \n");
    f = tmpfile();
    assert_int_equal(schedule_draw_svg(f, &s, &t, true, NULL), OK);
    read_back(f, text, sizeof text);
    assert_non_null(strstr(text, "<svg xmlns="));
    assert_non_null(strstr(text, "</svg>"));
    timing_free(&t);
    schedule_free(&s);
}

/* No line is wider than asked, however many microbatches and however odd the times. */
static void test_drawing_width(void **state)
{
    (void)state;
    static char text[1 << 18];
    for (int columns = 40; columns <= 100; columns += 20)
        for (int M = 1; M <= 200; M += 37) {
            struct schedule s = made("zb-v", (struct schedule_request){ .devices = 5, .micros = M });
            struct timing t = timed(&s, (struct times){ 18522, 18086, 9337 }, 601);
            FILE *f = tmpfile();
            schedule_draw_text(f, &s, &t, columns, false);
            read_back(f, text, sizeof text);
            char *line = strtok(text, "\n");
            for (int i = 0; i < 10; i++, line = strtok(NULL, "\n"))
                if (strlen(line) > (size_t)columns)
                    fail_msg("M=%d: line of %zu columns, asked for %d", M, strlen(line), columns);
            timing_free(&t);
            schedule_free(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_validator_names_the_fault),
        cmocka_unit_test(test_validator_finds_deadlock),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_layers_by_speed),
        cmocka_unit_test(test_drawing),
        cmocka_unit_test(test_drawing_width),
    };
    return cmocka_run_group_tests_name("schedule faults", tests, NULL, NULL);
}
