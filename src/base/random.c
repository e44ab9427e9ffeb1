#include "base/random.h"

void lam_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t k[2] = {key[0], key[1]};
    for (int i = 0; i < 4; i++) out[i] = counter[i];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53 * out[0], p1 = (uint64_t)0xCD9E8D57 * out[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ out[1] ^ k[0], (uint32_t)p1, (uint32_t)(p0 >> 32) ^ out[3] ^ k[1], (uint32_t)p0};
        for (int i = 0; i < 4; i++) out[i] = next[i];
        k[0] += 0x9E3779B9;
        k[1] += 0xBB67AE85;
    }
}

double lam_uniform(uint64_t seed, uint64_t counter)
{
    const uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}, k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    lam_philox(c, k, out);
    return (double)(((uint64_t)out[0] << 32 | out[1]) >> 11) * 0x1p-53;
}
