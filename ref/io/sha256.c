/* sha256.c -- computes SHA-256 of bytes and of files.
 *
 * bundle.c, settings.c, plan/, run/ and train/data/ call this file.  Only sha256_file can fail: ERR_FILE and
 * ERR_MEMORY.
 */
#include "ref/io/sha256.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
        0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
        0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351,
        0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3,
        0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t sha256_turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t read_word(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* One round changes d and h; the next round calls the words by the names of their successors.
 * a .. h are the standard's (FIPS 180-4, section 6.2.2). */
static inline void sha256_round(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f, uint32_t g,
                                uint32_t *h, uint32_t added)
{
    const uint32_t choice = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t first = *h + (sha256_turn(e, 6) ^ sha256_turn(e, 11) ^ sha256_turn(e, 25)) + choice + added;
    *d += first;
    *h = first + (sha256_turn(a, 2) ^ sha256_turn(a, 13) ^ sha256_turn(a, 22)) + majority;
}

/* The compression function: 64 rounds on the state with a block of 64 bytes. */
static void add_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
             h = state[7];
    for (int t = 0; t < 16; t++) w[t] = read_word(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        const uint32_t early = w[t - 15], late = w[t - 2];
        w[t] = w[t - 16] + (sha256_turn(early, 7) ^ sha256_turn(early, 18) ^ early >> 3) + w[t - 7]
            + (sha256_turn(late, 17) ^ sha256_turn(late, 19) ^ late >> 10);
    }
    for (int t = 0; t < 64; t += 8) {
        sha256_round(a, b, c, &d, e, f, g, &h, K[t] + w[t]);
        sha256_round(h, a, b, &c, d, e, f, &g, K[t + 1] + w[t + 1]);
        sha256_round(g, h, a, &b, c, d, e, &f, K[t + 2] + w[t + 2]);
        sha256_round(f, g, h, &a, b, c, d, &e, K[t + 3] + w[t + 3]);
        sha256_round(e, f, g, &h, a, b, c, &d, K[t + 4] + w[t + 4]);
        sha256_round(d, e, f, &g, h, a, b, &c, K[t + 5] + w[t + 5]);
        sha256_round(c, d, e, &f, g, h, a, &b, K[t + 6] + w[t + 6]);
        sha256_round(b, c, d, &e, f, g, h, &a, K[t + 7] + w[t + 7]);
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

struct sha256 sha256_begin(void)
{
    return (struct sha256){ .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                                   0x5be0cd19 } };
}

/* Bytes are collected until a block is full. */
void sha256_add(struct sha256 *sha256, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        const size_t used = sha256->bytes % 64, n = bytes < 64 - used ? bytes : 64 - used;
        if (n == 64) {                                  /* a whole block is read where it lies */
            add_block(sha256->h, from);
            sha256->bytes += n, from += n, bytes -= n;
            continue;
        }
        memcpy(sha256->block + used, from, n);
        sha256->bytes += n, from += n, bytes -= n;
        if (sha256->bytes % 64 == 0) add_block(sha256->h, sha256->block);
    }
}

struct sha256_digest sha256_digest(struct sha256 *sha256)
{
    static const uint8_t ending[64] = { 0x80 };
    const uint64_t bits = 8 * sha256->bytes;
    const size_t used = sha256->bytes % 64;
    struct sha256_digest out;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    /* A message ends in a bit 1, zeros up to byte 56 of a block, and its length in bits. */
    sha256_add(sha256, ending, used < 56 ? 56 - used : 120 - used);
    sha256_add(sha256, length, sizeof length);
    memcpy(out.word, sha256->h, sizeof out.word);
    return out;
}

struct sha256_text sha256_end(struct sha256 *sha256)
{
    const struct sha256_digest digest = sha256_digest(sha256);
    struct sha256_text out;
    for (int i = 0; i < 8; i++) snprintf(out.text + 8 * i, 9, "%08x", (unsigned)digest.word[i]);
    return out;
}

struct sha256_text sha256_of(const void *data, size_t bytes)
{
    struct sha256 s = sha256_begin();
    sha256_add(&s, data, bytes);
    return sha256_end(&s);
}

/* The file is read in pieces, so its size does not matter. */
enum error_code sha256_file(const char *path, struct sha256_text *out, struct error *err)
{
    enum { AT_ONCE = 1 << 18 };
    struct sha256 s = sha256_begin();
    int64_t size = 0;
    int fd;
    enum error_code e = file_open(path, &fd, &size, err);
    if (e) return e;
    char *room = malloc(AT_ONCE);
    if (room == NULL) e = fail(err, ERR_MEMORY, "%s: no memory to read it", printable_path(path).text);
    for (int64_t at = 0; at < size && !e; at += AT_ONCE) {
        const size_t n = size - at < AT_ONCE ? (size_t)(size - at) : AT_ONCE;
        e = file_read_at(fd, path, room, n, at, err);
        if (!e) sha256_add(&s, room, n);
    }
    close(fd);
    free(room);
    if (!e) *out = sha256_end(&s);
    return e;
}
