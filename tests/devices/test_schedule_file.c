/* Schedules as text: written and read back they are the same; every kind of bad file is refused with the line and what
 * was expected; hostile text is refused, not obeyed.  And `orrery show schedule`, which draws them.
 * tier: check
 */
#include "emulated_devices/cli/show/schedule.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/output.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static FILE *file_of(const char *text, size_t length)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, length, f), length);
    rewind(f);
    return f;
}

/* ---- there and back ---------------------------------------------------------------------------------------------- */

static void assert_same(const struct schedule *a, const struct schedule *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->devices, b->devices);
    assert_int_equal(a->micros, b->micros);
    assert_int_equal(a->chunks, b->chunks);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->routes, b->routes);
    assert_int_equal(a->update_every, b->update_every);
    assert_int_equal(a->weight_versions, b->weight_versions);
    assert_memory_equal(a->count, b->count, (size_t)a->devices * sizeof *a->count);
    assert_memory_equal(a->route_of, b->route_of, (size_t)a->micros * sizeof *a->route_of);
    for (int r = 0; r < a->routes; r++)
        assert_memory_equal(a->route[r], b->route[r], (size_t)a->stages * sizeof **a->route);
    for (int d = 0; d < a->devices; d++) {
        assert_memory_equal(a->stage_of[d], b->stage_of[d], (size_t)a->chunks * sizeof **a->stage_of);
        for (int i = 0; i < a->count[d]; i++) {
            const struct action x = a->actions[d][i], y = b->actions[d][i];
            assert_true(x.kind == y.kind && x.micro == y.micro && x.chunk == y.chunk && x.peer == y.peer);
            assert_int_equal(x.beside, y.beside);
        }
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 2, 4, 6 };
    for (int g = 0; schedule_generator_at(g); g++)
        for (size_t p = 0; p < sizeof sizes / sizeof sizes[0]; p++)
            for (int M = 1; M <= 13; M += 4) {
                const struct schedule_request q = { .devices = sizes[p],
                                                    .micros = M,
                                                    .chunks = schedule_generator_at(g)->chunks > 0 ? 0 : 3,
                                                    .pairs = schedule_generator_at(g)->pairs };
                if (schedule_generator_at(g)->refuses != NULL && schedule_generator_at(g)->refuses(&q) != NULL)
                    continue;
                struct schedule s, back;
                struct error err;
                if (schedule_make(&s, schedule_generator_at(g)->head.name, &q, &err) != OK) fail_msg("%s", err.text);
                FILE *f = tmpfile();
                assert_non_null(f);
                assert_int_equal(schedule_write(f, &s, &err), OK);
                rewind(f);
                if (schedule_read(&back, f, "there-and-back", &err) != OK)
                    fail_msg("%s P=%d M=%d: %s", s.name, sizes[p], M, err.text);
                assert_same(&s, &back);
                fclose(f);
                schedule_free(&s);
                schedule_free(&back);
            }
}

#define HEAD "orrery schedule 1\nname mine\ndevices 2\nmicros 2\nchunks 1\nplace 0: 0\nplace 1: 1\n"

/* Computations alone, in words of one's own: comments, several lines for a device, B beside I and W. */
static void test_messages_are_put_in(void **state)
{
    (void)state;
    static const char text[] =
        HEAD "# a schedule of my own\n\ndevice 0: F0 F1   # warm up\ndevice 0:\tB0 I1 W1\r\ndevice 1: F0 B0 F1 I1 W1\n";
    struct schedule s;
    struct error err;
    FILE *f = file_of(text, sizeof text - 1);
    if (schedule_read(&s, f, "own", &err) != OK) fail_msg("%s", err.text);
    assert_string_equal(s.name, "mine");
    assert_int_equal(schedule_messages(&s), 4);
    assert_false(s.messages_given);
    assert_int_equal(s.actions[0][1].kind, SEND_ACTIVATION);
    assert_int_equal(s.actions[0][4].kind, RECEIVE_GRADIENT);
    schedule_free(&s);
    fclose(f);
}

/* Several schedules in a text: one is taken by its name, and lines have the numbers of the whole text. */
#define SEVERAL "notes\n" HEAD "device 0: F0 F1 B0 B1\ndevice 1: F0 B0 F1 B1\n\n" \
    "orrery  schedule 1   # the second\nname second\ndevices 1\nmicros 1\nchunks 1\nplace 0: 0\ndevice 0: F0 I0 W0\n" \
    "orrery schedule 1\nname third\ndevices 1\nmicros 1\nchunks 1\nplace 0: 0\ndevice 0: F0 W0\n"

static void test_one_of_several(void **state)
{
    (void)state;
    struct schedule s;
    struct error err;
    if (schedule_read_named(&s, SEVERAL, "mine", "f", &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(s.devices, 2);
    schedule_free(&s);
    if (schedule_read_named(&s, SEVERAL, "second", "f", &err) != OK) fail_msg("%s", err.text);
    assert_string_equal(s.name, "second");
    assert_int_equal(s.count[0], 3);
    schedule_free(&s);
    assert_int_equal(schedule_read_named(&s, SEVERAL, "third", "f", &err), ERR_FORMAT);
    assert_string_equal(err.text, "f:25: device 0: I0 is missing (backward for the stage's input; keeps "
                                  "what W needs)");
    assert_int_equal(schedule_read_named(&s, SEVERAL, "fourth", "f", &err), ERR_FORMAT);
    assert_string_equal(err.text, "f: has no schedule with a line \"name fourth\"");
    assert_int_equal(schedule_read_named(&s, SEVERAL SEVERAL, "second", "f", &err), ERR_FORMAT);
    assert_string_equal(err.text, "f:38: a second schedule has the name second, the first is at line 13");
    assert_int_equal(schedule_read_named(&s, "name mine\n", "mine", "f", &err), ERR_FORMAT);
    assert_int_equal(schedule_read_named(&s, "", "", "f", &err), ERR_FORMAT);
}

/* ---- bad files --------------------------------------------------------------------------------------------------- */

struct bad { const char *text, *want; };

static const struct bad bad[] = {
    { "", "f: empty: expected \"orrery schedule 1\"" },
    { "orrery schedule 2\n", "f:1: 2: expected the first line to be \"orrery schedule 1\"" },
    { "orrery\n", "f:1: end of line: expected the first line to be \"orrery schedule 1\"" },
    { "orrery schedule 1\n", "f: ends after line 1: expected devices, micros, chunks, places and actions" },
    { "orrery schedule 1\ndevices 0\n", "f:2: 0: expected a number, 1..4096" },
    { "orrery schedule 1\ndevices 99999999999\n", "f:2: 99999999999: expected a number, 1..4096" },
    { "orrery schedule 1\ndevices 2 3\n", "f:2: 3: expected the end of the line" },
    { "orrery schedule 1\ndevices two\n", "f:2: two: expected a number, 1..4096" },
    { "orrery schedule 1\ndevices\n", "f:2: end of line: expected a number, 1..4096" },
    { "orrery schedule 1\ndevices 2\ndevices 2\n",
      "f:3: size: expected each of devices, micros and chunks once, before everything else" },
    { "orrery schedule 1\nname a-name-that-is-longer-than-thirty-one-characters\n",
      "f:2: a-name-that-is-longer-than-thirty-one-characters: expected a name of 1..31 characters" },
    { "orrery schedule 1\ndevices 2\nplace 0: 0\n",
      "f:3: sizes: expected devices, micros and chunks before this line" },
    { "orrery schedule 1\ndevices 4096\nmicros 4194304\nchunks 1024\nplace 0: 0\n",
      "f:5: schedule file: devices=4096 (1..4096), micros=4194304, chunks=1024 (1..1024) and their product "
      "(1..4194304) must be in range" },
    { HEAD "orrery schedule 1\n",
      "f:8: orrery: expected one schedule; another one begins here: FILE:NAME takes one of several" },
    { HEAD "colour red\n",
      "f:8: colour: expected name, devices, micros, chunks, place, routes, route, takes, update, versions or device" },
    { HEAD "place 2: 0\n", "f:8: 2:: expected a device 0..1 and a colon" },
    { HEAD "place 0 0\n", "f:8: 0: expected a device 0..1 and a colon" },
    { HEAD "place 0: 0 1\n", "f:8: 1: expected no more stages than `chunks` says" },
    { HEAD "place 0: 7\n", "f:8: 7: expected a stage or `-`" },
    { HEAD "route 0: 0.0 1.0\n", "f:8: 0:: expected a route 0..-1 and a colon" },
    { HEAD "routes 0\n", "f:8: 0: expected routes, 1..2097152" },
    { HEAD "routes 1\nroutes 1\n", "f:9: routes: expected this line once" },
    { HEAD "routes 1\nroute 0: 1.0 1.0\n", "f:9: 1.0: expected device.chunk that holds this stage, or `-`" },
    { HEAD "routes 1\nroute 0: 0.0 1.0 -\n", "f:9: -: expected no more places than there are stages" },
    { HEAD "routes 1\ntakes 0: 5\n", "f:9: 5: expected a microbatch" },
    { HEAD "routes 1\nplace 0: 1\n", "f:9: 1: expected places before routes" },
    { HEAD "routes 1\ndevice 0: F0\n", "f: route 0 visits no stage" },
    { HEAD "versions 3\n", "f:8: 3: expected weight versions, 1..2" },
    { HEAD "update 5\n", "f:8: 5: expected microbatches, 1..2" },
    { HEAD "device 0: G0\n", "f:8: G0: expected actions separated by spaces, such as F0 B0 I2 W2 sa0>1 rg0<1" },
    { HEAD "device 0: F\n", "f:8: F: expected actions separated by spaces, such as F0 B0 I2 W2 sa0>1 rg0<1" },
    { HEAD "device 0: F0x\n", "f:8: F0x: expected actions separated by spaces, such as F0 B0 I2 W2 sa0>1 rg0<1" },
    { HEAD "device 0: sa0<1\n", "f:8: sa0<1: expected actions separated by spaces, such as F0 B0 I2 W2 sa0>1 rg0<1" },
    { HEAD "device 0: sa0>2\n", "f:8: sa0>2: expected actions separated by spaces, such as F0 B0 I2 W2 sa0>1 rg0<1" },
    { HEAD "device 0: F2\n", "f:8: F2: expected a microbatch of 0..1" },
    { HEAD "device 0: F0.1\n", "f:8: F0.1: expected a microbatch of 0..1 and a chunk of 0..0 that holds a stage" },
    { HEAD "device 0: F0 F1 B0 B1\ndevice 0: F0\ndevice 1: F0 B0 F1 B1\n",
      "f:9: device 0, action 5: F0: done twice, first as action 1" },
    { HEAD "device 0: F0 F1 B0\ndevice 1: F0 B0 F1 B1\n",
      "f:8: device 0: the backward of microbatch 1 is missing: expected B1, or I1 and W1" },
    { HEAD "device 0: F0 B0 B1 F1\ndevice 1: F0 B0 F1 B1\n",
      "f:8: device 0, action 3: B1: expected after F1, which is action 4" },
    { HEAD "device 0: F0 F1 B0 W1\ndevice 0: I1\ndevice 1: F0 B0 F1 B1\n",
      "f:8: device 0, action 4: W1: expected after I1, which is action 5" },
    { HEAD "device 0: F0 F1 B0 B1 W1\ndevice 1: F0 B0 F1 B1\n",
      "f:8: device 0, action 5: W1: a whole backward (B) has been done already" },
    { HEAD "device 0: F0 F1 B0 B1 U1\ndevice 1: F0 B0 F1 B1\n",
      "f:8: device 0, action 5: U1: no U: the step ends with the list" },
    { HEAD "device 0: &F0 F1 B0 B1\ndevice 1: F0 B0 F1 B1\n",
      "f:8: device 0, action 1: F0: it is beside the action before it: expected an F, B or I after "
      "another of these that is not beside a third" },
    { HEAD "device 0: F0 F1 &B0 &B1\ndevice 1: F0 B0 F1 B1\n",
      "f:8: device 0, action 4: B1: it is beside the action before it: expected an F, B or I after "
      "another of these that is not beside a third" },
    { HEAD "device 0: F0 F1 B0 I1 &W1\ndevice 1: F0 B0 F1 B1\n",
      "f:8: device 0, action 5: W1: it is beside the action before it: expected an F, B or I after "
      "another of these that is not beside a third" },
    { "orrery schedule 1\ndevices 1\nmicros 1\nchunks 2\nplace 0: 0 1\ndevice 0: F0 F0.1 B0 B0.1\n",
      "f:6: device 0, action 3: B0 of chunk 0: expected after B0 of chunk 1, which is action 4" },
    { "orrery schedule 1\ndevices 1\nmicros 1\nchunks 2\nplace 0: 0 1\ndevice 0: F0-F0.1\n",
      "f:6: F0-F0.1: expected actions separated by spaces, such as F0, B0.1, &B0, I2, W2, sa0>1 or rg0<1" },
    { HEAD "device 1: F0 B0 F1 B1\n", "f: device 0: F0 is missing (forward of a stage)" },
    { HEAD "device 0: F0 B0\ndevice 0: F1 B1\ndevice 1: F1 B1\ndevice 1: F0 B0\n",
      "f:8: deadlock: device 0, action 2 (needs rg0) waits for device 1; device 1, action 1 (needs ra1) waits for "
      "device 0" },
    { HEAD "device 0: F0 sa0>1 F1 sa1>1 rg0<1 B0 rg1<1 B1\ndevice 1: ra0<0 F0 B0 sg0>0 ra1<0 F1 B1\n",
      "f:9: device 1: sg1 is missing (the gradient of a stage's input to the device before)" },
    { HEAD "device 0: F0 sa0>1 F1 sa1>1 rg0<1 B0 rg1<1 B1\ndevice 1: ra0<1 F0 B0 sg0>0 ra1<0 F1 B1 sg1>0\n",
      "f:9: device 1, action 1: ra0: peer is device 1, expected 0" },
    { HEAD "device 0: F0 sa0>1 F1 sa1>1 rg0<1 B0 sg0>1 rg1<1 B1\ndevice 1: ra0<0 F0 B0 sg0>0 ra1<0 F1 B1 sg1>0\n",
      "f:8: device 0, action 7: sg0: no message is needed: the neighbouring stage is here, or there is "
      "none" },
    { "orrery schedule 1\ndevices 2\nmicros 1\nchunks 1\nplace 0: 0\nplace 1: 0\ndevice 0: F0 B0\n",
      "f:7: device 0, action 1: F0: microbatch 0 does not come here: its route computes stage 0 on device "
      "1" },
    { "orrery schedule 1\ndevices 1\nmicros 1\nchunks 1\nplace 0: -\ndevice 0:\n", "f: no place holds a stage" },
    { "orrery schedule 1\ndevices 2\nmicros 1\nchunks 1\nplace 0: 0\nplace 1: -\ndevice 1: F0\n",
      "f:7: F0: expected a microbatch of 0..0 and a chunk of 0..0 that holds a stage" },
};

static void expect(const char *text, size_t length, const char *want)
{
    struct schedule s;
    struct error err = { OK, "accepted" };
    FILE *f = file_of(text, length);
    const enum error_code code = schedule_read(&s, f, "f", &err);
    if (strcmp(err.text, want) != 0) fail_msg("file:\n%s\n got \"%s\"\nwant \"%s\"", text, err.text, want);
    assert_int_equal(code, ERR_FORMAT);
    assert_null(s.actions);
    fclose(f);
}

static void test_bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) expect(bad[i].text, strlen(bad[i].text), bad[i].want);
    static const char zero[] = "orrery schedule 1\ndevices 2\0 3\n";
    expect(zero, sizeof zero - 1, "f:2: a byte 0: expected text");
}

/* ---- hostile files ----------------------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *x) { return *x = *x * 1664525u + 1013904223u; }

/* A good file with bytes changed, doubled and lost: read or refused, never a crash, and what is read is valid. */
static void test_damaged_files(void **state)
{
    (void)state;
    struct error err;
    uint32_t x = 1;
    int read = 0, refused = 0;
    for (int g = 0; schedule_generator_at(g); g++) {
        static char text[1 << 16], damaged[1 << 16];
        struct schedule s;
        if (schedule_make(&s, schedule_generator_at(g)->head.name,
                          &(struct schedule_request){ .devices = 4, .micros = 5 }, &err) != OK)
            fail_msg("%s", err.text);
        FILE *f = tmpfile();
        assert_non_null(f);
        assert_int_equal(schedule_write(f, &s, NULL), OK);
        rewind(f);
        const size_t length = fread(text, 1, sizeof text, f);
        fclose(f);
        schedule_free(&s);
        for (int round = 0; round < 200; round++) {
            size_t n = length;
            memcpy(damaged, text, length);
            for (uint32_t hits = 1 + next_random(&x) / 7 % 4; hits > 0; hits--) {
                const size_t at = next_random(&x) / 3 % n;
                static const char bytes[] = "0123456789FBIWsarg.:<>-# \n\x80U&";
                if (next_random(&x) & 0x100) damaged[at] = bytes[next_random(&x) / 5 % (sizeof bytes - 1)];
                else memmove(damaged + at, damaged + at + 1, --n - at);
            }
            f = file_of(damaged, n);
            struct schedule back;
            if (schedule_read(&back, f, "damaged", &err) == OK) {
                read++;
                assert_int_equal(schedule_validate(&back, NULL), OK);
                schedule_free(&back);
            } else refused++;
            fclose(f);
        }
    }
    print_message("            %d damaged files: %d refused, %d still schedules\n", read + refused, refused, read);
    assert_true(refused > read);
}

/* Random words of the format. */
static void test_random_files(void **state)
{
    (void)state;
    static const char *const words[] = { "device",   "place", "route",      "routes", "takes",     "update",
                                         "versions", "name",  "micros",     "0:",     "1:",        "F0",
                                         "F1",       "B0",    "I1",         "W1",     "sa0>1",     "ra0<0",
                                         "-",        "0",     "1",          "2",      "0.0",       "1.0",
                                         "\n",       "\n",    "4294967296", "-1",     "999999999", "F999999999" };
    uint32_t x = 7;
    for (int round = 0; round < 5000; round++) {
        char text[1024] = HEAD;
        for (int i = 0; i < 40; i++) {
            strcat(text, words[next_random(&x) / 11 % (sizeof words / sizeof words[0])]);
            strcat(text, " ");
        }
        struct schedule s;
        FILE *f = file_of(text, strlen(text));
        if (schedule_read(&s, f, "random", NULL) == OK) schedule_free(&s);
        fclose(f);
    }
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code command(char **argv, char *text, size_t room, struct error *err)
{
    int argc = 0;
    while (argv[argc] != NULL) argc++;
    FILE *f = tmpfile();
    assert_non_null(f);
    const enum error_code code = show_schedule(argc, argv, f, err);
    rewind(f);
    text[fread(text, 1, room - 1, f)] = '\0';
    fclose(f);
    return code;
}

static void test_show(void **state)
{
    (void)state;
    static char text[1 << 16];
    struct error err;
    char svg[4096];
    snprintf(svg, sizeof svg, "%s/orrery-schedule-XXXXXX", temporary_folder());
    const int fd = mkstemp(svg);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(
        command((char *[]){ "zb-h1", "--pp", "3", "--micro", "5", "--svg", svg, NULL }, text, sizeof text, &err), OK);
    assert_string_equal(text, "  0  F0-F1-F2-......I0-W0-F3-I1-W1-F4-I2-W2-I3-W3-I4-W4-\n"
                              "  1  ...F0-F1-...I0-F2-I1-W0-F3-I2-W1-F4-I3-W2-I4-W3-W4-\n"
                              "  2  ......F0-I0-F1-I1-F2-I2-W0-F3-I3-W1-F4-I4-W2-W3-W4-\n"
                              "     F forward  I backward for input  W backward for weights  \n"
                              "\nzb-h1: 3 devices, 5 microbatches, 1 stage on each device\n"
                              "  time      17, with stage times F 1, I 1, W 1, and 0 for a message\n"
                              "  bubble    11.76 %: 15 of work, in 17 from a device's first action to its last\n"
                              "  memory    3 3 3 microbatches held at most, device by device\n"
                              "  messages  20\n"
                              "  order     weight gradients are added in the order of the microbatches\n"
                              "  sends     it would hang if each send blocks until its receive\n");
    FILE *f = fopen(svg, "r");
    assert_non_null(f);
    assert_int_equal(fread(text, 1, 4, f), 4);
    assert_memory_equal(text, "<svg", 4);
    fclose(f);
    assert_int_equal(command((char *[]){ "dualpipe", "--pp", "2", "--micro", "4", "--save", svg, NULL }, text,
                             sizeof text, &err),
                     OK);
    assert_int_equal(command((char *[]){ svg, NULL }, text, sizeof text, &err), OK);
    assert_non_null(strstr(text, "dualpipe: 2 devices, 4 microbatches, 2 stages on each device"));
    assert_int_equal(command((char *[]){ svg, "--pp", "2", "--micro", "4", NULL }, text, sizeof text, &err), OK);
    char named[5000];
    snprintf(named, sizeof named, "%s:dualpipe", svg);
    assert_int_equal(command((char *[]){ named, NULL }, text, sizeof text, &err), OK);
    assert_non_null(strstr(text, "dualpipe: 2 devices"));
    snprintf(named, sizeof named, "%s:1f1b", svg);
    assert_int_equal(command((char *[]){ named, NULL }, text, sizeof text, &err), ERR_FORMAT);
    assert_non_null(strstr(err.text, "has no schedule with a line \"name 1f1b\""));
    assert_int_equal(command((char *[]){ svg, "--pp", "3", NULL }, text, sizeof text, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "has a schedule for --pp 2 --micro 4 --chunks 2; --pp 3 --micro 4"));
    remove(svg);
    assert_int_equal(command((char *[]){ NULL }, text, sizeof text, &err), OK);
    for (int g = 0; schedule_generator_at(g); g++) assert_non_null(strstr(text, schedule_generator_at(g)->head.name));
    assert_int_equal(command((char *[]){ "zb-h3", NULL }, text, sizeof text, &err), ERR_USAGE);
    assert_int_equal(command((char *[]){ "1f1b", "gpipe", NULL }, text, sizeof text, &err), ERR_USAGE);
    assert_int_equal(command((char *[]){ "1f1b", "--F", "9999999999999999", NULL }, text, sizeof text, &err),
                     ERR_USAGE);
    assert_int_equal(command((char *[]){ "1f1b", "--svg", "/nowhere/x.svg", NULL }, text, sizeof text, &err), ERR_FILE);
    assert_int_equal(command((char *[]){ "/nowhere/x", NULL }, text, sizeof text, &err), ERR_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_messages_are_put_in),
            cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_damaged_files), cmocka_unit_test(test_random_files),        cmocka_unit_test(test_show),
        cmocka_unit_test(test_one_of_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
