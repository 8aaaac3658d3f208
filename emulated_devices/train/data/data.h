/* data.h -- what a run learns from: the files of --data, --eval-data and --tokenizer.
 *
 * One text without a weight is a text of bytes, from which sequences are drawn (ref/io/text.h).  Everything else are
 * files of tokens, of which windows are taken in an order that the seed decides (ref/text/corpus.h): files whose names
 * end with .bin, texts that a tokenizer has read, and several texts, whose bytes are tokens.  Files of run/,
 * cli/train/, run/report/ and run/words/ call these functions.
 */
#ifndef ORRERY_TRAIN_DATA_H
#define ORRERY_TRAIN_DATA_H

#include "emulated_devices/plan/plan.h"
#include "ref/io/text.h"
#include "ref/text/corpus.h"
#include "ref/text/tokenizer.h"

struct checkpoint;

/* In a checkpoint's settings of the run: how many sequences it has taken, as a text. */
#define SEQUENCES_TAKEN "sequences taken"

/** This holds what a run says of its texts. */
struct train_data_source {
    const struct plan *plan;            /**< lives as long as the data */
    const char *data, *eval_data, *tokenizer, *pack;    /**< values of the flags with these names; NULL: not given */
    bool golden;                        /**< the run has a golden file's batches, and reads held-out text alone */
    const struct checkpoint *resumed;   /**< of --resume; NULL: not given */
};

struct train_data {
    struct text text;                   /* one text of bytes; bytes is NULL if the run has tokens */
    struct token_file *file;            /* [files + held_files] of --data, then of --eval-data */
    int files, held_files;              /* number of files of either flag */
    struct corpus train, held;          /* without a period: `text` has them */
    struct tokenizer *tokenizer;        /* of --tokenizer; NULL: none */
    int64_t begun_step, begun;          /* steps done before this run, and the sequences that they took of `train` */
    const struct plan *plan;            /* how many sequences a step has */
};

/** Read what a run names, and check that the model takes its tokens.  Local.
 *  @return OK, or ERR_USAGE, ERR_FILE, ERR_FORMAT, ERR_PLAN naming option and file, with nothing to free. */
enum error_code train_data_load(struct train_data *, const struct train_data_source *, struct error *);
void train_data_free(struct train_data *);

/** Whether the run has tokens, and not one text of bytes. */
static inline bool train_data_has_tokens(const struct train_data *data) { return data->train.period > 0; }

/**
 * The lengths of --pack for a plan: the packed samples that a run with the same flags has.  Where the program's own
 * text has too few tokens for a sequence, so that no such run is possible, the samples are those of 16 batches.  Local.
 * @return as train_data_load; OK: for packing_free.
 */
enum error_code train_data_lengths(struct packing *, const struct train_data_source *, struct error *);

/** How many sequences the steps before this one have taken.  A text of bytes is drawn from: there it means nothing. */
int64_t train_data_position(const struct train_data *, int64_t step);

/** Sequences of a step, as of struct batch_source. */
void train_data_fill(const struct train_data *, int64_t step, int64_t first, int64_t count, int32_t *ids,
                     int32_t *labels, int32_t *within);

/** Sequences of a step of the text that is held out. */
void train_data_fill_held(const struct train_data *, int64_t step, int64_t first, int64_t count, int32_t *ids,
                          int32_t *labels);

/** The first tokens of the text that is held out, or of the first of its sequences; count <= S. */
void train_data_prompt(const struct train_data *, int64_t count, int32_t *ids);

/** Bytes and checksum of the text, or tokens and checksum of the files: what a resumed run must have, too. */
struct data_facts { char train[160], held[160]; };
struct data_facts train_data_facts(const struct train_data *);

/** One more than the largest token of --tokenizer; 0 without it. */
enum error_code train_data_vocabulary(const char *tokenizer, int32_t *vocabulary, struct error *);

#endif
