/* The configuration's limits and its canonical JSON form. */
#include "model/config.h"
#include "model/arch.h"

#include <float.h>
#include <math.h>
#include <string.h>

static lam_code in_range(const char *field, uint32_t value, uint32_t low, uint32_t high, lam_error *err)
{
    if (value >= low && value <= high) return LAM_OK;
    return LAM_RAISE(err, value < low ? LAM_E_FORMAT : LAM_E_LIMIT, "%s is %u: %u to %u are possible", field, value, low, high);
}

static lam_code finite(const char *field, double value, lam_error *err)
{
    if (fabs(value) <= FLT_MAX) return LAM_OK;
    return LAM_RAISE(err, LAM_E_FORMAT, "%s is %g, not a finite float32", field, value);
}

static lam_code check_rope(const char *field, const struct lam_rope *r, lam_error *err)
{
    bool stretched = r->scaling == LAM_ROPE_LLAMA3 || r->scaling == LAM_ROPE_YARN;
    if (!(r->theta >= 1.0) || !isfinite(r->theta)) return LAM_RAISE(err, LAM_E_FORMAT, "%s: base %g", field, r->theta);
    if (r->scaling != LAM_ROPE_PLAIN && !(r->factor > 0.0 && isfinite(r->factor)))
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: scaling factor %g", field, r->factor);
    if (stretched && !(r->original_context >= 1.0 && isfinite(r->original_context)))
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: original context %g", field, r->original_context);
    if (r->scaling == LAM_ROPE_LLAMA3 &&
        !(r->high_freq_factor > r->low_freq_factor && r->low_freq_factor > 0.0 && isfinite(r->high_freq_factor)))
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: frequency factors %g and %g", field, r->low_freq_factor, r->high_freq_factor);
    if (r->scaling == LAM_ROPE_YARN && !(r->theta > 1.0 && r->beta_fast > 0.0 && r->beta_slow > 0.0 && isfinite(r->beta_fast) &&
                                         isfinite(r->beta_slow)))
        return LAM_RAISE(err, LAM_E_FORMAT, "%s: base %g, beta %g and %g", field, r->theta, r->beta_fast, r->beta_slow);
    return finite(field, r->attention_factor, err);
}

/* Which numbers a float may be: those that keep a sane model's activations finite. */
static lam_code check_floats(const struct lam_config *c, lam_error *err)
{
    LAM_TRY(finite("norm epsilon", (double)c->norm_eps, err));
    LAM_TRY(finite("norm offset", (double)c->norm_offset, err));
    LAM_TRY(finite("attention scale", (double)c->attention_scale, err));
    LAM_TRY(finite("attention soft-cap", (double)c->attention_softcap, err));
    LAM_TRY(finite("logit soft-cap", (double)c->logit_softcap, err));
    LAM_TRY(finite("embedding scale", (double)c->embedding_scale, err));
    if (c->norm_eps < 0.0f) return LAM_RAISE(err, LAM_E_FORMAT, "norm epsilon %g", (double)c->norm_eps);
    if (c->attention_softcap < 0.0f || c->logit_softcap < 0.0f)
        return LAM_RAISE(err, LAM_E_FORMAT, "soft-caps %g and %g", (double)c->attention_softcap, (double)c->logit_softcap);
    return LAM_OK;
}

lam_code lam_config_check(const struct lam_config *c, lam_error *err)
{
    LAM_TRY(in_range("layers", c->n_layers, 1, LAM_MAX_LAYERS, err));
    LAM_TRY(in_range("model dimension", c->d_model, 1, 1u << 16, err));
    LAM_TRY(in_range("feed-forward dimension", c->d_ff, 1, 1u << 18, err));
    LAM_TRY(in_range("heads", c->n_heads, 1, 1024, err));
    LAM_TRY(in_range("KV heads", c->n_kv_heads, 1, c->n_heads, err));
    LAM_TRY(in_range("head dimension", c->head_dim, 2, 512, err));
    LAM_TRY(in_range("vocabulary", c->n_vocab, 1, 1u << 22, err));
    LAM_TRY(in_range("context", c->n_context, 1, 1u << 27, err));
    LAM_TRY(in_range("window", c->window, 0, INT32_MAX, err));
    if (c->head_dim % 2) return LAM_RAISE(err, LAM_E_FORMAT, "head dimension %u is odd", c->head_dim);
    if (c->n_heads % c->n_kv_heads)
        return LAM_RAISE(err, LAM_E_FORMAT, "%u heads cannot share %u KV heads", c->n_heads, c->n_kv_heads);
    for (uint32_t i = 0; i < c->n_layers; i++)
        if (c->local[i] && c->window == 0) return LAM_RAISE(err, LAM_E_FORMAT, "layer %u has a sliding window of 0 positions", i);
    LAM_TRY(check_floats(c, err));
    LAM_TRY(check_rope("rotary embedding", &c->rope, err));
    return check_rope("rotary embedding of local layers", &c->rope_local, err);
}

static const char *const scaling_names[] = {"plain", "linear", "llama3", "yarn"};
static const char *const activation_names[] = {"silu", "gelu_tanh"};

static json_t *rope_to_json(const struct lam_rope *r)
{
    return json_pack("{s:f,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "theta", r->theta, "scaling", scaling_names[r->scaling],
                     "factor", r->factor, "original_context", r->original_context, "low_freq_factor", r->low_freq_factor,
                     "high_freq_factor", r->high_freq_factor, "beta_fast", r->beta_fast, "beta_slow", r->beta_slow,
                     "attention_factor", r->attention_factor);
}

json_t *lam_config_to_json(const struct lam_config *c)
{
    json_t *local = json_array();
    for (uint32_t i = 0; local && i < c->n_layers; i++)
        if (c->local[i] && json_array_append_new(local, json_integer(i)) != 0) {
            json_decref(local);
            return NULL;
        }
    return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:o,s:o,s:b,s:i,s:o,s:f,s:f,s:f,s:f,s:s,s:b}",
                     "architecture", c->arch->name, "layers", (int)c->n_layers, "d_model", (int)c->d_model,
                     "heads", (int)c->n_heads, "kv_heads", (int)c->n_kv_heads, "head_dim", (int)c->head_dim,
                     "d_ff", (int)c->d_ff, "vocabulary", (int)c->n_vocab, "context", (int)c->n_context,
                     "norm_eps", (double)c->norm_eps, "norm_offset", (double)c->norm_offset,
                     "rope", rope_to_json(&c->rope), "rope_local", rope_to_json(&c->rope_local),
                     "rope_interleaved", c->rope_interleaved, "window", (int)c->window, "local_layers", local,
                     "attention_scale", (double)c->attention_scale, "attention_softcap", (double)c->attention_softcap,
                     "logit_softcap", (double)c->logit_softcap, "embedding_scale", (double)c->embedding_scale,
                     "activation", activation_names[c->activation], "tied", c->tied);
}

static int index_of(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (name && strcmp(name, names[i]) == 0) return i;
    return -1;
}

static lam_code rope_from_json(const json_t *o, const char *name, struct lam_rope *r, lam_error *err)
{
    const char *scaling = NULL;
    json_error_t problem;
    /* F accepts integers too: canonical JSON writes 10000.0 as 10000. */
    if (json_unpack_ex((json_t *)o, &problem, 0, "{s:F,s:s,s:F,s:F,s:F,s:F,s:F,s:F,s:F}", "theta", &r->theta, "scaling", &scaling,
                       "factor", &r->factor, "original_context", &r->original_context, "low_freq_factor", &r->low_freq_factor,
                       "high_freq_factor", &r->high_freq_factor, "beta_fast", &r->beta_fast, "beta_slow", &r->beta_slow,
                       "attention_factor", &r->attention_factor) != 0)
        return lam_json_refuse(&problem, name, err);
    if (json_object_size(o) != 9) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "%s has %zu fields, 9 are known", name, json_object_size(o));
    int kind = index_of(scaling, scaling_names, 4);
    if (kind < 0) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "%s scaling %s", name, scaling);
    r->scaling = (enum lam_rope_scaling)kind;
    return LAM_OK;
}

static lam_code local_from_json(const json_t *layers, struct lam_config *c, lam_error *err)
{
    if (!json_is_array(layers)) return LAM_RAISE(err, LAM_E_FORMAT, "configuration: local_layers is not a list");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        if (!json_is_integer(layer) || json_integer_value(layer) < 0 || json_integer_value(layer) >= LAM_MAX_LAYERS)
            return LAM_RAISE(err, LAM_E_FORMAT, "configuration: local_layers[%zu]", i);
        c->local[json_integer_value(layer)] = true;
    }
    return LAM_OK;
}

/* One configuration has one text, since base_digest is taken over it: no integer beyond its type, no float that float32 rounds, no
 * layer twice. */
static lam_code check_text(const json_t *o, const struct lam_config *c, lam_error *err)
{
    json_t *again = lam_config_to_json(c);
    struct lam_str given = {0}, own = {0};
    lam_code code = again ? lam_json_canonical(o, &given, err) : LAM_RAISE(err, LAM_E_NO_MEMORY, "configuration");
    if (code == LAM_OK) code = lam_json_canonical(again, &own, err);
    if (code == LAM_OK && (given.len != own.len || memcmp(given.data, own.data, own.len) != 0))
        code = LAM_RAISE(err, LAM_E_FORMAT, "configuration: a number that is not in the form that this program writes");
    json_decref(again);
    lam_str_release(&given);
    lam_str_release(&own);
    return code;
}

lam_code lam_config_from_json(const json_t *o, struct lam_config *out, lam_error *err)
{
    struct lam_config c = {0};
    const char *arch = NULL, *activation = NULL;
    json_t *rope = NULL, *rope_local = NULL, *local = NULL;
    int layers, d_model, heads, kv_heads, head_dim, d_ff, vocabulary, context, window, interleaved, tied;
    double eps, offset, scale, softcap, logit_softcap, embedding_scale;
    json_error_t problem;
    if (json_unpack_ex((json_t *)o, &problem, 0,
                       "{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:F,s:F,s:o,s:o,s:b,s:i,s:o,s:F,s:F,s:F,s:F,s:s,s:b}",
                       "architecture", &arch, "layers", &layers, "d_model", &d_model, "heads", &heads, "kv_heads", &kv_heads,
                       "head_dim", &head_dim, "d_ff", &d_ff, "vocabulary", &vocabulary, "context", &context,
                       "norm_eps", &eps, "norm_offset", &offset, "rope", &rope, "rope_local", &rope_local,
                       "rope_interleaved", &interleaved, "window", &window, "local_layers", &local,
                       "attention_scale", &scale, "attention_softcap", &softcap, "logit_softcap", &logit_softcap,
                       "embedding_scale", &embedding_scale, "activation", &activation, "tied", &tied) != 0)
        return lam_json_refuse(&problem, "configuration", err);
    if (json_object_size(o) != 22)
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "configuration has %zu fields, 22 are known", json_object_size(o));
    c.arch = lam_arch_by_name(arch, strlen(arch));
    if (!c.arch) return LAM_RAISE(err, LAM_E_ARCHITECTURE, "architecture %s is not one that we run (%s)", arch, lam_arch_names());
    int act = index_of(activation, activation_names, 2);
    if (act < 0) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "configuration: activation %s", activation);
    c.activation = (enum lam_activation)act;
    c.n_layers = (uint32_t)layers;
    c.d_model = (uint32_t)d_model;
    c.n_heads = (uint32_t)heads;
    c.n_kv_heads = (uint32_t)kv_heads;
    c.head_dim = (uint32_t)head_dim;
    c.d_ff = (uint32_t)d_ff;
    c.n_vocab = (uint32_t)vocabulary;
    c.n_context = (uint32_t)context;
    c.window = (uint32_t)window;
    c.norm_eps = (float)eps;
    c.norm_offset = (float)offset;
    c.attention_scale = (float)scale;
    c.attention_softcap = (float)softcap;
    c.logit_softcap = (float)logit_softcap;
    c.embedding_scale = (float)embedding_scale;
    c.rope_interleaved = interleaved;
    c.tied = tied;
    LAM_TRY(rope_from_json(rope, "configuration: rope", &c.rope, err));
    LAM_TRY(rope_from_json(rope_local, "configuration: rope_local", &c.rope_local, err));
    LAM_TRY(local_from_json(local, &c, err));
    LAM_TRY(lam_config_check(&c, err));
    LAM_TRY(check_text(o, &c, err));
    *out = c;
    return LAM_OK;
}
