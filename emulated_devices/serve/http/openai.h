/* openai.h -- requests and answers as OpenAI's API has them, a stated part of it: JSON to a request, tokens to JSON.
 *
 * POST /v1/completions and /v1/chat/completions, whole or streamed as server-sent events, and GET /v1/models.  What is
 * not served is refused by its name, with the API's error object; a key that nobody knows is refused, too.
 *
 * Source  OpenAI's openapi.yaml, and the openai package for Python, which reads what is written here.
 *
 * front.c and server.c call these functions.  They know neither devices nor sockets.
 */
#ifndef ORRERY_OPENAI_H
#define ORRERY_OPENAI_H

#include "emulated_devices/serve/http/chat.h"
#include "emulated_devices/serve/requests.h"
#include <stdio.h>
#include <time.h>

enum { API_STOPS = 4, API_STOP_BYTES = 256, API_MESSAGES = 1024 };

/* The model that answers. */
struct api_model {
    const char *name;                   /* as clients call it */
    struct request_rules rules;         /* of its requests */
    int64_t room;                       /* tokens that the cache has room for */
    int64_t at_once;                    /* tokens that must fit into one iteration; 0: any number */
    const struct chat_template *chat;   /* NULL: it has none */
    const char *no_chat;                /* why it has none */
    time_t since;                       /* when it began to answer */
};

enum api_kind { API_COMPLETION, API_CHAT };

/* A request as a client asked it. */
struct api_request {
    enum api_kind kind;                 /* which of the two paths */
    struct request request;             /* for devices, without a name and an arrival */
    bool streams, tells_usage;          /* answer piece by piece; with the numbers of tokens at its end */
    char *stop[API_STOPS];              /* [stops] texts that end the answer; owned */
    int stops;                          /**< Entries of `stop`. */
};

/* A client is told this instead of an answer. */
struct api_error {
    int status;                         /* of HTTP */
    const char *code;                   /* a word for programs; NULL: none */
    char param[48], message[500];       /* the key that it is about, or empty; one line */
};

/** Read the body of a request.
 *  @param text    [bytes], and a NUL behind them.
 *  @param number  of the request, for the seed of one without its own.
 *  @return whether it can be served; else what the client is told.  Call api_request_free in both cases. */
bool api_request_read(struct api_request *, enum api_kind, const char *text, size_t bytes, const struct api_model *,
                      uint64_t number, struct api_error *);
void api_request_free(struct api_request *);

/** Fill in an error.  @return false. */
bool api_refuse(struct api_error *, int status, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* An answer, so far. */
struct api_answer {
    enum api_kind kind;
    uint64_t number;                    /* of its request: its id */
    time_t created;                     /* when it was asked */
    const char *model;                  /* who answers */
    int64_t prompt, tokens;             /* tokens of the prompt, and of the answer */
    const char *finish;                 /* "stop" or "length"; NULL: it goes on */
};

/* All of these return JSON for free(), or NULL without memory. */

/** The error object. */
char *api_error_text(const struct api_error *);
/** The list of models. */
char *api_models_text(const struct api_model *);
/** The one model. */
char *api_model_text(const struct api_model *);
/** A whole answer.  @param text  [bytes] of it. */
char *api_answer_text(const struct api_answer *, const char *text, size_t bytes);

/* A chunk of a stream is for one of these. */
enum api_chunk { API_BEGINS, API_TEXT, API_ENDS, API_USAGE };

/** A chunk.  @param told  whether usage was asked for: then each chunk has the key. */
char *api_chunk_text(const struct api_answer *, enum api_chunk, const char *text, size_t bytes, bool told);

#endif
