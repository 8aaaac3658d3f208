/* requests.h -- requests to a model: a trace of them is read from a file, drawn, or written to a file.
 *
 * A trace has a line of JSON for each request.  docs/using/serving.md has its keys.  Prompts are tokens, or texts for
 * the model's tokenizer.  Times count from the beginning of the trace.  Lines of APEX's traces say only how many tokens
 * there are: prompts are drawn then, and answers do not end early.
 *
 * engine.c and cli/train/serve.c call these functions.
 */
#ifndef ORRERY_REQUESTS_H
#define ORRERY_REQUESTS_H

#include "ref/error.h"
#include "ref/text/sampling.h"
#include "ref/text/token_ids.h"
#include "ref/text/tokenizer.h"
#include <math.h>

/* A request, as it was asked. */
struct request {
    char *name;                         /* its id, or the number of its line; owned */
    int64_t arrival;                    /* picoseconds after the trace begins, whole nanoseconds */
    struct token_ids prompt;            /* at least one token */
    int64_t most;                       /* tokens of its answer, at most */
    struct sampling how;                /* how they are drawn; the draws are numbered from 0 in each answer */
    struct token_ids stop;              /* tokens after which the answer ends; they belong to it */
    bool seeded;                        /* the line has a seed of its own */
};

struct requests { struct request *at; int64_t count; };         /* [count] by arrival, then by line */

/* The model that a trace is read for. */
struct request_rules {
    int64_t V, S;                       /* the model's vocabulary, and its positions */
    struct tokenizer *tokenizer;        /* of prompts that are texts; NULL: these are bytes */
    const int32_t *stop;                /* [stops] tokens that end a text, for requests that do not ignore them */
    int stops;                          /* how many */
    uint64_t seed;                      /* of a request without one: this, plus its number among all lines from 0 */
};

enum { REQUEST_MOST = 1 << 24, USUAL_ANSWER = 16 };     /* requests of a trace; tokens of an answer that none says */

/** The picoseconds of an arrival: seconds, rounded to nanoseconds, so that a file has them as they are. */
static inline int64_t request_arrival(double seconds) { return llrint(seconds * 1e9) * 1000; }

/** Add the tokens of a text, by the model's tokenizer, or its bytes.
 *  @param special  with the tokens that a tokenizer puts around a text.
 *  @return OK; ERR_FORMAT: the model lacks a token of it; ERR_MEMORY. */
enum error_code request_encode(const struct request_rules *, const char *text, size_t bytes, bool special,
                               struct token_ids *to, struct error *);

/** Read a trace.  @return OK; ERR_FILE; ERR_FORMAT naming the line and its key; ERR_USAGE naming a request that the
 *  model cannot take; ERR_MEMORY.  After an error there are no requests. */
enum error_code requests_read(struct requests *, const char *path, const struct request_rules *, struct error *);
void requests_free(struct requests *);

/* Lengths and times of published traces.  Lengths are exp of normal numbers, or lie between quantiles. */
struct length_law { double mean, deviation; };
struct trace_law {
    const char *name, *source;          /* the word; where its numbers come from */
    struct length_law prompt, answer;   /* of the logarithm of tokens */
    bool by_quantiles;                  /* answers lie between published quantiles instead: two lengths are usual */
    double rate, spread;                /* requests a second; deviation of the gaps between them, in means */
};
extern const struct trace_law trace_laws[];             /* ends without a name */

/* A trace that is drawn. */
struct trace_request {
    const struct trace_law *law;        /* of its lengths and times */
    int64_t requests;                   /* how many */
    double scale;                       /* factor on all lengths */
    double rate;                        /* requests a second; 0: the law's */
    int64_t shared;                     /* first tokens that all prompts have alike, beside those drawn */
    double temperature;                 /* of all of them */
};

/** Find a law by its name.  @return OK, or ERR_USAGE with the nearest. */
enum error_code trace_law_find(const struct trace_law **, const char *name, struct error *);

/** Draw a trace: prompts of drawn tokens, answers without stop tokens, so that their lengths are those drawn.
 *  @param[out] cut  requests that were longer than the model, and were cut.
 *  @return OK; ERR_USAGE if the shared tokens leave no room; ERR_MEMORY. */
enum error_code requests_draw(struct requests *, const struct trace_request *, const struct request_rules *,
                              int64_t *cut, struct error *);

/** Draw the tokens of a prompt, the first `shared` of which all prompts of this seed have alike.
 *  @param number  of the request among all.  @return OK or ERR_MEMORY. */
enum error_code request_draw_prompt(struct request *, int64_t number, int64_t tokens, int64_t shared,
                                    const struct request_rules *, struct error *);

/** Write a trace that requests_read reads as these requests.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code requests_write(const struct requests *, const char *path, struct error *);

#endif
