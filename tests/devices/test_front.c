/* The table of open requests, between clients and devices: texts that end answers, clients that leave, requests that
 * take too long, and no place more than there are.
 * tier: check
 */
#include "emulated_devices/serve/http/front.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static struct error err;
static int slept, woken;
static bool gone;

static void note_sleep(void *context) { (void)context; slept++; }
static void note_wake(void *context) { (void)context; woken++; }
static bool has_left(void *context) { (void)context; return gone; }
static const struct sleeper sleeper = { NULL, note_sleep, note_wake, has_left };
static const struct api_model model = { .name = "m", .rules = { .V = 256, .S = 64 }, .room = 64 };

static struct ticket *enter(struct front *f, const char *body)
{
    struct api_request request;
    struct api_error error;
    if (!api_request_read(&request, API_COMPLETION, body, strlen(body), &model, front_next(f), &error))
        fail_msg("%s: %s", body, error.message);
    struct ticket *const t = front_enter(f, &request, &sleeper);
    api_request_free(&request);
    return t;
}

static int64_t listen(struct front *f)
{
    struct live_news news = { .room = 0 };
    const struct live_front devices = front_for_devices(f);
    devices.listen(devices.context, &news);
    const int64_t words = news.count;
    free(news.word);
    return words;
}

static void tell(struct front *f, int64_t slot, const char *text, enum finish last)
{
    const struct live_front devices = front_for_devices(f);
    for (; *text; text++) devices.token(devices.context, slot, *text, text[1] ? NOT_FINISHED : last);
}

static struct front *open_front(int64_t open, double seconds)
{
    struct front *f;
    const struct front_limits limits = { open, 1, seconds, 0 };
    assert_int_equal(front_open(&f, &model, &limits, &err), OK);
    return f;
}

static void must_have(struct front *f, struct ticket *t, const char *text, const char *finish)
{
    struct ticket_state state;
    if (!ticket_look(f, t, 0, finish != NULL, &state)) fail_msg("nothing may be sent; there must be %s", text);
    if (state.bytes != strlen(text) || memcmp(state.text, text, state.bytes) != 0)
        fail_msg("%s%.*s%s%s", finish ? "the answer is " : "", (int)state.bytes, state.text,
                 finish ? "; it must be " : " may be sent; only this is certain: ", text);
    if (finish) assert_string_equal(state.answer.finish, finish);
    free(state.text);
}

static void test_stop_texts(void **state)
{
    struct front *const f = open_front(2, 60);
    struct ticket *const t = enter(f, "{\"model\":\"m\",\"prompt\":\"a\",\"stop\":[\"END\",\"xx\"],\"stream\":true}");
    (void)state;
    assert_true(listen(f) > 0);
    tell(f, 0, "abEN", NOT_FINISHED);
    must_have(f, t, "ab", NULL);
    tell(f, 0, "xE", NOT_FINISHED);
    must_have(f, t, "abENx", NULL);
    tell(f, 0, "NDcd", FINISH_LENGTH);
    must_have(f, t, "abENx", "stop");
    assert_true(front_counts_of(f).answered == 1);
    ticket_leave(f, t);
    front_close(f);
}

/* Without its stop text an answer has all that was held back. */
static void test_held_back(void **state)
{
    struct front *const f = open_front(1, 60);
    struct ticket *const t = enter(f, "{\"model\":\"m\",\"prompt\":\"a\",\"stop\":\"END\"}");
    (void)state;
    listen(f);
    tell(f, 0, "abEN", FINISH_LENGTH);
    must_have(f, t, "abEN", "length");
    ticket_leave(f, t);
    front_close(f);
}

static void test_places(void **state)
{
    static const char body[] = "{\"model\":\"m\",\"prompt\":\"a\"}";
    struct front *const f = open_front(2, 60);
    struct ticket *const a = enter(f, body), *const b = enter(f, body);
    (void)state;
    assert_true(a && b && enter(f, body) == NULL);
    assert_true(listen(f) > 0);
    ticket_leave(f, a);
    if (enter(f, body)) fail_msg("a place is free before the devices have dropped its request");
    if (listen(f) == 0) fail_msg("the devices do not hear that a client has left");
    struct ticket *const c = enter(f, body);
    if (c == NULL) fail_msg("a place is not free after its client has left");
    assert_true(front_counts_of(f).left == 1);
    front_close(f);
}

/* A client that sleeps is looked after; a request that takes too long has a problem. */
static void test_left_and_late(void **state)
{
    static const char body[] = "{\"model\":\"m\",\"prompt\":\"a\"}";
    struct front *f = open_front(1, 60);
    struct ticket_state end;
    struct ticket *t = enter(f, body);
    (void)state;
    slept = woken = 0, gone = true;
    assert_false(ticket_look(f, t, 0, true, &end));
    listen(f);
    assert_true(slept == 1 && woken == 1 && ticket_look(f, t, 0, true, &end) && end.problem);
    free(end.text);
    front_close(f);
    gone = false;
    f = open_front(1, 1e-9);
    t = enter(f, body);
    listen(f);
    assert_true(ticket_look(f, t, 0, true, &end) && strstr(end.problem, "took longer"));
    free(end.text);
    front_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_texts), cmocka_unit_test(test_held_back), cmocka_unit_test(test_places),
        cmocka_unit_test(test_left_and_late),
    };
    return cmocka_run_group_tests_name("front", tests, NULL, NULL);
}
