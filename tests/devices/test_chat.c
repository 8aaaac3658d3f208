/* Texts of chats are those of transformers, golden/chats.json; a template beyond the subset is refused by name.
 * tier: check
 */
#include "emulated_devices/serve/http/chat.h"
#include "ref/io/json.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

#define MUST(holds, ...) do { if (!(holds)) fail_msg(__VA_ARGS__); } while (0)

static const char *string_of(const cJSON *entry, const char *key)
{
    const cJSON *const x = cJSON_GetObjectItemCaseSensitive(entry, key);
    return cJSON_IsString(x) ? x->valuestring : NULL;
}

static void check_entry(const cJSON *entry)
{
    struct chat_template *t;
    char *text = NULL;
    size_t bytes = 0;
    const char *const name = string_of(entry, "name"), *const wanted = string_of(entry, "text");
    MUST(chat_template_open(&t, string_of(entry, "template"), name, string_of(entry, "bos"), string_of(entry, "eos"),
                              &err) == OK, "%s: %s", name, err.text);
    const enum error_code e = chat_render(t, cJSON_GetObjectItemCaseSensitive(entry, "messages"), &text, &bytes, &err);
    MUST((wanted == NULL) == (e == ERR_FORMAT), "%s: %s", name, e ? err.text : "was not refused");
    MUST(wanted == NULL || strcmp(text, wanted) == 0, "%s: the text is\n%s\nand must be\n%s", name, text, wanted);
    free(text);
    chat_template_close(t);
}

static void test_as_transformers(void **state)
{
    cJSON *root;
    const cJSON *entry;
    int entries = 0;
    (void)state;
    MUST(json_read("golden/chats.json", &root, &err) == OK, "%s", err.text);
    cJSON_ArrayForEach(entry, root) check_entry(entry), entries++;
    MUST(entries >= 20, "only %d chats", entries);
    cJSON_Delete(root);
}

static void test_refused_by_name(void **state)
{
    static const struct { const char *text, *says; } refused[] = {
        { "{% macro x() %}{% endmacro %}", "t:1: {% macro x() %} is not supported" },
        { "a\n\n{{ messages | selectattr('role') }}", "t:3: the filter selectattr is not supported" },
        { "{{ strftime_now('%d') }}", "the function strftime_now is not supported" },
        { "{{ messages[0].content.title() }}", "the function .title() is not supported" },
        { "{{ x is divisibleby(3) }}", "the test divisibleby is not supported" },
        { "{% for a, b in messages %}{% endfor %}", "for a, b in messages" },
        { "{% for m in messages %}", "t:1: has no end" },
        { "{% if true %}{% endfor %}", "endfor" },
        { "{% for m in messages %}{% else %}{% endfor %}", "else" },
        { "{{ {'a': 1} }}", "{ in an expression is not supported" },
        { "{{ messages[::2] }}", "with steps is not supported" },
        { "{{ 1 / 2 }}", "/ is not supported" },
        { "{{ 'a", "{{ has no end" },
        { "{{ 1 2 }}", "2  is not supported here" },
        { "{% break %}", "break" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct chat_template *t;
        const enum error_code e = chat_template_open(&t, refused[i].text, "t", NULL, NULL, &err);
        MUST(e == ERR_FORMAT && strstr(err.text, refused[i].says), "%s: %s", refused[i].text,
               e ? err.text : "was taken");
    }
}

/* A template that never ends, or whose text is endless, is left after a while. */
static void test_bounded(void **state)
{
    static const char *const endless[] = {
        "{% set x = 'ab' %}{% for i in range(60) %}{% set ns = namespace(x=x + x) %}{% endfor %}"
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
        "{% for i in range(60000) %}{% for j in range(60000) %}{{ j }}{% endfor %}{% endfor %}",
        "{{ ((((((((((((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))))))))))) }}",
    };
    cJSON *const messages = cJSON_Parse("[{\"role\":\"user\",\"content\":\"x\"}]");
    (void)state;
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        struct chat_template *t;
        char *text = NULL;
        size_t bytes;
        enum error_code e = chat_template_open(&t, endless[i], "t", NULL, NULL, &err);
        if (!e) e = chat_render(t, messages, &text, &bytes, &err);
        MUST(e == ERR_FORMAT, "%s: %s", endless[i], e ? err.text : "has an end");
        free(text);
        chat_template_close(t);
    }
    cJSON_Delete(messages);
}

static void test_wrong_messages(void **state)
{
    static const struct { const char *messages, *says; } wrong[] = {
        { "[{\"role\":\"tool\",\"content\":\"x\"}]", "message 0: its role must be" },
        { "[{\"role\":\"user\"}]", "message 0: its content must be a text" },
        { "[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[1]}]", "message 0: tool_calls is not served" },
        { "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "a part of type image_url is not served" },
    };
    struct chat_template *t;
    (void)state;
    MUST(chat_template_open(&t, "{{ messages[0].content }}", "t", NULL, NULL, &err) == OK, "%s", err.text);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cJSON *const messages = cJSON_Parse(wrong[i].messages);
        char *text;
        size_t bytes;
        const enum error_code e = chat_render(t, messages, &text, &bytes, &err);
        MUST(e == ERR_FORMAT && strstr(err.text, wrong[i].says), "%s: %s", wrong[i].messages,
               e ? err.text : "was taken");
        cJSON_Delete(messages);
    }
    chat_template_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_transformers), cmocka_unit_test(test_refused_by_name), cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_wrong_messages),
    };
    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
