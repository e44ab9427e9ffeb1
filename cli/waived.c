#include "waived.h"

json_t *waived_names(const struct opened *all)
{
    json_t *names = json_array();
    for (size_t i = 0; i < all->n_adapters; i++) {
        lam_adapter_info info;
        lam_adapter_describe(all->adapters[i].adapter, &info);
        if (!info.bound) json_array_append_new(names, json_string(all->adapters[i].name));
    }
    return names;
}

void print_waived(FILE *to, const struct opened *all)
{
    json_t *names = waived_names(all), *name;
    size_t i;
    json_array_foreach(names, i, name) fprintf(to, "waived: %s is not bound to this base\n", json_string_value(name));
    json_decref(names);
}
