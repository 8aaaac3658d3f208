/* toml.h -- the small part of TOML that configurations of training need.
 *
 *     [training]                  # a table, or a table in a table: [training.dataloader]
 *     seq_len = 8192              # numbers, true and false: their text, as it is written
 *     dataset = "c4"              # texts in double or single quotes, on one line
 *     names = ["a", "b"]          # lists of them, also on several lines
 *
 * Everything else is refused by line: dates, inline tables, lists of tables, texts of several lines, keys in quotes or
 * with dots.  A key or a table stands there once.  The tree is that of yaml.h.
 *
 * emulated_devices/run/from/torchtitan.c reads files with this function.
 */
#ifndef ORRERY_TOML_H
#define ORRERY_TOML_H

#include "ref/io/yaml.h"

/**
 * Read a document from memory.
 * @param text    length bytes, and a byte 0 after them.
 * @param where   names it in messages: usually the path.
 * @param[out] root  its mapping, for yml_free; NULL on failure.
 * @return OK, or ERR_FORMAT with the line of the first fault; ERR_MEMORY.
 */
enum error_code toml_parse(const char *text, size_t length, const char *where, struct yaml **root, struct error *);

#endif
