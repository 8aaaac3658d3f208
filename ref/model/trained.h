/* trained.h -- which parameters of a model train: classes of parameters, by which --train-only and --stage choose.
 *
 * A parameter that does not train keeps its bits; it has no gradient, and no state of the optimizer.  Whoever keeps,
 * reduces or steps gradients asks param_trains: schemes/data/units.c for devices, adapters.c and
 * verify/reference/reference.c for the one-device model.  Pure.
 */
#ifndef ORRERY_TRAINED_H
#define ORRERY_TRAINED_H

#include "ref/model/config.h"
#include "ref/model/param.h"

/* X(id, name, what is in the class) */
#define TRAINED_CLASSES(X)                                                                                      \
    X(EMBEDDINGS, "embeddings", "tokens and positions")                                                         \
    X(NORMS,      "norms",      "norms and what they add")                                                      \
    X(ATTENTION,  "attention",  "matrices of attention, its latents, prefixes and sinks")                       \
    X(FEED,       "feed",       "feed-forwards, dense layers and shared experts")                               \
    X(EXPERTS,    "experts",    "experts that a router chooses")                                                \
    X(ROUTERS,    "routers",    "routers, and gates of shared experts")                                         \
    X(HEAD,       "head",       "the output matrix, and what weighs parallel streams")                          \
    X(ADAPTERS,   "adapters",   "the matrices of --lora")                                                       \
    X(ENCODERS,   "encoders",   "encoders of what is not text, with their connectors")

enum trained_class {
#define X(id, name, what) CLASS_##id,
    TRAINED_CLASSES(X)
#undef X
    TRAINED_COUNT
};

/** The class of a parameter. */
enum trained_class param_class(const struct param_spec *);

/** Whether a parameter of a model, or of an encoder beside it, trains. */
bool param_trains(const struct model_config *, const struct param_spec *);

/** Read a list as --train-only has it: names of classes with commas between.
 *  @return OK, or ERR_USAGE with the name that is none. */
enum error_code trained_read(unsigned *classes, const char *list, struct error *);

/** The classes as such a list; "all" for 0. */
struct trained_text { char text[128]; };
struct trained_text trained_text(unsigned classes);

#endif
