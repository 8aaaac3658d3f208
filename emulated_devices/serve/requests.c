/* requests.c -- reads and writes traces of requests.  cli/train/serve.c calls.  Errors: ERR_FILE; ERR_FORMAT names the
 * line and the key; ERR_USAGE names a request that the model cannot take; ERR_MEMORY. */
#include "emulated_devices/serve/requests.h"
#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRACE_LIMIT = 1 << 30 };                         /* bytes of a file */
#define LATEST 1e6                                      /* seconds: picoseconds of them are whole in 64 bits */

static const char *const keys[] = { "id", "arrival", "prompt", "prompt_ids", "max_tokens", "temperature", "top_k",
                                    "top_p", "seed", "stop_token_ids", "ignore_eos" };
enum { KEYS = sizeof keys / sizeof *keys };

/* Other servers know these keys; this one refuses them by name. */
static const struct { const char *key, *why; } refused[] = {
    { "stop", "stop texts are not served; stop_token_ids ends an answer at tokens" },
    { "n", "an answer a request; send the request as often as you want answers" },
    { "best_of", "one answer is drawn" },
    { "logit_bias", "logits are the model's" },
    { "presence_penalty", "logits are the model's" },
    { "frequency_penalty", "logits are the model's" },
    { "repetition_penalty", "logits are the model's" },
    { "min_p", "tokens are cut by top_k and top_p" },
    { "logprobs", "an answer is tokens" },
    { "messages", "there are no chat templates; prompt is the whole text" },
    { "priority", "requests are served in the order in which they come" },
};

/* A line that is being read. */
struct line { const char *where; const cJSON *object; struct request *to; const struct request_rules *rules; };

/* ---- the values of a line ---------------------------------------------------------------------------------------- */

static enum error_code check_keys(const struct line *line, struct error *err)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, line->object) {
        bool known = false;
        for (size_t i = 0; i < KEYS; i++) known |= strcmp(one->string, keys[i]) == 0;
        for (size_t i = 0; i < sizeof refused / sizeof *refused && !known; i++)
            if (strcmp(one->string, refused[i].key) == 0)
                return fail(err, ERR_FORMAT, "%s: %s: refused: %s", line->where, one->string, refused[i].why);
        if (known) continue;
        const char *near = nearest_name(one->string, keys, KEYS);
        return fail(err, ERR_FORMAT, "%s: there is no key %s%s%s", line->where, printable(one->string).text,
                    near ? "; did you mean " : "", near ? near : "");
    }
    return OK;
}

static enum error_code request_number(const struct line *line, const char *key, double least, double most, double *to,
                                   struct error *err)
{
    if (!json_has(line->object, key)) return OK;
    double x = 0;
    const enum error_code e = json_double(line->object, line->where, key, &x, err);
    if (e) return e;
    if (!(x >= least && x <= most))
        return fail(err, ERR_FORMAT, "%s: %s: %g; must be %g to %g", line->where, key, x, least, most);
    *to = x;
    return OK;
}

static enum error_code take_tokens(const struct line *line, const char *key, struct token_ids *to, struct error *err)
{
    const cJSON *list, *one;
    const enum error_code e = json_array(line->object, line->where, key, &list, err);
    int64_t id, at = 0;
    if (e) return e;
    cJSON_ArrayForEach(one, list) {
        if (!json_whole(one, &id) || id < 0 || id >= line->rules->V)
            return fail(err, ERR_FORMAT, "%s: %s: entry %lld must be a token of the model, 0 to %lld", line->where, key,
                        (long long)at, (long long)line->rules->V - 1);
        if (!token_ids_add(to, (int32_t)id)) return fail(err, ERR_MEMORY, "no memory for the tokens of a request");
        at++;
    }
    return OK;
}

enum error_code request_encode(const struct request_rules *rules, const char *text, size_t bytes, bool special,
                               struct token_ids *to, struct error *err)
{
    enum error_code e = rules->tokenizer ? tokenizer_encode(rules->tokenizer, text, bytes, special, to, NULL, err) : OK;
    for (size_t i = 0; i < bytes && !e && rules->tokenizer == NULL; i++)
        if (!token_ids_add(to, (uint8_t)text[i])) e = fail(err, ERR_MEMORY, "no memory for a prompt");
    for (int64_t i = 0; i < to->count && !e; i++)
        if (to->id[i] >= rules->V)
            e = fail(err, ERR_FORMAT, "its token %lld is %d; those of the model are 0 to %lld%s", (long long)i,
                     (int)to->id[i], (long long)rules->V - 1,
                     rules->tokenizer ? "" : ", and without a tokenizer a prompt is bytes");
    return e;
}

static enum error_code request_text(const struct line *line, struct error *err)
{
    const char *text = "";
    char about[240];
    const enum error_code e = json_string(line->object, line->where, "prompt", &text, err);
    snprintf(about, sizeof about, "%s: prompt", line->where);
    return e ? e : fail_about(err, request_encode(line->rules, text, strlen(text), true, &line->to->prompt, err),
                              about);
}

static enum error_code take_prompt(const struct line *line, struct error *err)
{
    const bool text = json_has(line->object, "prompt"), ids = json_has(line->object, "prompt_ids");
    if (text == ids)
        return fail(err, ERR_FORMAT, "%s: must have %s of prompt and prompt_ids", line->where,
                    text ? "only one" : "one");
    const enum error_code e = text ? request_text(line, err) : take_tokens(line, "prompt_ids", &line->to->prompt, err);
    if (!e && line->to->prompt.count == 0)
        return fail(err, ERR_FORMAT, "%s: %s: has no tokens", line->where, text ? "prompt" : "prompt_ids");
    return e;
}

static enum error_code take_sampling(const struct line *line, int64_t number, struct error *err)
{
    struct sampling *const how = &line->to->how;
    int64_t seed = 0;
    *how = (struct sampling){ .temperature = 1, .top_p = 1, .seed = line->rules->seed + (uint64_t)number };
    enum error_code e = request_number(line, "temperature", 0, 1e6, &how->temperature, err);
    if (!e && json_has(line->object, "top_k"))
        e = json_int(line->object, line->where, "top_k", 0, 1000000000, &how->top_k, err);
    if (!e) e = request_number(line, "top_p", 1e-6, 1, &how->top_p, err);
    if (e || !json_has(line->object, "seed")) return e;
    e = json_int(line->object, line->where, "seed", 0, INT64_C(1) << 52, &seed, err);
    if (!e) how->seed = (uint64_t)seed, line->to->seeded = true;
    return e;
}

static enum error_code take_end(const struct line *line, struct error *err)
{
    bool endless = false;
    enum error_code e = OK;
    line->to->most = USUAL_ANSWER;
    if (json_has(line->object, "max_tokens"))
        e = json_int(line->object, line->where, "max_tokens", 1, 1000000000, &line->to->most, err);
    if (!e && json_has(line->object, "stop_token_ids"))
        e = take_tokens(line, "stop_token_ids", &line->to->stop, err);
    if (!e && json_has(line->object, "ignore_eos"))
        e = json_bool(line->object, line->where, "ignore_eos", &endless, err);
    if (!e && !endless && !token_ids_append(&line->to->stop, line->rules->stop, line->rules->stops))
        e = fail(err, ERR_MEMORY, "no memory for the stop tokens of a request");
    return e;
}

static enum error_code request_name(const struct line *line, int64_t number, struct error *err)
{
    char own[24];
    const char *name = own;
    snprintf(own, sizeof own, "%lld", (long long)number);
    const enum error_code e = json_has(line->object, "id") ? json_string(line->object, line->where, "id", &name, err)
                                                           : OK;
    if (e) return e;
    line->to->name = strdup(name);
    return line->to->name ? OK : fail(err, ERR_MEMORY, "no memory for the name of a request");
}

/* A model has S positions, and the last token of an answer needs none. */
static enum error_code check_length(const struct line *line, struct error *err)
{
    const struct request *const r = line->to;
    if (r->prompt.count + r->most <= line->rules->S) return OK;
    return fail(err, ERR_USAGE, "%s: request %s: a prompt of %lld tokens and an answer of up to %lld; the model has "
                "%lld positions", line->where, printable(r->name).text, (long long)r->prompt.count, (long long)r->most,
                (long long)line->rules->S);
}

/* A line of a trace of APEX: numbers of tokens, and nanoseconds.  Its text is another tokenizer's, and not read. */
static enum error_code apex_line(const struct line *line, int64_t number, struct error *err)
{
    int64_t prompt = 0, all = 0, offset = 0;
    const char *name = "";
    enum error_code e = json_int(line->object, line->where, "ContextTokens", 1, line->rules->S, &prompt, err);
    if (!e) e = json_int(line->object, line->where, "GeneratedTokens", 1, 1000000000, &line->to->most, err);
    if (!e) e = json_int(line->object, line->where, "StartTimeOffset", 0, (int64_t)(1e9 * LATEST), &offset, err);
    if (!e && json_has(line->object, "TotalTokens"))
        e = json_int(line->object, line->where, "TotalTokens", 1, INT64_C(1) << 40, &all, err);
    if (!e && all > 0 && all != prompt + line->to->most)
        return fail(err, ERR_FORMAT, "%s: TotalTokens: %lld; its prompt and its answer have %lld", line->where,
                    (long long)all, (long long)(prompt + line->to->most));
    if (!e && json_has(line->object, "RequestID")) e = json_string(line->object, line->where, "RequestID", &name, err);
    line->to->arrival = 1000 * offset;
    line->to->how = (struct sampling){ .temperature = 1, .top_p = 1, .seed = line->rules->seed + (uint64_t)number };
    if (!e && *name) {
        line->to->name = strdup(name);
        if (line->to->name == NULL) e = fail(err, ERR_MEMORY, "no memory for the name of a request");
    } else if (!e) e = request_name(line, number, err);
    if (!e) e = request_draw_prompt(line->to, number, prompt, 0, line->rules, err);
    return e ? e : check_length(line, err);
}

static enum error_code request_line(const struct line *line, int64_t number, struct error *err)
{
    double arrival = 0;
    if (!cJSON_IsObject(line->object))
        return fail(err, ERR_FORMAT, "%s: must be an object of JSON, a request", line->where);
    if (json_has(line->object, "ContextTokens")) return apex_line(line, number, err);
    enum error_code e = check_keys(line, err);
    if (!e) e = request_name(line, number, err);
    if (!e) e = request_number(line, "arrival", 0, LATEST, &arrival, err);
    line->to->arrival = request_arrival(arrival);
    if (!e) e = take_prompt(line, err);
    if (!e) e = take_sampling(line, number, err);
    if (!e) e = take_end(line, err);
    return e ? e : check_length(line, err);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Numbers of equal arrivals keep the order of their lines: the sort below is stable by its address. */
struct arrival { int64_t at, number; };

static int compare_arrivals(const void *a, const void *b)
{
    const struct arrival *const x = a, *const y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static enum error_code sort_by_arrival(struct requests *requests, struct error *err)
{
    const size_t n = (size_t)requests->count;
    struct arrival *const order = malloc(n * sizeof *order + 1);
    struct request *const sorted = malloc(n * sizeof *sorted + 1);
    const enum error_code e = order && sorted ? OK : fail(err, ERR_MEMORY, "no memory to sort %zu requests", n);
    for (size_t i = 0; i < n && !e; i++) order[i] = (struct arrival){ requests->at[i].arrival, (int64_t)i };
    if (!e) qsort(order, n, sizeof *order, compare_arrivals);
    for (size_t i = 0; i < n && !e; i++) sorted[i] = requests->at[order[i].number];
    if (!e) memcpy(requests->at, sorted, n * sizeof *sorted);
    free(order), free(sorted);
    return e;
}

static enum error_code request_room(struct requests *requests, int64_t *room, struct error *err)
{
    if (requests->count < *room) return OK;
    const int64_t more = *room > 0 ? 2 * *room : 64;
    struct request *const grown = realloc(requests->at, (size_t)more * sizeof *grown);
    if (grown == NULL || requests->count >= REQUEST_MOST)
        return fail(err, ERR_MEMORY, "no memory for %lld requests", (long long)more);
    requests->at = grown, *room = more;
    return OK;
}

static enum error_code read_line(struct requests *requests, const char *path, int64_t number, const char *text,
                                 size_t bytes, const struct request_rules *rules, struct error *err)
{
    char where[220];
    cJSON *root = NULL;
    struct request *const to = &requests->at[requests->count];
    snprintf(where, sizeof where, "%s:%lld", printable_path(path).text, (long long)number);
    *to = (struct request){ .name = NULL };
    char *const copy = malloc(bytes + 1);                       /* with a NUL behind it */
    if (copy == NULL) return fail(err, ERR_MEMORY, "no memory for a line of a trace");
    memcpy(copy, text, bytes), copy[bytes] = '\0';
    enum error_code e = json_parse(copy, bytes, where, &root, err);
    if (!e) e = request_line(&(struct line){ where, root, to, rules }, requests->count, err);
    requests->count++;                                          /* also of a line that is wrong: it is freed */
    cJSON_Delete(root);
    free(copy);
    return e;
}

static bool is_blank(const char *text, size_t bytes)
{
    while (bytes > 0 && strchr(" \t\r", text[bytes - 1]) && text[bytes - 1]) bytes--;
    return bytes == 0;
}

enum error_code requests_read(struct requests *requests, const char *path, const struct request_rules *rules,
                              struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t room = 0, number = 1;
    *requests = (struct requests){ .count = 0 };
    enum error_code e = file_read_all(path, TRACE_LIMIT, &text, &bytes, err);
    for (size_t at = 0, n; at < bytes && !e; at += n + 1, number++) {
        const char *const end = memchr(text + at, '\n', bytes - at);
        n = end ? (size_t)(end - (text + at)) : bytes - at;
        if (is_blank(text + at, n)) continue;
        e = request_room(requests, &room, err);
        if (!e) e = read_line(requests, path, number, text + at, n, rules, err);
    }
    if (!e && requests->count == 0) e = fail(err, ERR_FORMAT, "%s: has no requests", printable_path(path).text);
    if (!e) e = sort_by_arrival(requests, err);
    free(text);
    if (e) requests_free(requests);
    return e;
}

void requests_free(struct requests *requests)
{
    for (int64_t i = 0; i < requests->count; i++) {
        free(requests->at[i].name);
        token_ids_free(&requests->at[i].prompt), token_ids_free(&requests->at[i].stop);
    }
    free(requests->at);
    *requests = (struct requests){ .count = 0 };
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static cJSON *object_of(const struct request *request)
{
    cJSON *const o = cJSON_CreateObject();
    json_add(o, "id %s arrival %g", request->name, (double)request->arrival / 1e12);
    cJSON_AddItemToObject(o, "prompt_ids", cJSON_CreateIntArray(request->prompt.id, (int)request->prompt.count));
    json_add(o, "max_tokens %g temperature %g top_k %g top_p %g seed %g ignore_eos %hhd", (double)request->most,
             request->how.temperature, (double)request->how.top_k, request->how.top_p, (double)request->how.seed, 1);
    if (request->stop.count > 0)
        cJSON_AddItemToObject(o, "stop_token_ids", cJSON_CreateIntArray(request->stop.id, (int)request->stop.count));
    return o;
}

enum error_code requests_write(const struct requests *requests, const char *path, struct error *err)
{
    char *all = NULL;
    size_t bytes = 0;
    FILE *const out = open_memstream(&all, &bytes);
    bool ok = out != NULL;
    for (int64_t i = 0; i < requests->count && ok; i++) {
        cJSON *const o = object_of(&requests->at[i]);
        char *const text = json_text(o, false);
        ok = text && fprintf(out, "%s\n", text) > 0;
        cJSON_free(text), cJSON_Delete(o);
    }
    ok = out && fclose(out) == 0 && ok;
    const enum error_code e = ok ? file_write_all(path, all, bytes, err)
                                 : fail(err, ERR_MEMORY, "no memory to write %lld requests",
                                        (long long)requests->count);
    free(all);
    return e;
}
