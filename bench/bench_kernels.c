/* Speed of the products on one thread, per weight type and variant:
 *   decode   GB/s of weight bytes for one row of activations; weights in the cache (896 columns by 4864 rows are read again and
 *            again) and streamed from memory (more than 64 MB)
 *   N rows   billions of multiply-adds a second for 8 and 16 rows of activations (batched decode) and for 64 (prefill)
 * Each figure is the best of several passes. Usage: bench_kernels [variant [type]] */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"
#include "kernels/kernels.h"
#include "tensor/tiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COLS 896
#define ROWS 4864
#define STREAMED ((size_t)96 << 20)

static const enum lam_dtype types[] = {LAM_Q4_0, LAM_Q4_1, LAM_Q5_0, LAM_Q5_1, LAM_Q8_0, LAM_Q4_64, LAM_Q2_K,
                                       LAM_Q3_K, LAM_Q4_K, LAM_Q5_K, LAM_Q6_K, LAM_BF16, LAM_F16,   LAM_F32};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A matrix of n_tiles tiles and activations of n_rows rows, quantised and not. */
struct load {
    enum lam_dtype dtype;
    size_t cols, stride, n_tiles;
    uint8_t *tiles;
    struct lam_q8_rows x8;
    float *x, *y;
};

static void *need(size_t bytes)
{
    void *p = lam_alloc_aligned(bytes);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

/* Weights of about 1: any bytes but for float types; a block's scales come out small. */
static void fill(enum lam_dtype dtype, uint8_t *bytes, size_t n)
{
    size_t size = dtype == LAM_F32 ? 4 : 2;
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 27);
    if (lam_dtype_is_quantised(dtype)) return;
    for (size_t i = size - 1; i < n; i += size) bytes[i] = 0x3c | (bytes[i] & 1);
}

static struct load make_load(enum lam_dtype dtype, size_t bytes, size_t n_rows)
{
    struct load load = {.dtype = dtype, .cols = lam_dtype_info(dtype)->block_elements == 256 ? 1024 : COLS};
    if (!lam_tile_stride(dtype, load.cols, &load.stride)) exit(1);
    load.n_tiles = bytes ? bytes / load.stride : ROWS / LAM_TILE_ROWS;
    load.tiles = need(load.n_tiles * load.stride);
    fill(dtype, load.tiles, load.n_tiles * load.stride);
    size_t groups = load.cols / 32;
    load.x8 = (struct lam_q8_rows){need(n_rows * load.cols), need(n_rows * groups * 4), need(n_rows * groups * 8), n_rows, groups};
    load.x = need(n_rows * load.cols * sizeof(float));
    load.y = need(n_rows * LAM_TILE_ROWS * sizeof(float));
    for (size_t i = 0; i < n_rows * load.cols; i++) load.x[i] = (float)((int)(i * 2654435761u >> 24 & 255) - 128);
    for (size_t r = 0; r < n_rows; r++)
        lam_variants[0].kernels->quantise8(load.x + r * load.cols, load.cols, load.x8.q + r * load.cols,
                                           load.x8.scale + r * groups, load.x8.half + r * groups * 2);
    return load;
}

static void free_load(struct load *load)
{
    lam_free_aligned(load->tiles);
    lam_free_aligned(load->x8.q);
    lam_free_aligned(load->x8.scale);
    lam_free_aligned(load->x8.half);
    lam_free_aligned(load->x);
    lam_free_aligned(load->y);
}

static void multiply(const struct lam_kernels *k, const struct load *load)
{
    bool quantised = lam_dtype_is_quantised(load->dtype);
    for (size_t t = 0; t < load->n_tiles; t++) {
        const uint8_t *tile = load->tiles + t * load->stride;
        if (quantised)
            k->gemm_quant(load->dtype, tile, &load->x8, load->y, LAM_TILE_ROWS);
        else
            k->gemm_float(load->dtype, tile, load->cols, load->x, load->cols, load->x8.n_rows, load->y, LAM_TILE_ROWS);
    }
}

/* Seconds of the fastest of several passes, at least 0.4 s of them in all. */
static double best_pass(const struct lam_kernels *k, const struct load *load)
{
    double best = 1e9, until = now() + 0.4;
    for (int i = 0; i < 3 || now() < until; i++) {
        double start = now();
        multiply(k, load);
        double took = now() - start;
        if (took < best) best = took;
    }
    return best;
}

static double decode_rate(const struct lam_kernels *k, enum lam_dtype dtype, size_t bytes)
{
    struct load load = make_load(dtype, bytes, 1);
    double rate = (double)(load.n_tiles * load.stride) / best_pass(k, &load) / 1e9;
    free_load(&load);
    return rate;
}

static double rows_rate(const struct lam_kernels *k, enum lam_dtype dtype, size_t n_rows)
{
    struct load load = make_load(dtype, 0, n_rows);
    double macs = (double)(load.n_tiles * LAM_TILE_ROWS * load.cols * n_rows);
    double rate = macs / best_pass(k, &load) / 1e9;
    free_load(&load);
    return rate;
}

int main(int argc, char **argv)
{
    printf("%-9s %-5s %12s %14s %12s %12s %12s\n", "variant", "type", "cached GB/s", "streamed GB/s", "8 rows", "16 rows", "64 GMAC/s");
    for (size_t v = 0; v < lam_n_variants; v++) {
        const struct lam_kernels *k = lam_variants[v].kernels;
        if (!lam_variants[v].supported() || (argc > 1 ? strcmp(argv[1], k->name) != 0 : v == 0)) continue;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            const char *name = lam_dtype_info(types[t])->name;
            if (argc > 2 && strcmp(argv[2], name) != 0) continue;
            printf("%-9s %-5s %12.1f %14.1f %12.1f %12.1f %12.1f\n", k->name, name, decode_rate(k, types[t], 0),
                   decode_rate(k, types[t], STREAMED), rows_rate(k, types[t], 8), rows_rate(k, types[t], 16),
                   rows_rate(k, types[t], 64));
        }
    }
    return 0;
}
