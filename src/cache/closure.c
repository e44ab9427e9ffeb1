#include "cache/closure.h"

/* What a block computes of one row, in order; each is a function of those before it. */
enum value { IN, NORMED, Q, K, V, MIXED, ATTENDED, GATED, OUT, N_VALUES };

#define BIT(i) ((uint64_t)1 << (i))
#define FROM1(a) BIT(a)
#define FROM2(a, b) (BIT(a) | BIT(b))
#define FROM3(a, b, c) (BIT(a) | BIT(b) | BIT(c))

struct node {
    uint64_t values; /* that it is computed from */
    uint64_t roles;  /* of the tensors that take part */
};

static const struct node nodes[N_VALUES] = {
    [IN] = {0, 0}, /* the embedding, or OUT of the block before */
    [NORMED] = {FROM1(IN), BIT(LAM_ROLE_ATTN_NORM)},
    [Q] = {FROM1(NORMED), FROM3(LAM_ROLE_Q, LAM_ROLE_Q_BIAS, LAM_ROLE_Q_NORM)},
    [K] = {FROM1(NORMED), FROM3(LAM_ROLE_K, LAM_ROLE_K_BIAS, LAM_ROLE_K_NORM)},
    [V] = {FROM1(NORMED), FROM2(LAM_ROLE_V, LAM_ROLE_V_BIAS)},
    [MIXED] = {FROM3(Q, K, V), 0}, /* K and V of every visible row */
    [ATTENDED] = {FROM2(IN, MIXED), FROM3(LAM_ROLE_O, LAM_ROLE_O_BIAS, LAM_ROLE_POST_ATTN_NORM)},
    [GATED] = {FROM1(ATTENDED), FROM3(LAM_ROLE_FFN_NORM, LAM_ROLE_GATE, LAM_ROLE_GATE_BIAS) | FROM2(LAM_ROLE_UP, LAM_ROLE_UP_BIAS)},
    [OUT] = {FROM2(ATTENDED, GATED), FROM3(LAM_ROLE_DOWN, LAM_ROLE_DOWN_BIAS, LAM_ROLE_POST_FFN_NORM)},
};

/* The roles of a block that the wanted values depend on; *reaches_in: whether they depend on what enters the block. */
static uint64_t ancestors(uint64_t wanted, bool *reaches_in)
{
    uint64_t roles = 0;
    for (int i = N_VALUES - 1; i >= 0; i--) {
        if (!(wanted & BIT(i))) continue;
        wanted |= nodes[i].values;
        roles |= nodes[i].roles;
    }
    *reaches_in = wanted & BIT(IN);
    return roles;
}

static uint64_t roles_in(bool earlier)
{
    bool reaches_in;
    return ancestors(earlier ? BIT(OUT) : FROM2(K, V), &reaches_in);
}

bool lam_closure_reaches(enum lam_role role, uint32_t layer, uint32_t cached_layer)
{
    bool reaches_in;
    (void)ancestors(FROM2(K, V), &reaches_in);
    if (role == LAM_ROLE_EMBEDDING) return reaches_in;
    if (role < LAM_ROLE_ATTN_NORM) return role == LAM_ROLE_ROPE_FACTORS; /* the last norm and the head have no descendants here */
    if (layer > cached_layer) return false;
    return roles_in(layer < cached_layer) & BIT(role);
}

bool lam_closure_reaches_logits(enum lam_role role)
{
    bool reaches_in;
    if (role < LAM_ROLE_ATTN_NORM) return true;
    return ancestors(BIT(OUT), &reaches_in) & BIT(role);
}

void lam_closure_projections(bool earlier, const char *out[LAM_PROJECTIONS + 1])
{
    static const struct { const char *name; uint64_t roles; } list[LAM_PROJECTIONS] = {
        {"K", BIT(LAM_ROLE_K)}, {"MLP", FROM3(LAM_ROLE_GATE, LAM_ROLE_UP, LAM_ROLE_DOWN)}, {"O", BIT(LAM_ROLE_O)},
        {"Q", BIT(LAM_ROLE_Q)}, {"V", BIT(LAM_ROLE_V)},
    };
    size_t n = 0;
    for (size_t i = 0; i < LAM_PROJECTIONS; i++)
        if (roles_in(earlier) & list[i].roles) out[n++] = list[i].name;
    out[n] = NULL;
}
