/* plugin_fields.h -- the fields and values that plug-ins share with the program, for their fingerprint.
 *
 * plugin.h makes a number of all offsets, sizes and values: a plug-in that was compiled with other headers has another
 * number.  F(struct, field) names a field, V(value) a value of an enumeration, in the order of the headers.
 * `bash tests/tree/test_plugin_fields.sh --write` writes both lists; without --write it says what is missing in them.
 */
#ifndef ORRERY_PLUGIN_FIELDS_H
#define ORRERY_PLUGIN_FIELDS_H

#define PLUGIN_FIELDS(F) F(error, code) F(error, text) F(arena, device) F(arena, budget) F(arena, poison)              \
    F(arena, now) F(arena, peak) F(arena, at_peak) F(arena, doing) F(arena, doing_at_peak) F(arena, blocks)            \
    F(arena, blocks_at_peak) F(arena, held) F(arena, flight) F(arena, spare) F(arena, spare_bytes) F(tensor, data)     \
    F(tensor, dtype) F(tensor, ndim) F(tensor, dim) F(device, backend) F(device, state) F(device, arena)               \
    F(device, clock) F(device, streams) F(device, watch) F(device, dtype) F(device, sums) F(device, exact)             \
    F(device, operations) F(device, done) F(device, ops) F(hyperparameters, lr) F(hyperparameters, beta1)              \
    F(hyperparameters, beta2) F(hyperparameters, eps) F(hyperparameters, weight_decay)                                 \
    F(hyperparameters, momentum) F(hyperparameters, clip) F(hyperparameters, distance)                                 \
    F(hyperparameters, schedule) F(hyperparameters, warmup) F(hyperparameters, steps) F(hyperparameters, decay)        \
    F(hyperparameters, min_lr) F(hyperparameters, rank) F(hyperparameters, refresh)                                    \
    F(hyperparameters, galore_scale) F(hyperparameters, history) F(hyperparameters, damping)                           \
    F(hyperparameters, as) F(step, lr) F(step, weight_decay) F(step, gradient_scale) F(step, t) F(step, hyper)         \
    F(optimizer, name) F(optimizer, description) F(optimizer, source) F(optimizer, memory) F(optimizer, states)        \
    F(optimizer, state_name) F(optimizer, operations) F(optimizer, usual) F(optimizer, usual_as)                       \
    F(optimizer, low_rank) F(optimizer, natural) F(optimizer, forward_only) F(optimizer, infers)                       \
    F(optimizer, step_f32) F(optimizer, step_f64) F(backend, name) F(backend, description) F(backend, has_numbers)     \
    F(backend, allocate) F(backend, release) F(backend, copy) F(backend, host_read) F(backend, host_write)             \
    F(backend, host_done) F(backend, ops) F(backend, open) F(backend, close) F(backend, begin) F(backend, end)         \
    F(backend, holds) F(backend, direct) F(backend, calls) F(backend, zero) F(backend, convert) F(backend, reduce)     \
    F(backend, reduce_all) F(backend, divide) F(backend, add_squares) F(backend, quantise) F(backend, dequantise)      \
    F(backend, draw) F(backend, move_along) F(backend, step_along) F(backend, optimizer_step)                          \
    F(backend, outward_way) F(backend, outward_step) F(backend, galore_refresh) F(backend, galore_project)             \
    F(backend, galore_parts_step) F(backend, products) F(comm, device) F(comm, rank) F(comm, size)                     \
    F(comm, process) F(comm, cores) F(comm, contexts) F(comm, counted) F(comm, expected) F(comm, rehearsal)            \
    F(comm, carrier) F(comm, transport) F(comm, post) F(comm, everyone) F(comm, recorder) F(comm, watch)               \
    F(comm, failed) F(comm, checks_calls) F(comm, listener) F(group, comm) F(group, size) F(group, rank)               \
    F(group, member) F(group, process) F(group, kind) F(group, axes) F(group, context) F(group, exchanges)             \
    F(group, folds) F(group, turns) F(group, lists) F(group, call) F(exchange, group) F(exchange, operation)           \
    F(exchange, number) F(exchange, named) F(exchange, call) F(interval, first) F(interval, count)                     \
    F(intervals, count) F(intervals, room) F(intervals, at) F(nodes, member) F(nodes, slot) F(nodes, devices)          \
    F(nodes, reduces) F(collective, in) F(collective, out) F(collective, count) F(collective, counts)                  \
    F(collective, recvcounts) F(collective, placement) F(collective, dtype) F(collective, reduction)                   \
    F(collective, root) F(collective, exclusive) F(collective, nodes) F(collective, segment)                           \
    F(collective_cost, messages) F(collective_cost, bytes) F(collective_cost, additions) F(collective_cost, steps)     \
    F(collective_cost, depth) F(collective_cost, met) F(collective_cost, path) F(collective_cost, steps_inside)        \
    F(collective_cost, path_inside) F(algorithm, operation) F(algorithm, name) F(algorithm, description)               \
    F(algorithm, needs) F(algorithm, source) F(algorithm, cost_formula) F(algorithm, order) F(algorithm, vectors)      \
    F(algorithm, by_nodes) F(algorithm, reads_in) F(algorithm, pipelined) F(algorithm, refuses)                        \
    F(algorithm, turns) F(algorithm, run) F(algorithm, cost) F(scheme, kind) F(scheme, equality) F(scheme, name)       \
    F(scheme, description) F(scheme, source) F(scheme, volume) F(scheme, memory) F(scheme, needs)                      \
    F(scheme, invariants) F(tensor_cut, rows) F(tensor_cut, columns) F(weight_cut, out) F(weight_cut, in)              \
    F(weight_cut, sub) F(tensor_parallel, scheme) F(tensor_parallel, config) F(tensor_parallel, device)                \
    F(tensor_parallel, group) F(tensor_parallel, allreduce) F(tensor_parallel, S)                                      \
    F(tensor_parallel, wide_gradients) F(tensor_parallel, devices) F(tensor_parallel, rank)                            \
    F(tensor_parallel, mesh) F(tensor_parallel, at) F(tensor_parallel, channels) F(tensor_parallel, heads)             \
    F(tensor_parallel, columns) F(tensor_parallel, shared) F(tensor_parallel, dense) F(tensor_parallel, tokens)        \
    F(tensor_parallel, first_entry) F(tensor_parallel, along) F(tensor_parallel, copies) F(tensor_parallel, tiles)     \
    F(tensor_scheme, head) F(tensor_scheme, mesh) F(tensor_scheme, stream) F(tensor_scheme, heads)                     \
    F(tensor_scheme, feed) F(tensor_scheme, logits) F(tensor_scheme, weight) F(tensor_scheme, cuts_tokens)             \
    F(tensor_scheme, cuts_vectors) F(tensor_scheme, keeps_inputs) F(tensor_scheme, keeps_gradients)                    \
    F(tensor_scheme, exact) F(tensor_scheme, takes_tiles) F(tensor_scheme, linear_forward)                             \
    F(tensor_scheme, linear_backward_input) F(tensor_scheme, linear_backward_weight)                                   \
    F(tensor_scheme, embedding_forward) F(tensor_scheme, embedding_backward_weight) F(tensor_scheme, check)            \
    F(tensor_scheme, rings) F(tensor_scheme, matrix_cost) F(forecast, tp) F(forecast, sum) F(forecast, gradients)      \
    F(forecast, timed) F(forecast, time) F(context_parallel, scheme) F(context_parallel, tp)                           \
    F(context_parallel, heads) F(context_parallel, group) F(context_parallel, part) F(context_parallel, devices)       \
    F(context_parallel, rank) F(context_parallel, split) F(context_parallel, S) F(context_parallel, streams)           \
    F(context_parallel, plan) F(attention_call, cp) F(attention_call, shape) F(attention_call, qkv)                    \
    F(attention_call, out) F(attention_call, d_qkv) F(attention_call, d_out) F(attention_call, d_sinks)                \
    F(attention_call, kept) F(attention_scheme, head) F(attention_scheme, cuts_streams)                                \
    F(attention_scheme, takes_prefix) F(attention_scheme, splits) F(attention_scheme, windows)                         \
    F(attention_scheme, exact) F(attention_scheme, refuses) F(attention_scheme, plans_steps)                           \
    F(attention_scheme, chooses_micros) F(attention_scheme, steps_part) F(attention_scheme, parts)                     \
    F(attention_scheme, cut) F(attention_scheme, plan) F(attention_scheme, open) F(attention_scheme, slots)            \
    F(attention_scheme, exchanged) F(attention_scheme, reads_input) F(attention_scheme, reads_output)                  \
    F(attention_scheme, kept) F(attention_scheme, forward) F(attention_scheme, backward_input)                         \
    F(attention_scheme, exchange) F(attention_scheme, cost) F(shards, P) F(shards, rank) F(shards, weights)            \
    F(shards, gradients) F(shards, optimizer) F(shards, apart) F(shards, late) F(shards, once)                         \
    F(data_request, scheme) F(data_request, group) F(data_request, shards) F(data_request, context)                    \
    F(data_request, keep) F(data_request, infers) F(data_request, ring) F(data_request, no_prefetch)                   \
    F(data_request, tiles) F(data_request, reduce_scatter) F(data_request, allgather) F(data_request, bucket)          \
    F(data_request, outer) F(data_request, offload) F(data_request, offload_experts) F(data_request, chosen)           \
    F(data_request, offload_to) F(data_request, host_cache) F(data_request, offload_slice)                             \
    F(data_request, offload_stride) F(data_request, narrow_gradients) F(data_request, quantise_weights)                \
    F(data_request, quantise_gradients) F(data_scheme, head) F(data_scheme, share) F(data_scheme, any_shards)          \
    F(data_scheme, rows) F(data_scheme, late) F(data_scheme, once) F(data_scheme, allgather) F(data_scheme, outer)     \
    F(data_scheme, outward) F(expert_parallel, scheme) F(expert_parallel, tp) F(expert_parallel, group)                \
    F(expert_parallel, part) F(expert_parallel, devices) F(expert_parallel, rank) F(expert_parallel, along_etp)        \
    F(expert_parallel, slices) F(expert_parallel, slice) F(expert_parallel, node) F(expert_parallel, degree)           \
    F(expert_parallel, parts) F(expert_parallel, copying) F(expert_parallel, owner) F(expert_parallel, loads)          \
    F(expert_parallel, layer) F(expert_parallel, hides) F(expert_parallel, routing) F(mixture_call, ep)                \
    F(mixture_call, routing) F(mixture_call, first) F(mixture_call, phases) F(mixture_call, body)                      \
    F(mixture_call, x) F(mixture_call, y) F(mixture_call, weights) F(mixture_call, experts) F(mixture_call, dx)        \
    F(mixture_call, dy) F(mixture_call, d_weights) F(mixture_call, kept) F(mixture_call, left)                         \
    F(expert_scheme, head) F(expert_scheme, exact) F(expert_scheme, cuts_experts) F(expert_scheme, turns)              \
    F(expert_scheme, predicts) F(expert_scheme, refuses) F(expert_scheme, open) F(expert_scheme, close)                \
    F(expert_scheme, step) F(expert_scheme, weighs_there) F(expert_scheme, told) F(expert_scheme, tell)                \
    F(expert_scheme, hops) F(expert_scheme, hop) F(expert_scheme, has_degrees) F(expert_scheme, copies)                \
    F(expert_scheme, has_parts) F(expert_scheme, choose) F(expert_scheme, rows_to) F(expert_scheme, slices)            \
    F(expert_scheme, bring) F(expert_scheme, compute) F(expert_scheme, end) F(expert_scheme, finish)                   \
    F(expert_scheme, compute_cost) F(expert_scheme, place) F(expert_scheme, brings) F(expert_scheme, announce)         \
    F(expert_scheme, slots) F(expert_scheme, gradient_slots) F(expert_scheme, kept) F(expert_scheme, left)             \
    F(expert_scheme, forward) F(expert_scheme, input) F(expert_scheme, weight) F(expert_scheme, announce_cost)         \
    F(expert_scheme, cost) F(action, kind) F(action, micro) F(action, chunk) F(action, peer) F(action, beside)         \
    F(schedule, name) F(schedule, devices) F(schedule, micros) F(schedule, chunks) F(schedule, stages)                 \
    F(schedule, stage_of) F(schedule, routes) F(schedule, route) F(schedule, route_of) F(schedule, actions)            \
    F(schedule, count) F(schedule, weight_versions) F(schedule, update_every) F(schedule, pairs)                       \
    F(schedule, messages_given) F(schedule, receives_ahead) F(schedule_request, devices)                               \
    F(schedule_request, micros) F(schedule_request, chunks) F(schedule_request, update_every)                          \
    F(schedule_request, memory_limit) F(schedule_request, activation) F(schedule_request, kept_for_weight)             \
    F(schedule_request, pairs) F(schedule_request, skip) F(schedule_request, forward)                                  \
    F(schedule_request, backward_input) F(schedule_request, backward_weight) F(schedule_request, communication)        \
    F(schedule_generator, head) F(schedule_generator, bubble) F(schedule_generator, chunks)                            \
    F(schedule_generator, skips) F(schedule_generator, streams) F(schedule_generator, searches)                        \
    F(schedule_generator, pairs) F(schedule_generator, refuses) F(schedule_generator, make)

#define PLUGIN_VALUES(V) V(OK) V(ERR_USAGE) V(ERR_PLAN) V(ERR_FILE) V(ERR_FORMAT) V(ERR_MEMORY) V(ERR_COMM)            \
    V(ERR_DEVICE) V(ERR_DIVERGED) V(ERR_INTERNAL) V(ERR_STOPPED) V(ERR_CHECK) V(ERROR_COUNT) V(F32) V(F64) V(BF16)     \
    V(F16) V(I32) V(I64) V(U8) V(EXACT) V(DTYPE_COUNT) V(POINT_TO_POINT) V(BROADCAST) V(REDUCE) V(ALLREDUCE)           \
    V(REDUCE_SCATTER) V(ALLGATHER) V(ALLTOALL) V(GATHER) V(SCATTER) V(BARRIER) V(SCAN) V(SPARSE_ALLGATHER)             \
    V(SPARSE_REDUCE_SCATTER) V(CONTROL) V(OPERATION_COUNT) V(PARAMETERS) V(GRADIENTS) V(OPTIMIZER) V(ACTIVATIONS)      \
    V(BUFFERS) V(ARENA_TAG_COUNT) V(SUM) V(PRODUCT) V(MAX) V(MIN) V(AVERAGE) V(REDUCTION_COUNT) V(ADDS_NOTHING)        \
    V(BY_RANK) V(BY_TREE) V(BY_POSITION) V(TENSOR_SCHEME) V(ATTENTION_SCHEME) V(EXPERT_SCHEME) V(DATA_SCHEME)          \
    V(PIPELINE_SCHEME) V(PLAN_KINDS) V(SPATIAL_SCHEME) V(SCHEME_KINDS) V(PERMUTES) V(REASSOCIATES) V(DIFFERS)          \
    V(ROLE_TOKENS) V(ROLE_POSITIONS) V(ROLE_NORM) V(ROLE_QKV) V(ROLE_ATTENTION_OUT) V(ROLE_UP) V(ROLE_DOWN)            \
    V(ROLE_HEAD) V(ROLE_ROUTER) V(ROLE_SHARED_UP) V(ROLE_SHARED_DOWN) V(ROLE_DENSE_UP) V(ROLE_DENSE_DOWN)              \
    V(ROLE_LATENT) V(ROLE_LATENT_NORM) V(ROLE_QUERIES) V(ROLE_KEYS_VALUES) V(ROLE_SHARED_GATE) V(ROLE_SINKS)           \
    V(ROLE_HEAD_NORM) V(ROLE_PREFIX) V(ROLE_STREAMS_UP) V(ROLE_STREAMS_DOWN) V(ROLE_LOW_IN) V(ROLE_LOW_OUT)            \
    V(STREAM) V(INPUT) V(GRADIENT) V(AT_HEADS) V(AT_FEED) V(AT_LOGITS) V(FORWARD_PASS) V(INPUT_PASS)                   \
    V(WEIGHT_PASS) V(EXCHANGE_PASS) V(FORWARD) V(BACKWARD) V(BACKWARD_INPUT) V(BACKWARD_WEIGHT) V(UPDATE)              \
    V(SEND_ACTIVATION) V(RECEIVE_ACTIVATION) V(SEND_GRADIENT) V(RECEIVE_GRADIENT) V(ACTION_KINDS)

#endif
