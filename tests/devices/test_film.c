/* Films: their JSON reads back as it is, wrong JSON is refused with its place, devices' time is divided without a rest,
 * what is too much is sampled and said, and no text of a film becomes a part of its page.
 * tier: check
 */
#include "emulated_devices/draw/page/film_report.h"
#include "emulated_devices/draw/page/page_html.h"
#include "ref/io/json.h"
#include "tests/ref/scratch.h"
#include <stdlib.h>

/* Two devices: the first computes 0-40, sends 30-70 and computes 90-100; the second waits for the message. */
static void film_small(struct film *film)
{
    film_open(film, "run", "tick", "orrery train --schedule gpipe");
    film_axis(film, "pp", 2);
    film_device(film, (struct film_device){ .place = "pp=0", .has = "layers 0-1", .row = 0 });
    film_device(film, (struct film_device){ .place = "pp=1", .row = 1 });
    const int forward = film_kind(film, "forward", "F", FILM_COMPUTE);
    const int sends = film_kind(film, "send", "", FILM_MESSAGE);
    const int lane = film_lane(film, "compute"), detail = film_detail(film, "forward of h.0");
    film_detail_row(film, detail, "formula", "Y = X W");
    film_pass(film, (struct film_pass){ 0, lane, forward, 90, 100, 1, 0, -1 });
    film_pass(film, (struct film_pass){ 0, lane, forward, 0, 40, 0, 0, detail });
    film_message(film, (struct film_message){ 0, 1, sends, 30, 70, 4096 });
    film_memory_kind(film, "weights");
    film_memory(film, &(struct film_memory){ 1, 70, { 4096 } });
    film_cell(film, 1, film_column(film, "b0"), 70, "x0+x1", FILM_WHOLE);
    film_loss(film, 5.5), film_mark(film, 100);
    film_check(film, (struct film_check){ "gradient ln_f", 1, false, 0.5, 1e-6, "[2,7]", "on tp=1", "it is times 2" });
    film_note(film, "a note of %d words", 4);
}

static char *film_text(struct film *film)
{
    cJSON *const json = film_json(film);
    char *const text = json_text(json, false);
    cJSON_Delete(json);
    assert_non_null(text);
    return text;
}

static void divides_the_time(void **state)
{
    struct film film;
    int64_t share[FILM_SHARES];
    (void)state;
    film_small(&film);
    assert_int_equal(film.end, 100);
    assert_true(film_shares(&film, 0, share));
    assert_int_equal(share[0], 50), assert_int_equal(share[1], 30), assert_int_equal(share[2], 20);
    assert_true(film_shares(&film, 1, share));
    assert_int_equal(share[0], 0), assert_int_equal(share[1], 40), assert_int_equal(share[2], 60);
    film_close(&film);
}

static void reads_what_it_writes(void **state)
{
    struct film film, again;
    struct error err;
    cJSON *json;
    (void)state;
    film_small(&film);
    char *const text = film_text(&film);
    assert_int_equal(json_parse(text, strlen(text), "film", &json, &err), OK);
    if (film_read(&again, json, "film", &err)) fail_msg("%s", err.text);
    char *const second = film_text(&again);
    assert_string_equal(text, second);
    assert_int_equal(again.pass[0].start, 0);           /* in the order of time */
    cJSON_Delete(json), film_close(&film), film_close(&again), free(text), free(second);
}

/* Replace a piece of the small film's JSON, and read it. */
static enum error_code read_with(const char *piece, const char *other, struct error *err)
{
    struct film film, again;
    cJSON *json = NULL;
    film_small(&film);
    char *const text = film_text(&film), *const at = strstr(text, piece);
    if (at == NULL) fail_msg("the film has no %s", piece);
    char *const changed = malloc(strlen(text) + strlen(other) + 1);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, other, at + strlen(piece));
    enum error_code e = json_parse(changed, strlen(changed), "film", &json, err);
    again = (struct film){ .kind = NULL };
    if (!e) e = film_of_report(&again, json, "film", err);
    cJSON_Delete(json), film_close(&film), film_close(&again), free(text), free(changed);
    return e;
}

static void refuses_wrong_films(void **state)
{
    static const struct { const char *piece, *other, *says; } wrong[] = {
        { "\"film\":1", "\"film\":2", "a film of version 2; this program reads version 1" },
        { "\"kind\":\"run\"", "\"kind\":\"walk\"", "there is no such kind of film" },
        { "\"unit\":\"tick\"", "\"unit\":\"s\"", "is neither ps nor tick" },
        { "\"end\":100", "\"end\":-1", "end" }, { "\"end\":100", "\"end\":99", "passes[1]" },
        { "[0,0,0,40,0,0,0,0]", "[2,0,0,40,0,0,0,0]", "passes[0]" },
        { "[0,0,0,40,0,0,0,0]", "[0,1,0,40,0,0,0,0]", "passes[0]" },
        { "[0,0,0,40,0,0,0,0]", "[0,0,0,40,2,0,0,0]", "passes[0]" },
        { "[0,0,0,40,0,0,0,0]", "[0,0,0,40,0,0,0,1]", "passes[0]" },
        { "[0,0,0,40,0,0,0,0]", "[0,0,41,40,0,0,0,0]", "it ends before it begins" },
        { "[0,0,0,40,0,0,0,0]", "[0,0,0.5,40,0,0,0,0]", "passes[0]" }, { "[0,0,0,40,0,0,0,0]", "[0,0,0]", "passes[0]" },
        { "[0,0,0,40,0,0,0,0]", "7", "passes[0]" }, { "[0,1,30,70,4096,1]", "[0,2,30,70,4096,1]", "messages[0]" },
        { "[0,1,30,70,4096,1]", "[0,1,30,70,-1,1]", "messages[0]" }, { "[[70,4096]]", "[[70]]", "memory[1]" },
        { "[70,1,0,\"x0+x1\",2]", "[70,1,1,\"x0+x1\",2]", "rows[0]" },
        { "[70,1,0,\"x0+x1\",2]", "[70,1,0,3,2]", "rows[0]" },
        { "[70,1,0,\"x0+x1\",2]", "[70,1,0,\"x0+x1\",4]", "rows[0]" },
        { "\"name\":\"send\"", "\"name\":\"forward\"", "there twice" },
        { "[50,30,20]", "[50,30,21]", "do not add up" }, { "[50,30,20],", "", "not one for each device" },
        { "\"device\":1", "\"device\":\"all\"", "device" }, { "\"sent\":[1,", "\"sent\":[-1,", "sent[0]" },
        { "[5.5]", "[\"much\"]", "losses[0]" }, { "[100]", "[101]", "marks[0]" },
    };
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const enum error_code e = read_with(wrong[i].piece, wrong[i].other, &err);
        if (e != ERR_FORMAT || !strstr(err.text, wrong[i].says))
            fail_msg("%s for %s: code %d, \"%s\", not \"%s\"", wrong[i].other, wrong[i].piece, (int)e,
                     e ? err.text : "", wrong[i].says);
    }
    assert_int_equal(read_with("\"film\":1", "\"film\":1", &err), OK);
}

static void samples_and_says_so(void **state)
{
    struct film film;
    int64_t share[FILM_SHARES];
    (void)state;
    film_small(&film);
    for (int i = 0; i < FILM_MOST_PASSES; i++)
        film_pass(&film, (struct film_pass){ 1, 0, 0, 100 + 3 * i, 100 + 3 * i + 1 + i % 2, -1, -2, -1 });
    for (int i = 0; i < FILM_MOST_MESSAGES; i++)
        film_message(&film, (struct film_message){ 0, 1, 1, 100 + i, 101 + i, 8 });
    assert_true(film_shares(&film, 1, share));
    free(film_text(&film));
    assert_int_equal(film.passes, FILM_MOST_PASSES);
    assert_int_equal(film.messages, FILM_MOST_MESSAGES);
    assert_int_equal(film.sent[0], FILM_MOST_MESSAGES + 1);
    assert_int_equal(film.sent[1], 8 * FILM_MOST_MESSAGES + 4096);
    bool largest = false;
    for (int i = 0; i < film.messages; i++) largest = largest || film.message[i].bytes == 4096;
    if (!largest) fail_msg("the largest message was left out");
    assert_string_equal(film.note[1], "the shortest 2 of 16002 passes are not drawn");
    assert_string_equal(film.note[2], "the smallest 1 of 12001 messages are not drawn");
    assert_memory_equal(film.share[1], share, sizeof share);    /* of all passes, also those that are not drawn */
    film_close(&film);
}

/* The parts, as printed, add up to the difference. */
static void says_what_differs(void **state)
{
    struct film a, b;
    (void)state;
    film_small(&a), film_small(&b);
    free(b.title);
    b.title = strdup("orrery train --schedule zb-h1");
    film_pass(&b, (struct film_pass){ 1, 0, 0, 100, 110, -1, -2, -1 });
    char *const text = film_differ(&a, &b), *const back = film_differ(&b, &a), *const same = film_differ(&a, &a);
    assert_string_equal(text, "zb-h1 takes 10.0 ticks more than gpipe: bubble +5.0, messages +0.0, computing +5.0 "
                              "ticks "
                              "(means over devices)");
    assert_string_equal(back, "gpipe saves 10.0 ticks against zb-h1: bubble -5.0, messages +0.0, computing -5.0 ticks "
                              "(means over devices)");
    assert_string_equal(same, "B takes as long as A: bubble +0.0, messages +0.0, computing +0.0 ticks (means over "
                              "devices)");
    free(text), free(back), free(same), film_close(&a), film_close(&b);
}

static void rounds_parts_to_their_sum(void **state)
{
    struct film a, b;
    (void)state;
    film_open(&a, "plan", "ps", "orrery plan"), film_open(&b, "plan", "ps", "orrery plan");
    for (int d = 0; d < 3; d++)
        film_device(&a, (struct film_device){ .row = d }), film_device(&b, (struct film_device){ .row = d });
    const int kind = film_kind(&b, "forward", "F", FILM_COMPUTE), lane = film_lane(&b, "compute");
    film_kind(&a, "forward", "F", FILM_COMPUTE);
    film_pass(&b, (struct film_pass){ 0, lane, kind, 0, 1000000000, -1, -2, -1 });
    film_message(&b, (struct film_message){ 1, 1, kind, 0, 1000000000, 8 });
    char *const text = film_differ(&a, &b);
    assert_string_equal(text, "B takes 1.00 ms more than A: idle +0.33, messages +0.33, computing +0.34 ms (means over "
                              "devices)");
    free(text), film_close(&a), film_close(&b);
}

static void texts_stay_texts(void **state)
{
    static const char hostile[] = "</script><img src=x onerror=alert(1)>\x01\xff";
    struct film film, *const films[] = { &film };
    struct error err;
    char *page, longest[2 * FILM_TEXT + 1];
    size_t bytes;
    (void)state;
    film_open(&film, "run", "tick", hostile);
    film_device(&film, (struct film_device){ .place = hostile, .has = hostile });
    film_detail_row(&film, film_detail(&film, hostile), hostile, hostile);
    film_kind(&film, hostile, hostile, FILM_OTHER), film_lane(&film, hostile), film_note(&film, "%s", hostile);
    film_check(&film, (struct film_check){ hostile, 0, false, 1, 1, hostile, hostile, hostile });
    for (size_t i = 0; i + 1 < sizeof longest; i += 2) memcpy(longest + i, "\xc3\xa9", 2);
    longest[sizeof longest - 1] = '\0';
    film_note(&film, "%s", longest);
    assert_int_equal(page_html_text(&page, &bytes, films, 1, &err), OK);
    assert_int_equal(strlen(page), bytes);
    const char *const data = strstr(page, "id=\"data\">"), *const end = data ? strstr(data, "</script>") : NULL;
    assert_non_null(end);
    for (const char *at = data + 10; at < end; at++)
        if (*at == '<' || (unsigned char)*at < ' ') fail_msg("the data have a '<' or a control character: %.40s", at);
    if (strstr(page, "<img")) fail_msg("a text became an element");
    if (strstr(page, "innerHTML") || strstr(page, "http://") || strstr(page, "https://"))
        fail_msg("the page can make elements of texts, or asks something of a network");
    if (!strstr(page, "\\u003c/script>\\u003cimg src=x onerror=alert(1)>??")) fail_msg("the text is not there");
    free(page), film_close(&film);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divides_the_time), cmocka_unit_test(reads_what_it_writes),
        cmocka_unit_test(refuses_wrong_films),
        cmocka_unit_test(samples_and_says_so), cmocka_unit_test(says_what_differs),
        cmocka_unit_test(rounds_parts_to_their_sum), cmocka_unit_test(texts_stay_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
