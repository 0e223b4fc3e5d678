// Kernels of the PTX corpus, one per idiom. `make_corpus.py` beside this folder compiles them.
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cuda_fp16.h>

extern "C" {

__global__ void saxpy(int n, float a, const float* __restrict__ x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = a * x[i] + y[i];
}

// A reduction through shared memory; each block takes every gridDim-th part.
__global__ void block_sum(const float* x, float* out, int n) {
  __shared__ float part[64];
  int t = threadIdx.x;
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  part[t] = sum;
  __syncthreads();
  for (int k = 32; k > 0; k >>= 1) {
    if (t < k) part[t] += part[t + k];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void three_dimensions(int* out) {
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int size = blockDim.x * blockDim.y * blockDim.z;
  out[block * size + thread] = blockIdx.z * 100000 + blockIdx.y * 10000 + blockIdx.x * 1000 + thread + gridDim.z;
}

// Some threads have left before the others meet at a barrier.
__global__ void early_exit(float* x, int n) {
  if (threadIdx.x >= n) return;
  __shared__ float s[64];
  s[threadIdx.x] = x[blockIdx.x * n + threadIdx.x];
  __syncthreads();
  x[blockIdx.x * n + threadIdx.x] = s[n - 1 - threadIdx.x] + 1;
}

__global__ void nothing() {}

__global__ void histogram(const unsigned char* data, unsigned* bins, int n) {
  __shared__ unsigned local[32];
  if (threadIdx.x < 32) local[threadIdx.x] = 0;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&local[data[i] & 31], 1u);
  __syncthreads();
  if (threadIdx.x < 32) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

__global__ void warp_sum(const int* x, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = x[i];
  for (int k = 16; k > 0; k >>= 1) v += __shfl_down_sync(0xffffffffu, v, k);
  unsigned even = __ballot_sync(0xffffffffu, x[i] % 2 == 0);
  if (threadIdx.x % 32 == 0) out[i / 32] = v * 100 + __popc(even);
}

__global__ void votes(const int* x, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int any = __syncthreads_or(x[i] > 90);
  int all = __syncthreads_and(x[i] > 2);
  int count = __syncthreads_count(x[i] > 50);
  out[i] = any * 10000 + all * 1000 + count;
}

// The block that finishes last adds up what the others left.
__global__ void last_block(const float* x, float* parts, unsigned* arrived, float* out) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = x[blockIdx.x] * 2;
    __threadfence();
    last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; b++) sum += parts[b];
    *out = sum;
  }
}

// A lock-free retry: the loop ends as soon as no other thread was faster.
__global__ void float_max(const float* x, float* most) {
  float mine = x[blockIdx.x * blockDim.x + threadIdx.x];
  int* at = (int*)most;
  int old = *at, seen;
  do {
    seen = old;
    old = atomicCAS(at, seen, __float_as_int(fmaxf(mine, __int_as_float(seen))));
  } while (old != seen);
}

__device__ __noinline__ float polynomial(float x, int degree) {
  float sum = 1;
  for (int i = 0; i < degree; i++) sum = sum * x + i;
  return sum;
}

__global__ void calls(float* x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = polynomial(x[i], threadIdx.x % 5);
}

__global__ void jump_table(int* x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  switch (x[i]) {
    case 0: x[i] = i * 3; break;
    case 1: x[i] = i ^ 77; break;
    case 2: x[i] = atomicAdd(x + i, 9); break;
    case 3: x[i] = i / 7; break;
    case 4: x[i] = -i; break;
    case 5: x[i] = __clz(i); break;
    default: x[i] = 1000;
  }
}

struct Shape { int64_t stride; short offset; char scale; double bias; };

__global__ void structure(Shape shape, double* out) {
  int64_t i = blockIdx.x * (int64_t)shape.stride + threadIdx.x + shape.offset;
  out[i] = (double)i * shape.scale + shape.bias / (threadIdx.x + 1);
}

__global__ void vectors(const float4* x, float4* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = x[i];
  y[i] = make_float4(v.w, v.z, sqrtf(fabsf(v.y)), v.x * 0.5f);
}

__constant__ int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};

__global__ void dynamic_shared(int* out) {
  extern __shared__ int scratch[];
  scratch[threadIdx.x] = table[threadIdx.x & 7] + blockIdx.y;
  __syncthreads();
  out[blockIdx.y * blockDim.x + threadIdx.x] = scratch[blockDim.x - 1 - threadIdx.x];
}

__global__ void local_array(const int* order, int* out) {
  int a[8];
  for (int k = 0; k < 8; k++) a[order[k]] = k * (int)blockIdx.x;
  out[blockIdx.x * blockDim.x + threadIdx.x] = a[order[threadIdx.x & 7]];
}

__global__ void halves(const __half* x, __half* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = __hadd(__hmul(x[i], x[i]), __float2half(0.5f));
}

// What follows must be refused.

__device__ __noinline__ int where() { return blockIdx.x * gridDim.x; }
__global__ void function_reads_block(int* out) { out[threadIdx.x] = where(); }

__global__ void grid_barrier(int* x) {
  x[blockIdx.x] = 1;
  cooperative_groups::this_grid().sync();
  x[blockIdx.x] += x[0];
}

__global__ void spin_volatile(volatile int* flag, int* out) {
  if (blockIdx.x == 0) *flag = 1;
  while (*flag == 0) {}
  out[blockIdx.x] = 1;
}

__global__ void spin_fence(int* flag, int* out) {
  while (*flag == 0) __threadfence();
  out[blockIdx.x] = 1;
}

__global__ void spin_lock(int* lock, int* out) {
  while (atomicCAS(lock, 0, 1) != 0) {}
  *out += blockIdx.x;
  __threadfence();
  atomicExch(lock, 0);
}

__global__ void speaks(int* x) { printf("block %d\n", blockIdx.x); x[blockIdx.x] = 1; }
}
