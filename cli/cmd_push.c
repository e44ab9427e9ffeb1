/* lamina push: something of the store to a registry. */
#include "commands.h"
#include "transfer.h"

int cmd_push(struct options *o)
{
    struct transfer t;
    lam_transfer_report pushed;
    lam_store *store = NULL;
    lam_error err;
    if (o->n_rest != 2) return usage(o, "push takes a REFERENCE and a REGISTRY's reference");
    lam_code code = transfer_begin(&t, o, &err);
    if (code == LAM_OK) code = open_store(o, false, &store, &err);
    if (code == LAM_OK) code = lam_push(store, o->rest[0], o->rest[1], &t.options, &pushed, &err);
    json_t *out = code == LAM_OK && o->json ? transfer_json(&t, &pushed) : NULL;
    transfer_end(&t);
    lam_store_close(store);
    if (code != LAM_OK) return report(o, &err);
    if (o->json) return print_json(o, out);
    if (o->quiet) return 0;
    printf("%s: %s, %.2f MB, %.2f MB of it sent; %zu of %zu blobs were there\n", pushed.name, lam_store_kind_name(pushed.kind),
           (double)pushed.bytes / 1e6, (double)pushed.moved / 1e6, pushed.n_had, pushed.n_blobs);
    printf("digest     %s\n", pushed.digest);
    return 0;
}
