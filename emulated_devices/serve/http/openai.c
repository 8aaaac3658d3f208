/* openai.c -- reads requests and writes answers of OpenAI's API.  front.c and server.c call.  A client that has done
 * something wrong gets an error object: here this is no error. */
#include "emulated_devices/serve/http/openai.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool api_refuse(struct api_error *to, int status, const char *param, const char *code, const char *format, ...)
{
    va_list list;
    *to = (struct api_error){ .status = status, .code = code };
    snprintf(to->param, sizeof to->param, "%s", param ? param : "");
    va_start(list, format);
    vsnprintf(to->message, sizeof to->message, format, list);
    va_end(list);
    return false;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

enum { IN_COMPLETION = 1 << API_COMPLETION, IN_CHAT = 1 << API_CHAT, IN_BOTH = IN_COMPLETION | IN_CHAT };

/* Keys that are served, and keys that are taken if their value asks for nothing that is not served. */
static const struct api_key { const char *key; unsigned in; const char *why; } api_keys[] = {
    { "model", IN_BOTH, NULL }, { "stream", IN_BOTH, NULL }, { "stream_options", IN_BOTH, NULL },
    { "prompt", IN_COMPLETION, NULL }, { "messages", IN_CHAT, NULL }, { "max_tokens", IN_BOTH, NULL },
    { "max_completion_tokens", IN_CHAT, NULL }, { "temperature", IN_BOTH, NULL }, { "top_p", IN_BOTH, NULL },
    { "top_k", IN_BOTH, NULL }, { "seed", IN_BOTH, NULL }, { "stop", IN_BOTH, NULL }, { "user", IN_BOTH, NULL },
    { "stop_token_ids", IN_BOTH, NULL }, { "ignore_eos", IN_BOTH, NULL }, { "metadata", IN_BOTH, NULL },
    { "n", IN_BOTH, "one answer a request: send it as often as you want answers" },
    { "best_of", IN_COMPLETION, "one answer is drawn" },
    { "echo", IN_COMPLETION, "an answer does not repeat its prompt" },
    { "suffix", IN_COMPLETION, "an answer follows its prompt" },
    { "logprobs", IN_BOTH, "an answer has no probabilities" },
    { "top_logprobs", IN_CHAT, "an answer has no probabilities" },
    { "logit_bias", IN_BOTH, "logits are the model's" },
    { "presence_penalty", IN_BOTH, "logits are the model's" },
    { "frequency_penalty", IN_BOTH, "logits are the model's" },
    { "repetition_penalty", IN_BOTH, "logits are the model's" },
    { "min_p", IN_BOTH, "tokens are cut by top_k and top_p" },
    { "response_format", IN_CHAT, "an answer is free text" },
    { "tools", IN_CHAT, "no tools are called" },
    { "tool_choice", IN_CHAT, "no tools are called" },
    { "parallel_tool_calls", IN_CHAT, "no tools are called" },
    { "functions", IN_CHAT, "no functions are called" },
    { "function_call", IN_CHAT, "no functions are called" },
    { "modalities", IN_CHAT, "an answer is text" },
    { "audio", IN_CHAT, "an answer is text" },
    { "prediction", IN_CHAT, "an answer is drawn token by token" },
    { "reasoning_effort", IN_CHAT, "an answer is drawn token by token" },
    { "store", IN_CHAT, "answers are not stored" },
    { "service_tier", IN_CHAT, "there is one" },
    { "web_search_options", IN_CHAT, "nothing is searched" },
};
enum { API_KEYS = sizeof api_keys / sizeof *api_keys };

/* Whether a value asks for what happens without it, too. */
static bool asks_nothing(const char *key, const cJSON *value)
{
    static const char *const words[] = { "none", "auto", "default", "text" };
    const cJSON *const type = cJSON_IsObject(value) ? cJSON_GetObjectItemCaseSensitive(value, "type") : NULL;
    if (cJSON_IsNull(value) || cJSON_IsFalse(value)) return true;
    if (cJSON_IsNumber(value)) {
        const double usual = strcmp(key, "n") == 0 || strcmp(key, "best_of") == 0 ||
                             strcmp(key, "repetition_penalty") == 0 ? 1 : 0;
        return value->valuedouble == usual && (usual > 0 || strcmp(key, "logprobs") != 0);
    }
    if (strcmp(key, "parallel_tool_calls") == 0) return true;
    if (type && cJSON_IsString(type)) return strcmp(type->valuestring, "text") == 0 && cJSON_GetArraySize(value) == 1;
    if (cJSON_IsArray(value) && cJSON_GetArraySize(value) == 1) value = value->child;
    for (size_t i = 0; i < sizeof words / sizeof *words && cJSON_IsString(value); i++)
        if (strcmp(value->valuestring, words[i]) == 0) return true;
    return (cJSON_IsArray(value) || cJSON_IsObject(value)) && cJSON_GetArraySize(value) == 0;
}

static bool check_api_keys(const cJSON *root, enum api_kind kind, struct api_error *to)
{
    const char *names[API_KEYS];
    const cJSON *one;
    size_t n = 0;
    for (size_t i = 0; i < API_KEYS; i++)
        if (api_keys[i].in & 1u << kind) names[n++] = api_keys[i].key;
    cJSON_ArrayForEach(one, root) {
        const struct api_key *known = NULL;
        for (size_t i = 0; i < API_KEYS; i++)
            if ((api_keys[i].in & 1u << kind) && strcmp(one->string, api_keys[i].key) == 0) known = &api_keys[i];
        const char *const near = known ? NULL : nearest_name(one->string, names, n);
        if (known == NULL)
            return api_refuse(to, 400, printable(one->string).text, "unknown_parameter", "There is no key %s here%s%s",
                              printable(one->string).text, near ? "; did you mean " : "", near ? near : "");
        if (known->why && !asks_nothing(known->key, one))
            return api_refuse(to, 400, known->key, "unsupported_parameter", "%s is not served with this value: %s",
                              known->key, known->why);
    }
    return true;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A request that is being read. */
struct api_reading {
    const cJSON *root;
    struct api_request *to;
    const struct api_model *model;
    struct api_error *error;
};

static bool api_number(const struct api_reading *r, const char *key, double least, double most, double *to)
{
    const cJSON *const value = cJSON_GetObjectItemCaseSensitive(r->root, key);
    if (!json_has(r->root, key)) return true;
    if (!cJSON_IsNumber(value) || !(value->valuedouble >= least && value->valuedouble <= most))
        return api_refuse(r->error, 400, key, "invalid_value", "%s must be a number from %g to %g", key, least, most);
    *to = value->valuedouble;
    return true;
}

static bool api_whole(const struct api_reading *r, const char *key, int64_t least, int64_t most, int64_t *to)
{
    int64_t x;
    if (!json_has(r->root, key)) return true;
    if (!json_whole(cJSON_GetObjectItemCaseSensitive(r->root, key), &x) || x < least || x > most)
        return api_refuse(r->error, 400, key, "invalid_value", "%s must be a whole number from %lld to %lld", key,
                          (long long)least, (long long)most);
    *to = x;
    return true;
}

static bool api_switch(const struct api_reading *r, const cJSON *object, const char *key, bool *to)
{
    const cJSON *const value = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!json_has(object, key)) return true;
    if (!cJSON_IsBool(value)) return api_refuse(r->error, 400, key, "invalid_type", "%s must be true or false", key);
    *to = cJSON_IsTrue(value);
    return true;
}

static bool no_memory(const struct api_reading *r)
{
    return api_refuse(r->error, 503, NULL, "no_memory", "There is no memory for this request now");
}

static bool api_tokens(const struct api_reading *r, const char *key, const cJSON *list, struct token_ids *to)
{
    const cJSON *one;
    int64_t id, at = 0;
    cJSON_ArrayForEach(one, list) {
        if (!json_whole(one, &id) || id < 0 || id >= r->model->rules.V)
            return api_refuse(r->error, 400, key, "invalid_value", "%s: entry %lld must be a token of the model, 0 to "
                              "%lld", key, (long long)at, (long long)r->model->rules.V - 1);
        if (!token_ids_add(to, (int32_t)id)) return no_memory(r);
        at++;
    }
    return true;
}

static bool api_text(const struct api_reading *r, const char *key, const char *text, size_t bytes, bool special)
{
    struct error err = { .text = "" };
    const enum error_code e = request_encode(&r->model->rules, text, bytes, special, &r->to->request.prompt, &err);
    if (e == OK) return true;
    if (e == ERR_MEMORY) return no_memory(r);
    return api_refuse(r->error, 400, key, "invalid_value", "%s: %s", key, err.text);
}

static bool read_prompt(const struct api_reading *r)
{
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(r->root, "prompt");
    if (prompt == NULL || cJSON_IsNull(prompt))
        return api_refuse(r->error, 400, "prompt", "missing_required_parameter", "prompt must be there");
    /* A list of one prompt is that prompt. */
    if (cJSON_IsArray(prompt) && cJSON_GetArraySize(prompt) == 1 && !cJSON_IsNumber(prompt->child))
        prompt = prompt->child;
    if (cJSON_IsString(prompt)) return api_text(r, "prompt", prompt->valuestring, strlen(prompt->valuestring), true);
    if (cJSON_IsArray(prompt) && cJSON_GetArraySize(prompt) > 1 && !cJSON_IsNumber(prompt->child))
        return api_refuse(r->error, 400, "prompt", "unsupported_value", "prompt: several prompts are not served in one "
                          "request: send one request for each");
    if (cJSON_IsArray(prompt)) return api_tokens(r, "prompt", prompt, &r->to->request.prompt);
    return api_refuse(r->error, 400, "prompt", "invalid_type", "prompt must be a text, or a list of tokens");
}

static bool read_messages(const struct api_reading *r)
{
    const cJSON *const list = cJSON_GetObjectItemCaseSensitive(r->root, "messages");
    char *text = NULL;
    size_t bytes = 0;
    struct error err = { .text = "" };
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) == 0)
        return api_refuse(r->error, 400, "messages", "missing_required_parameter", "messages must be a list of at "
                          "least one message");
    if (cJSON_GetArraySize(list) > API_MESSAGES)
        return api_refuse(r->error, 400, "messages", "invalid_value", "messages: at most %d are served", API_MESSAGES);
    if (r->model->chat == NULL)
        return api_refuse(r->error, 400, "messages", "no_chat_template", "Chats are not served: %s; use "
                          "/v1/completions", r->model->no_chat);
    const enum error_code e = chat_render(r->model->chat, list, &text, &bytes, &err);
    if (e == ERR_MEMORY) return no_memory(r);
    if (e) return api_refuse(r->error, 400, "messages", "invalid_value", "messages: %s", err.text);
    const bool good = api_text(r, "messages", text, bytes, false);
    free(text);
    return good;
}

static bool read_sampling(const struct api_reading *r, uint64_t number)
{
    struct sampling *const how = &r->to->request.how;
    int64_t seed = -1;
    *how = (struct sampling){ .temperature = 1, .top_p = 1, .seed = r->model->rules.seed + number };
    if (!api_number(r, "temperature", 0, 2, &how->temperature) || !api_number(r, "top_p", 0, 1, &how->top_p) ||
        !api_whole(r, "top_k", -1, 1000000000, &how->top_k) ||
        !api_whole(r, "seed", -(INT64_C(1) << 52), INT64_C(1) << 52, &seed))
        return false;
    /* Clients say 0 where they mean the most probable token, and -1 for any number of tokens. */
    if (how->top_p < 1e-6) how->top_p = 1e-6;
    if (how->top_k < 0) how->top_k = 0;
    if (json_has(r->root, "seed")) how->seed = (uint64_t)seed;
    return true;
}

static bool read_stop(const struct api_reading *r, const cJSON *text)
{
    const size_t bytes = cJSON_IsString(text) ? strlen(text->valuestring) : 0;
    if (bytes == 0 || bytes > API_STOP_BYTES || r->to->stops == API_STOPS)
        return api_refuse(r->error, 400, "stop", "invalid_value", "stop must be a text, or a list of at most %d texts, "
                          "of 1 to %d bytes", API_STOPS, API_STOP_BYTES);
    r->to->stop[r->to->stops] = strdup(text->valuestring);
    return r->to->stop[r->to->stops++] ? true : no_memory(r);
}

static bool read_stops(const struct api_reading *r)
{
    const cJSON *const stop = cJSON_GetObjectItemCaseSensitive(r->root, "stop"), *one;
    const cJSON *const ids = cJSON_GetObjectItemCaseSensitive(r->root, "stop_token_ids");
    struct token_ids *const to = &r->to->request.stop;
    bool endless = false;
    if (json_has(r->root, "stop") && !cJSON_IsArray(stop) && !read_stop(r, stop)) return false;
    if (cJSON_IsArray(stop))
        cJSON_ArrayForEach(one, stop) if (!read_stop(r, one)) return false;
    if (json_has(r->root, "stop_token_ids") && !cJSON_IsArray(ids))
        return api_refuse(r->error, 400, "stop_token_ids", "invalid_type", "stop_token_ids must be a list of tokens");
    if (json_has(r->root, "stop_token_ids") && !api_tokens(r, "stop_token_ids", ids, to)) return false;
    if (!api_switch(r, r->root, "ignore_eos", &endless)) return false;
    if (endless || token_ids_append(to, r->model->rules.stop, r->model->rules.stops)) return true;
    return no_memory(r);
}

/* A completion has 16 tokens unless it says how many; a chat as many as there is room for. */
static bool read_length(const struct api_reading *r)
{
    const int64_t prompt = r->to->request.prompt.count, S = r->model->rules.S,
                  room = S < r->model->room + 1 ? S : r->model->room + 1;
    int64_t most = r->to->kind == API_CHAT ? room - prompt : USUAL_ANSWER;
    if (!api_whole(r, "max_tokens", 1, 1000000000, &most) ||
        !api_whole(r, "max_completion_tokens", 1, 1000000000, &most))
        return false;
    r->to->request.most = most;
    const char *const key = r->to->kind == API_CHAT ? "messages" : "prompt";
    if (prompt == 0) return api_refuse(r->error, 400, key, "invalid_value", "%s has no tokens", key);
    if (prompt >= room || prompt + most > room)
        return api_refuse(r->error, 400, key, "context_length_exceeded", "%s has %lld tokens, and its answer up to "
                          "%lld; this server has room for %lld", key, (long long)prompt, (long long)most,
                          (long long)room);
    if (r->model->at_once > 0 && prompt + most - 1 > r->model->at_once)
        return api_refuse(r->error, 400, key, "context_length_exceeded", "%s and its answer may have %lld tokens to "
                          "compute at once; an iteration has %lld", key, (long long)(prompt + most - 1),
                          (long long)r->model->at_once);
    return true;
}

static bool read_stream(const struct api_reading *r)
{
    const cJSON *const how = cJSON_GetObjectItemCaseSensitive(r->root, "stream_options"), *one;
    if (!api_switch(r, r->root, "stream", &r->to->streams)) return false;
    if (!json_has(r->root, "stream_options")) return true;
    if (!cJSON_IsObject(how) || !r->to->streams)
        return api_refuse(r->error, 400, "stream_options", "invalid_value", "stream_options must be an object, and is "
                          "for stream");
    cJSON_ArrayForEach(one, how)
        if (strcmp(one->string, "include_usage") != 0 && !asks_nothing(one->string, one))
            return api_refuse(r->error, 400, "stream_options", "unsupported_parameter", "stream_options: %s is not "
                              "served", printable(one->string).text);
    return api_switch(r, how, "include_usage", &r->to->tells_usage);
}

static bool read_model(const struct api_reading *r)
{
    const cJSON *const name = cJSON_GetObjectItemCaseSensitive(r->root, "model");
    if (!cJSON_IsString(name))
        return api_refuse(r->error, 400, "model", "missing_required_parameter", "model must be there: a text");
    if (strcmp(name->valuestring, r->model->name) == 0) return true;
    return api_refuse(r->error, 404, "model", "model_not_found", "There is no model %s here; this server has %s",
                      printable(name->valuestring).text, r->model->name);
}

bool api_request_read(struct api_request *to, enum api_kind kind, const char *text, size_t bytes,
                      const struct api_model *model, uint64_t number, struct api_error *error)
{
    cJSON *root = NULL;
    struct error err = { .text = "" };
    *to = (struct api_request){ .kind = kind };
    const enum error_code e = json_parse(text, bytes, "the body", &root, &err);
    if (e) return api_refuse(error, e == ERR_MEMORY ? 503 : 400, NULL, "invalid_json", "%s", err.text);
    const struct api_reading r = { root, to, model, error };
    bool good = cJSON_IsObject(root);
    if (!good) api_refuse(error, 400, NULL, "invalid_json", "the body must be an object of JSON");
    good = good && check_api_keys(root, kind, error) && read_model(&r) && read_stream(&r);
    good = good && (kind == API_CHAT ? read_messages(&r) : read_prompt(&r));
    good = good && read_sampling(&r, number) && read_stops(&r) && read_length(&r);
    cJSON_Delete(root);
    return good;
}

void api_request_free(struct api_request *request)
{
    token_ids_free(&request->request.prompt), token_ids_free(&request->request.stop);
    for (int i = 0; i < request->stops; i++) free(request->stop[i]);
    *request = (struct api_request){ .stops = 0 };
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static char *api_finish_text(cJSON *root)
{
    char *const text = json_text(root, false);
    cJSON_Delete(root);
    return text;
}

char *api_error_text(const struct api_error *error)
{
    cJSON *const root = cJSON_CreateObject(), *const o = cJSON_AddObjectToObject(root, "error");
    const char *const type = error->status == 404 ? "not_found_error" : error->status == 429 ? "rate_limit_error"
                             : error->status >= 500 ? "server_error" : "invalid_request_error";
    json_add(o, "message %s type %s", error->message, type);
    if (error->param[0]) json_add(o, "param %s", error->param);
    else cJSON_AddNullToObject(o, "param");
    if (error->code) json_add(o, "code %s", error->code);
    else cJSON_AddNullToObject(o, "code");
    return api_finish_text(root);
}

static cJSON *fill_model(cJSON *o, const struct api_model *model)
{
    return json_add(o, "id %s object %s created %g owned_by %s", model->name, "model", (double)model->since, "orrery");
}

char *api_model_text(const struct api_model *model) { return api_finish_text(fill_model(cJSON_CreateObject(), model)); }

char *api_models_text(const struct api_model *model)
{
    cJSON *const root = json_add(cJSON_CreateObject(), "object %s", "list");
    fill_model(json_row(cJSON_AddArrayToObject(root, "data")), model);
    return api_finish_text(root);
}

static cJSON *start_answer(const struct api_answer *a, bool streams)
{
    char id[48];
    snprintf(id, sizeof id, "%s-%llu", a->kind == API_CHAT ? "chatcmpl" : "cmpl", (unsigned long long)a->number);
    const char *const object = a->kind != API_CHAT ? "text_completion"
                               : streams ? "chat.completion.chunk" : "chat.completion";
    return json_add(cJSON_CreateObject(), "id %s object %s created %g model %s", id, object, (double)a->created,
                    a->model);
}

static void add_finish(cJSON *choice, const char *finish)
{
    cJSON_AddNullToObject(choice, "logprobs");
    if (finish) json_add(choice, "finish_reason %s", finish);
    else cJSON_AddNullToObject(choice, "finish_reason");
}

static void add_usage(cJSON *root, const struct api_answer *a)
{
    json_add(cJSON_AddObjectToObject(root, "usage"), "prompt_tokens %g completion_tokens %g total_tokens %g",
             (double)a->prompt, (double)a->tokens, (double)(a->prompt + a->tokens));
}

char *api_answer_text(const struct api_answer *a, const char *text, size_t bytes)
{
    char *const copy = strndup(text ? text : "", bytes);
    cJSON *const root = start_answer(a, false);
    cJSON *const choice = json_row(cJSON_AddArrayToObject(root, "choices"));
    json_add(choice, "index %d", 0);
    if (a->kind == API_CHAT) {
        cJSON *const message = cJSON_AddObjectToObject(choice, "message");
        json_add(message, "role %s content %s", "assistant", copy ? copy : "");
        cJSON_AddNullToObject(message, "refusal");
    } else json_add(choice, "text %s", copy ? copy : "");
    add_finish(choice, a->finish);
    add_usage(root, a);
    char *const all = api_finish_text(root);
    if (copy) return free(copy), all;
    free(all);
    return NULL;
}

char *api_chunk_text(const struct api_answer *a, enum api_chunk what, const char *text, size_t bytes, bool told)
{
    char *const copy = strndup(text ? text : "", bytes);
    cJSON *const root = start_answer(a, true), *const choices = cJSON_AddArrayToObject(root, "choices");
    if (what != API_USAGE) {
        cJSON *const choice = json_row(choices);
        json_add(choice, "index %d", 0);
        if (a->kind == API_CHAT) {
            cJSON *const delta = cJSON_AddObjectToObject(choice, "delta");
            if (what == API_BEGINS) json_add(delta, "role %s content %s", "assistant", "");
            if (what == API_TEXT) json_add(delta, "content %s", copy ? copy : "");
        } else json_add(choice, "text %s", copy ? copy : "");
        add_finish(choice, what == API_ENDS ? a->finish : NULL);
    }
    if (what == API_USAGE) add_usage(root, a);
    else if (told) cJSON_AddNullToObject(root, "usage");
    char *const all = api_finish_text(root);
    if (copy) return free(copy), all;
    free(all);
    return NULL;
}
