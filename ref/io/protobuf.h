/* protobuf.h -- writes the messages of protocol buffers, field by field.
 *
 * A message is a list of fields: a key, which is the field's number and how its value is stored, and the value.  A
 * message inside another is a field of bytes.  There is no reader: what is written here is for other programs.
 *
 * tfevents.c and draw/ write their files with these functions.  Nothing here can fail: the caller knows that there is
 * room.
 */
#ifndef ORRERY_PROTOBUF_H
#define ORRERY_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

enum { PROTO_ROOM = 4096 };

/* A message that is being written; the caller knows that it has room for what is put into it. */
struct proto { uint8_t byte[PROTO_ROOM]; size_t used; };

/** Bytes as they are, and a number in seven bits a byte, the lowest first: both without a key. */
void proto_raw(struct proto *, const void *bytes, size_t n);
void proto_varint(struct proto *, uint64_t);

/** The lowest bytes of a number, little-endian, without a key. */
void proto_little(struct proto *, uint64_t, int bytes);

/** Fields: int32, int64, uint64, bool and enumerations; bytes and messages; strings; double and float. */
void proto_number(struct proto *, int field, uint64_t);
void proto_bytes(struct proto *, int field, const void *bytes, size_t n);
void proto_text(struct proto *, int field, const char *);
void proto_double(struct proto *, int field, double);
void proto_float(struct proto *, int field, float);

#endif
