/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STRATA_H
#define STRATA_H

#include <stddef.h>
#include <stdint.h>

/* Strata for other programs and languages: C99, usable from C++.
 *
 * There are two kinds of models. A strata_store keeps the weights, gradients and AdamW moments of
 * a model that the caller computes by itself, and updates them. A strata_train trains, evaluates
 * and runs a Hugging Face model directory. Both keep to memory budgets and put what does not fit
 * on drives; results have the same bits wherever state lies.
 *
 * Status: every function that returns strata_status returns STRATA_OK or the kind of failure.
 * strata_error_text() then says what is wrong, where, and what to do. After STRATA_ERROR_USAGE,
 * _CONFIG, _DOES_NOT_FIT, _HANDLE, _BUSY and _FORKED nothing has changed. Any other failure of a
 * call on a loaded state may lose it; calls on it then return STRATA_ERROR_USAGE and say so: load
 * again, or close the handle.
 *
 * Handles: an open function makes one, the close function ends it. A handle that is null, closed or
 * of another kind is STRATA_ERROR_HANDLE. Handles share nothing; any number may be open.
 *
 * Threads: any thread may call, one at a time for each handle; a call while another is running on
 * the same handle, as from one of its callbacks, is STRATA_ERROR_BUSY. Callbacks run on threads of
 * the library unless their description says otherwise; they must not throw, longjmp or exit. Those
 * threads take no signals but of their own faults, and neither does a child that a callback starts
 * there until it unblocks them.
 *
 * Long calls: strata_operation_start() lets the caller go on while they run, and can cancel them.
 *
 * Processes: a child of fork() cannot use the library if its parent had opened a handle: every call
 * there is STRATA_ERROR_FORKED. It may call exec. The library prints nothing, handles no signal
 * and never ends the process because of the caller's mistakes, files, memory or drives.
 *
 * Structs: the caller sets struct_size to sizeof of the struct, and all else that it does not use
 * to 0. New versions add members at the end, and never change what 0 means; they take the sizes of
 * all older versions. A smaller one, and a member beyond the library's that is not 0, are
 * STRATA_ERROR_CONFIG in every call. Of members and arguments that say yes or no, 0 is no and any
 * other number is yes.
 *
 * Memory: what the caller passes is copied before the call returns, if nothing else is said.
 * Strings that the library returns belong to the handle and stay until its next call.
 * Texts are UTF-8. Sizes are in bytes or elements, times in seconds. */
#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define STRATA_API __attribute__((visibility("default")))
#else
#define STRATA_API
#endif

typedef int32_t strata_status;
enum {
  STRATA_OK = 0,
  STRATA_ERROR_USAGE = 1,        /* a call out of turn, or an unknown option */
  STRATA_ERROR_CONFIG = 2,       /* a value, file or directory that cannot be used */
  STRATA_ERROR_DOES_NOT_FIT = 3, /* a budget is too small; the text names the least that fits */
  STRATA_ERROR_IO = 4,           /* a file or drive failed */
  STRATA_ERROR_CORRUPT = 5,      /* bytes are not what was written */
  STRATA_ERROR_NUMERIC = 6,      /* a loss that is not finite */
  STRATA_ERROR_PEER = 7,         /* another rank failed */
  STRATA_ERROR_DEVICE = 8,       /* a device failed */
  STRATA_ERROR_DEADLINE = 9,     /* a wait took longer than its deadline */
  STRATA_ERROR_INTERRUPTED = 10, /* a callback asked to stop, or the operation was cancelled */
  STRATA_ERROR_HANDLE = 11,      /* a handle that is null, closed or of another kind */
  STRATA_ERROR_BUSY = 12,        /* another call on the handle is running */
  STRATA_ERROR_FORKED = 13,      /* the library was in use before fork() */
  STRATA_ERROR_MEMORY = 14,      /* the system has no memory left */
  STRATA_ERROR_INTERNAL = 15     /* a mistake of the library */
};

/* The version of the library: "0.1.0". */
STRATA_API const char* strata_version(void);
/* The text of the last failure on the calling thread; empty when there was none. Valid until the
 * thread's next call. */
STRATA_API const char* strata_error_text(void);
/* "STRATA_OK", "STRATA_ERROR_USAGE", ...; "unknown status" for other numbers. */
STRATA_API const char* strata_status_name(strata_status status);

/* Where a handle reports to. Any may be null. The callbacks may be called by several threads at
 * once and must not call the library. */
typedef struct strata_sinks {
  size_t struct_size;
  void* context; /* the callbacks' first argument */
  /* One line, without its end. level: 0 information, 1 warning. */
  void (*log)(void* context, int32_t level, const char* line);
  /* A drive does not answer and the wait for it goes on; the process may have to end. */
  void (*hang)(void* context, const char* text);
  double hang_after_s; /* the longest that a drive may take; 0: 600 */
} strata_sinks;

typedef struct strata_plan {
  size_t struct_size;
  int32_t fits;
  int32_t reserved;
  const char* text; /* tables of budgets and predicted time; or why not, and what would fit */
  const char* json; /* the same as an object; or {"refused": text} */
} strata_plan;

typedef struct strata_step_result {
  size_t struct_size;
  int64_t step;     /* counted from 1, or from the step after the loaded checkpoint */
  double loss;      /* mean over the targets, nats; 0 for a store */
  double grad_norm; /* of all gradients, before clipping */
  int32_t applied;  /* 0: not finite gradients (store, fp16), or another rank discarded the step */
  int32_t left_out; /* uses of a store that the caller left out */
} strata_step_result;

/* ---- Store -----------------------------------------------------------------------------------
 *
 * A model is a list of units (layers), each with named tensors. A step does, for each of the
 * `accumulate` micro-batches, acquire and release of every unit, forward in the order in which the
 * units were added and then backward in the opposite order, unless strata_store_order() declares
 * another one:
 *
 *   open, add_unit ..., plan, load,
 *   { begin, { acquire forward, release } ..., { acquire backward, release } ..., step } ...,
 *   save, close */
typedef struct strata_store strata_store;

enum { STRATA_F32 = 1, STRATA_BF16 = 2, STRATA_F16 = 3 };               /* types of elements */
enum { STRATA_FORWARD = 0, STRATA_BACKWARD = 1 };                       /* passes */
enum { STRATA_WEIGHTS = 0, STRATA_EXP_AVG = 1, STRATA_EXP_AVG_SQ = 2 }; /* planes, all f32 */

typedef struct strata_tensor {
  size_t struct_size;
  const char* name; /* unique within the store, such as "layers.0.weight" */
  const int64_t* shape;
  int32_t rank;   /* members of shape */
  int32_t dtype;  /* of the weights: 0 or that of the option recipe, STRATA_F32 or STRATA_BF16 */
  int32_t frozen; /* 1: not trained, as with strata_unit::frozen */
  int32_t group;  /* n: strata_update::groups[n - 1] has its settings; 0: in no such group */
  /* A file that has its initial weights from byte source_offset on, row-major and without gaps, as
   * those of safetensors do; null: strata_load::fill gives them. It is read while loading. */
  const char* source;
  int64_t source_offset;
  int32_t source_dtype; /* of the elements there; 0: that of the weights */
  int32_t reserved;
} strata_tensor;

typedef struct strata_unit {
  size_t struct_size;
  const char* name;             /* unique within the store, such as "layers.0" */
  const strata_tensor* tensors; /* [tensor_count], each struct_size of the first apart */
  size_t tensor_count;
  int32_t frozen; /* 1: not trained; no gradient, no moments, and not in checkpoints */
  int32_t reserved;
} strata_unit;

/* A use in a micro-batch: units that are in memory together, such as a head and the embedding whose
 * matrix it shares, for one pass. */
typedef struct strata_use {
  size_t struct_size;
  const int32_t* units; /* [unit_count], distinct; acquire names the first */
  size_t unit_count;
  int32_t pass; /* STRATA_FORWARD or STRATA_BACKWARD */
  int32_t reserved;
  double seconds; /* how long the caller computes, for the plan; 0: it takes no time */
} strata_use;

/* A unit in memory, that of the store's device where it has one. Tensors are row-major;
 * strata_store_tensor() says at which element each begins. What lies between tensors must not be
 * written. */
typedef struct strata_view {
  size_t struct_size;
  const void* weights; /* [count] */
  /* [count], backward of trained units only. The sum of what this step's earlier micro-batches
   * added, zero in the first; the caller adds to it, or calls strata_store_add_gradient(). */
  float* gradient;
  int64_t count;     /* elements up to the end of the last tensor */
  int32_t dtype;     /* of the weights: STRATA_F32 or STRATA_BF16 */
  int32_t on_device; /* 1: the addresses are a device's, and the host cannot read them */
} strata_view;

typedef struct strata_tensor_info {
  size_t struct_size;
  int64_t offset; /* first element within the unit's weights and gradient; a multiple of 64 */
  int64_t count;  /* elements */
  int32_t frozen;
  int32_t reserved;
} strata_tensor_info;

/* Fills elements [first, first + count) of a tensor's plane. Returns 0, or another number to stop.
 * One call at a time; a tensor comes in any number of pieces. */
typedef int (*strata_fill)(void* context, int32_t plane, int32_t unit, int32_t tensor,
                           int64_t first, int64_t count, float* values);
/* Takes them. */
typedef int (*strata_visit)(void* context, int32_t plane, int32_t unit, int32_t tensor,
                            int64_t first, int64_t count, const float* values);

typedef struct strata_load {
  size_t struct_size;
  const char* checkpoint; /* the path of one; or null: sources and `fill` give all weights */
  strata_fill fill; /* for weights without a source; with a checkpoint, for frozen ones alone */
  void* context;
  int32_t fills_moments; /* without a checkpoint: 1: asks for moments too; 0: they are zero */
  int32_t reserved;
  int64_t updates; /* without a checkpoint: how many updates the moments have seen */
} strata_load;

/* Settings of the tensors of a group. Weight decay is for all of them, whatever their rank. */
typedef struct strata_group_update {
  size_t struct_size;
  double lr; /* 0 or more */
  double weight_decay;
} strata_group_update;

typedef struct strata_update {
  size_t struct_size;
  double lr;           /* 0 or more */
  int32_t has_clip;    /* 1: `clip` replaces the option for this step; 0 is no clipping */
  int32_t has_decay;   /* 1: `weight_decay` replaces the option for this step */
  double clip;         /* largest norm of all gradients */
  double weight_decay; /* of the tensors that have it */
  /* [group_count], for tensors with a group; each struct_size of the first apart. */
  const strata_group_update* groups;
  size_t group_count; /* that of the tensors' groups; or 0: groups have `lr` and `weight_decay` */
  /* Gradients are those of a loss that was multiplied by this number; 0: 1. The norm, clipping, the
   * look for numbers that are not finite and the update are of gradients divided by it. A power of
   * two changes no bit. */
  double gradient_scale;
} strata_update;

typedef struct strata_statistics {
  size_t struct_size;
  int64_t steps;      /* the last step's number */
  int64_t updates;    /* applied, with those of the loaded state */
  int64_t host_bytes; /* of memory, allocated once */
  int64_t nvme_bytes; /* of scratch */
  int64_t nvme_bytes_read;
  int64_t nvme_bytes_written;
  double last_step_s;
  double last_stall_s; /* of the last step, how long acquire waited */
  int64_t device_bytes;
} strata_statistics;

/* What strata_transport::wait returns, or any other number for a failure. */
enum { STRATA_TRANSFER_DONE = 0, STRATA_TRANSFER_INTERRUPTED = 1 };

/* A framework's own means to move bytes between ranks, which a store uses in place of TCP. It moves
 * bytes only: sums are the library's, so results do not depend on it. The k-th send of a rank to
 * another over a channel meets the k-th receive there, of equal size. Several threads call, for one
 * channel one at a time; interrupt comes from any thread. `context` is the first argument. */
typedef struct strata_transport {
  size_t struct_size;
  void* context;
  /* Begin a transfer and return 0 with a name for it in `transfer`, or return another number. The
   * data stay where they are until the transfer ends. They must not wait for the other rank. */
  int (*send)(void* context, int32_t channel, int32_t peer, const void* data, int64_t bytes,
              void** transfer);
  int (*receive)(void* context, int32_t channel, int32_t peer, void* data, int64_t bytes,
                 void** transfer);
  /* Waits until the bytes have moved, at most so many seconds. */
  int (*wait)(void* context, void* transfer, double seconds);
  /* Lets the wait return soon, because another rank is gone. It must not wait, nor call the
   * library. Null: the wait goes on until it is over. */
  void (*interrupt)(void* context, void* transfer);
  /* Ends a transfer, moved or not, whose data must not be used any more. Once for each. */
  void (*end)(void* context, void* transfer);
} strata_transport;

/* Which of the ranks a store is, and where they meet: by directory, address or transport. */
typedef struct strata_ranks {
  size_t struct_size;
  int32_t rank;
  int32_t ranks_on_node; /* ranks of a machine, which follow each other; 0: all are on this one */
  const char* directory; /* on one machine: one that no other user may enter; it need not exist */
  const char* address;   /* HOST:PORT where rank 0 listens */
  const char* secret;    /* with address: at least 16 bytes that only the ranks know */
  const char* interface; /* of this machine, for the data; null: the one that reaches rank 0 */
  /* Carries the data; then rank 0 chooses the secret, and on one machine the address. Null: TCP, on
   * a network that must be trusted. */
  const strata_transport* transport;
  double connect_s; /* in which all ranks come; 0: 300 */
} strata_ranks;

/* Opens a store without units. `options`: a JSON object with options of the program `strata train`
 * by name and with their defaults, or null: host_memory (of this store), nvme, nvme_rate, recipe
 * ("bf16" or "fp32"), accumulate, threads, betas, eps, weight_decay, decay_all, clip, freeze and
 * groups (patterns on names of tensors), io, io_deadline, and for several ranks: ranks, zero_stage,
 * shard_ranks, reduce_dtype. With device "cuda" or "cuda:1" and device_memory, units come to that
 * GPU's memory, and updates are done where the state lies; the rest of its memory is the caller's.
 * plugin_path is the folder of libstrata_cuda.so where that is not beside this library. Each loaded
 * store needs directories of its own for nvme.
 * `sinks` may be null.
 * Errors: _USAGE, _CONFIG. Creates and measures nothing. */
STRATA_API strata_status strata_store_open(const char* options, const strata_sinks* sinks,
                                           strata_store** store);
/* Adds the next unit. `index`, if not null, receives its number, from 0. Errors: _CONFIG for sizes
 * and types that cannot be; _USAGE after plan or load. */
STRATA_API strata_status strata_store_add_unit(strata_store* store, const strata_unit* unit,
                                               int32_t* index);
/* Declares the uses of a micro-batch in their order. A unit may be used any number of times; one
 * that is trained must be used backward. With `may_leave_out`, acquire leaves out uses of the
 * micro-batch before the one that it is asked for, and a backward that is left out counts as
 * gradients of zero. Errors: _CONFIG for an order that cannot be; _USAGE after plan or load. */
STRATA_API strata_status strata_store_order(strata_store* store, const strata_use* uses,
                                            size_t count, int32_t may_leave_out);
/* With the option `ranks`: as many stores share the state of one model, each with its own data.
 * All join, before load and again after unload or a failure, and then make the same calls in the
 * same order, from processes or threads of their own. Gradients are summed over the ranks. A step
 * that one of them discards is discarded by all. Returns when all are there. When a rank fails or
 * is gone, calls of the others return STRATA_ERROR_PEER with its reason. Errors: _USAGE, _CONFIG;
 * _DEADLINE names ranks that did not come. */
STRATA_API strata_status strata_store_join(strata_store* store, const strata_ranks* ranks);
/* Plans where state lies and when it moves. Creates nothing. When no plan fits, returns
 * _DOES_NOT_FIT, and `plan` says so. No unit can be added afterwards. `plan` may be null. */
STRATA_API strata_status strata_store_plan(strata_store* store, strata_plan* plan);
/* Where a tensor lies in its unit. May be called at any time after its unit was added and plan
 * succeeded. Errors: _USAGE. */
STRATA_API strata_status strata_store_tensor(strata_store* store, int32_t unit, int32_t tensor,
                                             strata_tensor_info* info);
/* Allocates memory and loads a state. Between steps, it takes the memory and scratch of the state
 * that is loaded; within a step, that state is unloaded before. Plans first if plan was not called.
 * A checkpoint that cannot be used leaves what is loaded, if this is the only rank: all of it is
 * verified before its state is read. After another failure nothing is loaded. _INTERRUPTED when
 * `fill` stopped it. */
STRATA_API strata_status strata_store_load(strata_store* store, const strata_load* load);
/* Begins a step. */
STRATA_API strata_status strata_store_begin(strata_store* store);
/* Waits until the unit is in memory. `view` is valid until release, step or discard. Errors: _USAGE
 * or _CONFIG for a pass out of turn, with the names of the one asked for and the next one. */
STRATA_API strata_status strata_store_acquire(strata_store* store, int32_t unit, int32_t pass,
                                              strata_view* view);
/* As strata_store_acquire(), for a caller that computes on a stream of the store's device: with
 * device "cuda" a cudaStream_t of that GPU, or null for its default stream. It may return before
 * the unit is there: work that is issued to the stream from now on finds it, and what was issued
 * until release is waited for by whatever uses the memory next. Whoever uses other streams orders
 * them with this one. Without a device it is strata_store_acquire(). */
STRATA_API strata_status strata_store_acquire_on(strata_store* store, int32_t unit, int32_t pass,
                                                 void* stream, strata_view* view);
/* The view of another unit of the acquired use, valid as long. add_gradient then adds to that unit.
 * Errors: _USAGE. */
STRATA_API strata_status strata_store_used(strata_store* store, int32_t unit, strata_view* view);
/* Adds scale * values[i] to elements [first, first + count) of a tensor's gradient in the unit that
 * is acquired for its backward. `values`, in host memory, has type `dtype`. With scale 1/s it takes
 * gradients of a loss that was multiplied by s. Errors: _USAGE for another pass or a range beyond
 * the tensor. */
STRATA_API strata_status strata_store_add_gradient(strata_store* store, int32_t tensor,
                                                   int64_t first, int64_t count, int32_t dtype,
                                                   const void* values, double scale);
/* Copies bytes of the acquired units to the caller's host memory, or from there to a gradient, in
 * the order of the stream. Returns when they are copied. Errors: _USAGE for bytes that do not lie
 * in an acquired unit. */
STRATA_API strata_status strata_store_copy(strata_store* store, void* to, const void* from,
                                           int64_t bytes);
/* Gives the acquired unit back. */
STRATA_API strata_status strata_store_release(strata_store* store);
/* Ends a micro-batch, and leaves out the rest of its uses where the order allows that. It is needed
 * only where uses at the end of a micro-batch may be left out. Errors: _USAGE. */
STRATA_API strata_status strata_store_end_micro_batch(strata_store* store);
/* A micro-batch without a backward, between steps: begin_forward, then acquire and release in the
 * order of the forward uses, then end_forward. An update that waits for its step is done first. */
STRATA_API strata_status strata_store_begin_forward(strata_store* store);
STRATA_API strata_status strata_store_end_forward(strata_store* store);
/* Writes the seconds from acquire to release of each use to seconds[count], means over the
 * micro-batches of the last step: what strata_use::seconds wants. Errors: _USAGE for a `count` that
 * is not the number of uses in a micro-batch. */
STRATA_API strata_status strata_store_use_seconds(strata_store* store, double* seconds,
                                                  size_t count);
/* Ends the step with an AdamW update, which is done while later passes are prepared. When a
 * gradient is not finite, nothing is updated and `applied` is 0. `result` may be null. */
STRATA_API strata_status strata_store_step(strata_store* store, const strata_update* update,
                                           strata_step_result* result);
/* Ends the step, or the micro-batch without a backward, at any point without an update: state and
 * counts are as before begin. It takes as long as the passes that are left. */
STRATA_API strata_status strata_store_discard(strata_store* store);
/* Writes a checkpoint below the directory, which all ranks must see; `path`, if not null, receives
 * its path. Replaces one of the same step. Not within a step. Any number of ranks can load it. */
STRATA_API strata_status strata_store_save(strata_store* store, const char* directory,
                                           const char** path);
/* Passes one plane of all trained tensors to `visit`, unit by unit. Reads the whole state. Not
 * within a step. Of several ranks, all see all of it, rank by rank. _INTERRUPTED when `visit`
 * stopped it, which changes nothing. */
STRATA_API strata_status strata_store_read(strata_store* store, int32_t plane, strata_visit visit,
                                           void* context);
/* Copies one trained tensor's plane to values[count]. As strata_store_read(), it reads all state.
 * Errors: _USAGE for a frozen tensor and for a count other than the tensor's. */
STRATA_API strata_status strata_store_read_tensor(strata_store* store, int32_t unit, int32_t tensor,
                                                  int32_t plane, float* values, int64_t count);
/* Replaces elements [first, first + count) of a trained tensor's plane by values[count]. Other
 * planes and the number of updates stay. What was read and is written again changes no bit of later
 * steps. It moves these elements alone. Not within a step. Of several ranks, all write the same.
 * Errors: _USAGE for a frozen tensor and a range beyond the tensor, and on all ranks where they
 * differ. */
STRATA_API strata_status strata_store_write_tensor(strata_store* store, int32_t unit,
                                                   int32_t tensor, int32_t plane, int64_t first,
                                                   int64_t count, const float* values);
/* Not within a step. */
STRATA_API strata_status strata_store_statistics(strata_store* store,
                                                 strata_statistics* statistics);
/* Ends the store's threads and frees its memory, at any point. load may be called again. */
STRATA_API strata_status strata_store_unload(strata_store* store);
/* Closes the handle, at any point. Null is STRATA_OK. */
STRATA_API strata_status strata_store_close(strata_store* store);

/* ---- Train -----------------------------------------------------------------------------------
 *
 * With the options `data` and `out`, a handle is a whole run: plan, then run. With `out` and
 * `resume` it continues a run. Without them the caller drives the steps of the model: plan, load,
 * then step, evaluate, logits, generate, save, export. */
typedef struct strata_train strata_train;

typedef struct strata_step_report {
  size_t struct_size; /* set by the library */
  int64_t step;       /* counted from 1 */
  double loss;        /* mean over the step's targets, nats */
  double grad_norm;   /* before clipping */
  double lr;
  int64_t tokens; /* targets */
  double step_s;
  int32_t skipped; /* 1: it updated nothing: no target (the loss is NaN), or fp16 overflowed */
  int32_t reserved;
} strata_step_report;

typedef struct strata_callbacks {
  size_t struct_size;
  void* context;
  /* After each step. Returns 0, or another number to stop: the run then finishes the step that has
   * begun meanwhile, which is the next one, and reports it, writes a checkpoint and returns. May be
   * null. Called by one thread at a time, which is not always the caller's. */
  int (*step)(void* context, const strata_step_report* report);
  /* After each evaluation on held-out data, whose mean loss is given; returns like `step`. */
  int (*evaluated)(void* context, int64_t step, double loss);
} strata_callbacks;

typedef struct strata_run_result {
  size_t struct_size;
  int64_t first_step;
  int64_t last_step;
  double first_loss;
  double last_loss;
  double held_out_loss;   /* NaN without one */
  uint64_t state_hash;    /* of all weights and moments in the checkpoint */
  const char* checkpoint; /* the last one */
  const char* model;      /* the directory of the trained model; empty: the run was stopped */
  int32_t stopped;        /* 1: a callback stopped it */
  int32_t reserved;
} strata_run_result;

/* The input of a step: M = `accumulate`, B = `micro_batch`, T = `sequence_length`. */
typedef struct strata_batch {
  size_t struct_size;
  const int32_t* tokens;  /* [M, B, T] */
  const int32_t* targets; /* [M, B, T], the tokens that follow; -1: not a target */
  int64_t count;          /* M * B * T */
} strata_batch;

/* `options`: a JSON object with options of `strata train` by name, such as {"model": "dir",
 * "host_memory": "24GiB", "nvme": ["/mnt/a"]}. `cache_directory` keeps measurements of the machine;
 * null: each plan measures. `sinks` may be null. Errors: _USAGE with all mistakes, _CONFIG. */
STRATA_API strata_status strata_train_open(const char* options, const char* cache_directory,
                                           const strata_sinks* sinks, strata_train** train);
/* As strata_store_plan(). It may measure the machine, for some seconds. */
STRATA_API strata_status strata_train_plan(strata_train* train, strata_plan* plan);
/* Runs the whole run, once. `callbacks` and `result` may be null. STRATA_OK for a run that was
 * stopped, too. */
STRATA_API strata_status strata_train_run(strata_train* train, const strata_callbacks* callbacks,
                                          strata_run_result* result);
/* Loads the model's weights, or with `checkpoint` the state of one. */
STRATA_API strata_status strata_train_load(strata_train* train, const char* checkpoint);
/* Forward, backward and update. `result` may be null. */
STRATA_API strata_status strata_train_step(strata_train* train, const strata_batch* batch,
                                           double lr, strata_step_result* result);
/* The mean loss over the batch's targets, nats. */
STRATA_API strata_status strata_train_evaluate(strata_train* train, const strata_batch* batch,
                                               double* loss);
/* The logits [V] of the token that follows context[count]; only its last T tokens are used. Writes
 * at most `capacity` of them, and V to `vocabulary`. With capacity 0 it computes nothing. */
STRATA_API strata_status strata_train_logits(strata_train* train, const int32_t* context,
                                             int64_t count, float* logits, int64_t capacity,
                                             int64_t* vocabulary);
/* Continues the prompt with the most likely tokens, at most `tokens_max`. */
STRATA_API strata_status strata_train_generate(strata_train* train, const char* prompt,
                                               int64_t tokens_max, const char** text);
/* As strata_store_save(). */
STRATA_API strata_status strata_train_save(strata_train* train, const char* directory,
                                           const char** path);
/* Writes the model as a model directory, which must not exist yet. */
STRATA_API strata_status strata_train_export(strata_train* train, const char* directory);
/* As strata_store_close(). */
STRATA_API strata_status strata_train_close(strata_train* train);

/* ---- Drives ---- */

/* Seconds from a request to its end; 0 where there were none. It has no struct_size, because others
 * contain it: it never gets another member. */
typedef struct strata_latency {
  double p50_s;
  double p99_s;
  double p999_s;
  double max_s;
} strata_latency;

/* A measurement: requests of one size, so many in flight, for a while. */
typedef struct strata_drive_rates {
  size_t struct_size;  /* set by the library */
  const char* mode;    /* "read", "write" or "mixed" */
  int64_t block_bytes; /* of a request */
  int32_t depth;       /* requests in flight, over all files */
  int32_t files;       /* in each directory */
  double seconds;
  int64_t bytes_read;
  int64_t bytes_written;
  double read_bytes_per_s;
  double write_bytes_per_s;
  double cpu_s_per_gb; /* of the whole process */
  strata_latency read;
  strata_latency write;
  int32_t direct;    /* 0: through the page cache */
  int32_t verified;  /* 1: with checksums */
  int32_t cut_short; /* 1: the limit of bytes to write ended it */
  int32_t reserved;
} strata_drive_rates;

/* Takes a measurement; its strings stay until it returns. Returns 0, or another number to stop. On
 * the caller's thread. */
typedef int (*strata_measured)(void* context, const strata_drive_rates* rates);

/* Measures drives by the reads and writes that training uses, as `strata bench io` does: every
 * shape of the options, one after another. `options`: a JSON object with options of that command by
 * name, such as {"nvme": ["/mnt/a"], "mode": ["read"], "seconds": 2}. Its scratch files disappear
 * with the call. `sinks` may be null. Errors: _USAGE with all mistakes, _IO, _INTERRUPTED when
 * `measured` stopped it. */
STRATA_API strata_status strata_bench_io(const char* options, const strata_sinks* sinks,
                                         strata_measured measured, void* context);

/* ---- Operations ----
 *
 * An operation calls a function of the caller's on a thread of the library. That function makes the
 * calls that take long, and puts their results where the caller finds them:
 *
 *   static strata_status train(void* job) {
 *     return strata_train_run(((struct job*)job)->train, NULL, &((struct job*)job)->result);
 *   }
 *   ...
 *   strata_operation_start(train, NULL, &job, &operation);
 *   do { ... strata_operation_wait(operation, 0, &state); } while (!state.is_over);
 *   strata_operation_close(operation);
 *
 * Any thread may call these functions at any time, several on one operation too. */
typedef struct strata_operation strata_operation;

/* Returns the status of the call that failed, or STRATA_OK. */
typedef strata_status (*strata_work)(void* context);
/* Called once when the work is over, on the operation's thread. Its own operation cannot be waited
 * for or closed there. */
typedef void (*strata_over)(void* context, strata_status status);

typedef struct strata_operation_state {
  size_t struct_size;
  int32_t is_over;
  strata_status status; /* what the work returned; STRATA_OK while it is not over */
  const char* text; /* strata_error_text() of the work's last failure; empty if it returned OK */
} strata_operation_state;

/* Starts `work`. `over` may be null; both get `context`. Errors: _IO where the system has no thread
 * left. */
STRATA_API strata_status strata_operation_start(strata_work work, strata_over over, void* context,
                                                strata_operation** operation);
/* Waits until the work is over, at most `seconds`: 0 looks at once, a negative number has no limit.
 * STRATA_OK in any case; `state` says whether it is over, and may be null. Its text stays until
 * close. Errors: _USAGE on the operation's own thread. */
STRATA_API strata_status strata_operation_wait(strata_operation* operation, double seconds,
                                               strata_operation_state* state);
/* Asks the work to end and does not wait. strata_train_run() then finishes the steps that it has
 * begun, two at most, writes a checkpoint and returns as if a callback had stopped it.
 * strata_store_load() with `fill`, strata_store_read() and strata_bench_io() return _INTERRUPTED.
 * Other calls come to their end. Any call that begins later on the operation's thread, but release,
 * discard, unload and close, is _INTERRUPTED and changes nothing. */
STRATA_API strata_status strata_operation_cancel(strata_operation* operation);
/* Waits until the work is over and closes the handle. Null is STRATA_OK. Errors: _USAGE on the
 * operation's own thread. */
STRATA_API strata_status strata_operation_close(strata_operation* operation);

#ifdef __cplusplus
}
#endif

#endif
