/* samples.h -- a text in samples of different lengths, packed into sequences.
 *
 * train/data/data.c packs the text of --pack with these functions; for a plan it packs samples without a text, whose
 * batches train/dry_run/ fills.
 */
#ifndef ORRERY_SAMPLES_H
#define ORRERY_SAMPLES_H

#include "ref/io/text.h"

#define SAMPLES_LOGNORMAL "lognormal"

/** Whether the word of --pack draws lengths: SAMPLES_LOGNORMAL, alone or before a colon.  Else it is a path. */
bool samples_are_drawn(const char *lengths);

/**
 * Cut so many tokens into samples, one after another, and pack them into sequences of S tokens.
 * @param lengths  SAMPLES_LOGNORMAL: drawn from the seed, exp of a normal number with median S/8 and deviation 1, and 2
 *                 to S: many short samples and a long tail; SAMPLES_LOGNORMAL:MEDIAN,DEVIATION: with these.  Else the
 *                 path of a file with the length of a sample on each line, from the first again when they are used up.
 *                 A line may go on with the sample's clips, each between tokens of text: 60 image:5 audio:2.
 * @return OK, for packing_free; ERR_USAGE if a sample is longer than S, the tokens are fewer than the first sample's,
 *     or the word is wrong; ERR_FILE; ERR_FORMAT naming a line; ERR_MEMORY.  After an error the packing is empty.
 */
enum error_code samples_pack_tokens(struct packing *, const char *lengths, int64_t tokens, int64_t S, uint64_t seed,
                                    struct error *);

/** Whether a file of lengths says which samples have which clips.  @return OK, or ERR_FILE. */
enum error_code samples_say_clips(const char *path, bool *say, struct error *);

/**
 * Check that each encoder gets patches of the samples.
 * @param kinds  modalities in use, the first so many; 0: none.
 * @return OK; ERR_USAGE if a sample has a clip of another modality, or no sample has one or room for one.
 */
enum error_code samples_check_clips(const struct packing *, int kinds, struct error *);

/** Cut the training part of a text so, and pack it.  The text keeps the packing.  @return as samples_pack_tokens. */
enum error_code samples_pack(struct text *, const char *lengths, int64_t S, uint64_t seed, struct error *);

/**
 * Fill sequences b0 .. b0 + count - 1 of the batch of a step with packed samples: drawn sequences, with replacement.
 * @param[out] ids     [count,S] the tokens of the samples, and clip_placeholder where the file says that a patch is;
 *                     then token 0
 * @param[out] labels  [count,S] the next token of the sample; IGNORE_LABEL at its last token and for padding
 * @param[out] within  [count,S] the position of each token in its sample, and what is padding (ref/model/sample_mask.h)
 */
void samples_batch(const struct text *, uint64_t seed, int64_t step, int64_t b0, int64_t count, int32_t *ids,
                   int32_t *labels, int32_t *within);

/** Fill them of packed samples whose text is `bytes`; NULL: there is none, and ids and labels are 0. */
void samples_fill(const struct packing *, const uint8_t *bytes, uint64_t seed, int64_t step, int64_t b0, int64_t count,
                  int32_t *ids, int32_t *labels, int32_t *within);

#endif
