/* The body of a request from any client: one that is accepted is a request that the model can take, with tokens of the
 * model; one that is refused has an error object.  The first byte says which path.
 * tier: check
 */
#include "emulated_devices/serve/http/openai.h"
#include "tests/fuzz/fuzz.h"
#include <cjson/cJSON.h>

enum { V = 300, POSITIONS = 64, ROOM = 48 };

static void look(const struct api_request *q)
{
    const struct request *const r = &q->request;
    must(r->most >= 1 && r->prompt.count >= 1 && r->prompt.count + r->most <= ROOM + 1, "%d tokens",
         (int)r->prompt.count);
    for (int64_t i = 0; i < r->prompt.count; i++) must(r->prompt.id[i] >= 0 && r->prompt.id[i] < V, "a token");
    for (int64_t i = 0; i < r->stop.count; i++) must(r->stop.id[i] >= 0 && r->stop.id[i] < V, "a stop token");
    must(r->how.temperature >= 0 && r->how.temperature <= 2 && r->how.top_p > 0 && r->how.top_p <= 1 &&
         r->how.top_k >= 0, "how it is drawn");
    must(q->stops >= 0 && q->stops <= API_STOPS, "%d stops", q->stops);
    for (int i = 0; i < q->stops; i++)
        must(q->stop[i] && q->stop[i][0] && strlen(q->stop[i]) <= API_STOP_BYTES, "a stop");
    must(q->streams || !q->tells_usage, "usage without a stream");
}

static void check_object(const struct api_error *error)
{
    char *const text = api_error_text(error);
    cJSON *const root = cJSON_Parse(text), *const o = cJSON_GetObjectItem(root, "error");
    must(error->status >= 400 && error->message[0], "refused without a word");
    must(cJSON_GetObjectItem(o, "message") && cJSON_GetObjectItem(o, "type") && cJSON_GetObjectItem(o, "param") &&
         cJSON_GetObjectItem(o, "code"), "an error without its four keys: %s", text);
    cJSON_Delete(root);
    free(text);
}

static void try(const uint8_t *data, size_t size)
{
    static const char format[] = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}";
    static const int32_t stop[] = { 10 };
    struct error err;
    struct chat_template *chat;
    if (size == 0) return;
    must(chat_template_open(&chat, format, "a template", NULL, NULL, &err) == OK, "%s", err.text);
    const struct api_model model = { .name = "m", .rules = { .V = V, .S = POSITIONS, .stop = stop, .stops = 1 },
                                     .room = ROOM, .chat = chat };
    struct api_request request;
    struct api_error error = { .status = 0 };
    char *const text = as_text(data + 1, size - 1);
    if (api_request_read(&request, data[0] == 'c' ? API_CHAT : API_COMPLETION, text, size - 1, &model, 7, &error))
        look(&request);
    else check_object(&error);
    api_request_free(&request);
    chat_template_close(chat);
    free(text);
}

FUZZ_TARGET("openai")
