/* from.h -- the configuration of another framework as words of `orrery plan`: `orrery plan --from FILE`.
 *
 * A framework is one file and one row of frameworks.c.  Its file has the keys of the released code, with their
 * defaults, and a function that says in our words what they mean.  Each key of a file ends in exactly one way: said,
 * without effect on a plan, assumed with the reason, outside of what a plan can say, or refused by name.
 *
 *     { "tensor-model-parallel-size", "1" },                       a key that the function reads, and its default
 *     { FATE_NOTHING, "logging", "log-interval tensorboard-dir" }, keys without effect, and why
 *
 *     const int64_t tp = from_whole(f, "tensor-model-parallel-size", 1, MESH_MOST_DEVICES);
 *     from_say(f, "tensor-model-parallel-size", "--tp", "%lld", (long long)tp);
 *
 * Readers turn a file into a tree of texts and execute nothing.  cli/train/options/options.c calls from_expand before
 * it reads the words; cli/train/train.c prints the translation; run/report has it in the JSON.
 */
#ifndef ORRERY_RUN_FROM_H
#define ORRERY_RUN_FROM_H

#include "ref/io/json.h"
#include "ref/io/options.h"
#include "ref/io/yaml.h"
#include "ref/model/sizes.h"
#include <stdio.h>

enum { FROM_ROWS = 640, FROM_WORDS = 40, FROM_TEXT = 240, FROM_FILE_LIMIT = 1 << 20 };

/* How a key of the file ends. */
enum fate { FATE_SAID, FATE_ASSUMED, FATE_OUTSIDE, FATE_NOTHING, FATES };

/* A key that a framework's function reads.  usual: the value that released code has without it; NULL: none. */
struct framework_key { const char *key, *usual; };

/* Keys that no function reads, with blanks between, and why; of FATE_OUTSIDE, what they would change. */
struct framework_group { enum fate fate; const char *why, *keys; };      /* "wandb.*": all that begin so */

struct from;

struct framework {
    const char *name, *title;           /* "megatron", as typed; "Megatron-LM" */
    const char *release, *source;       /* the version whose keys these are, with its commit; its files */
    const char *dashes;                 /* before a key, as people write it */
    const char *left;                   /* the value that leaves a key to the calling program, "auto"; NULL: none */
    bool (*is)(const char *text);       /* whether a text without bytes 0 looks like one */
    /** Read a text into a mapping of keys to texts, sequences and mappings, for yml_free. */
    enum error_code (*read)(const char *text, size_t length, const char *where, struct yaml **root, struct error *);
    const struct framework_key *keys;   /* ends with a key NULL */
    const struct framework_group *groups;       /* ends with keys NULL */
    void (*translate)(struct from *);
};
extern const struct framework *const frameworks[];      /* ends with NULL */

/* This holds what came of a key. */
struct from_row {
    char key[96], value[96];            /* theirs; the value as text */
    enum fate fate;                     /* what becomes of the key */
    bool usual;                         /* not in the file: the framework's default */
    char text[FROM_TEXT];               /* our words, or why */
};

struct from_word { const char *flag; char text[FROM_TEXT + 40]; };   /* text: "--tp=8", or a switch alone */

struct from {
    const struct framework *framework;  /* who has written the file */
    char file[164];                     /* as messages and reports name it */
    struct yaml *root;                  /* [keys of the file], flat: "training.seq_len" */
    struct from_row row[FROM_ROWS];     /* the translation, a row for each key */
    int rows;                           /* entries of `row` */
    struct from_word word[FROM_WORDS];  /* words of a plan */
    int words;                          /* entries of `word` */
    int own_argc;                       /* the words that the user typed, without --from FILE */
    char **own;                         /* [own_argc] */
    char **argv;                        /* [argc + 1] our words, then those */
    int argc;                           /* entries of argv */
    enum error_code failed;             /* the first problem */
    struct error *err;
};

/**
 * Translate the file of --from, if a command line has it, into words in front of the others.
 * @param[out] from  the translation, for from_free; NULL: there is no --from, or it cannot be read.
 * @return OK; ERR_USAGE names the key; ERR_FILE, ERR_FORMAT of a reader; ERR_MEMORY.
 */
enum error_code from_expand(struct from **from, int argc, char *const argv[], struct error *);
/** Translate a text in memory as from_expand does the file of --from.
 *  @param word  names it, or whose it is: "megatron:NAME".  @param text  length bytes, and a byte 0 after them. */
enum error_code from_text(struct from **from, const char *word, const char *text, size_t length, int argc,
                          char *const argv[], struct error *);
void from_free(struct from *);

/** Print what became of each key, and the command line that says the same. */
void from_print(FILE *, const struct from *);
/** Make an object of the translation for the JSON of a plan.  @return the object, or NULL without memory. */
cJSON *from_json(const struct from *);

/* ---- for frameworks: after the first problem these return defaults, and do nothing ---------------------------- */

/** The value of a key: of the file, or the released code's default; NULL: none, or the file says null. */
const char *from_value(struct from *, const char *key);
/** Whether the file has a key, with a value that is not left to the calling program. */
bool from_has(struct from *, const char *key);
/** A value as a number in a range; 0 for none.  Anything else is the problem. */
int64_t from_whole(struct from *, const char *key, int64_t min, int64_t max);
double from_real(struct from *, const char *key, double min, double max);
/** A value as a truth: true and false in any case, yes, no, 1, 0; an empty text is true: a switch. */
bool from_truth(struct from *, const char *key);
/** Whether a value is this word. */
bool from_is(struct from *, const char *key, const char *word);
/** The value that the user typed behind one of our flags; NULL: it is not on the command line. */
const char *from_typed(const struct from *, const char *flag);
/** This value as a number from 1 on; `otherwise` if the flag is not on the command line. */
int64_t from_typed_whole(struct from *, const char *flag, int64_t otherwise);

/** Say a key by a flag with a value; a switch has the format NULL.  A flag that the user typed stays as typed. */
void from_say(struct from *, const char *key, const char *flag, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/** A key is said together with another one: the row says by what. */
void from_with(struct from *, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
void from_assume(struct from *, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
void from_outside(struct from *, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
void from_nothing(struct from *, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
/** Refuse a key: the message has the file, the line, the key and its value before this text. */
void from_refuse(struct from *, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));

/** Dashes before a key, as people write them: none before those that are no arguments of the program. */
const char *from_dashes(const struct from *, const char *key);

/* ---- shared by frameworks: from_shared.c ----------------------------------------------------------------------- */

/* The sizes of a model, 0 where the file has none, and which presets are of its kind. */
struct from_model { const char *family; int64_t number[MODEL_SIZES]; };        /* in the order of MODEL_SIZE_LETTERS */

/** The preset with the fewest other sizes, as a word for --model: "llama3-8b", or with sizes behind a colon. */
void from_model_word(const struct from_model *, char *word, size_t size);

/** Number of devices along dp: what the user typed, or devices / others.
 *  @param devices  0: the file does not say.  @param keys  names the keys of the others, for the refusal. */
int64_t from_copies(struct from *, int64_t devices, int64_t others, const char *devices_key, const char *keys);

/** Refuse a file that says nothing of the model, unless the user typed --model. */
void from_need_model(struct from *);

/** Say batch and microbatches.  @param batch  sequences of a step in all.  @param micro  of a microbatch. */
void from_batch(struct from *, const char *batch_key, const char *micro_key, int64_t batch, int64_t micro,
                int64_t dp);

#endif
