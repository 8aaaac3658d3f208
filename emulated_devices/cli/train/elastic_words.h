/* elastic_words.h -- reads the file of --elastic: a step and the words of a mesh in each line.
 *
 * Blank lines and lines that begin with # are skipped.  Each line is the whole mesh: axes that it does not name have
 * one device.  Schemes that it does not name stay as the command line has them.  train.c calls these functions.
 */
#ifndef ORRERY_ELASTIC_WORDS_H
#define ORRERY_ELASTIC_WORDS_H

#include "emulated_devices/cli/train/train.h"

/** Read the file of --elastic, if there is one, and check every plan in it.
 *  @param options  as train_parse has filled them; gets `elastic`.
 *  @return OK; ERR_FILE; ERR_USAGE naming the line: steps that are impossible, words that say no mesh, options that do
 *          not go with it; ERR_PLAN: a mesh that the job does not fit.  elastic_free works after all. */
enum error_code elastic_read(struct train_options *options, const struct run_kind *, struct error *);
void elastic_free(struct train_options *options);

/** Refuse a plan with state outside the collection of the job's tensors, or with two versions of it.
 *  @param flag  that asks for the state, for the error.  @return OK, ERR_USAGE or ERR_MEMORY. */
enum error_code elastic_refuse_state(const struct train_options *, const char *flag, struct error *);

#endif
