/* sha256.h -- the checksum of a file, as sha256sum prints it.
 *
 * Source  FIPS 180-4, sections 5 and 6.2.
 *
 * bundle.c, settings.c, plan/, ref/text/ and subcommands call this file.  Only sha256_file can fail.
 */
#ifndef ORRERY_SHA256_H
#define ORRERY_SHA256_H

#include "ref/error.h"
#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t h[8];                      /* intermediate hash of all complete blocks */
    uint8_t block[64];                  /* bytes of the incomplete block */
    uint64_t bytes;                     /* bytes added so far */
};

struct sha256_digest { uint32_t word[8]; };     /* the standard's H, as this machine's words */
struct sha256_text { char text[65]; };  /* 64 hexadecimal digits, small letters */

/** Checksum of bytes added in any number of pieces. */
struct sha256 sha256_begin(void);
void sha256_add(struct sha256 *, const void *data, size_t bytes);
struct sha256_digest sha256_digest(struct sha256 *);
struct sha256_text sha256_end(struct sha256 *);

/** Checksum of bytes in memory. */
struct sha256_text sha256_of(const void *data, size_t bytes);

/** Checksum of a regular file.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code sha256_file(const char *path, struct sha256_text *, struct error *);

#endif
