// Made of include/lamina/*.h by tools/web_types.py: do not edit.

/** Every code of include/lamina/error.h by name. */
export const codes = {
    /** done, all of it */
    LAM_OK: 0,
    /** a parameter or option is not acceptable */
    LAM_E_ARGUMENT: 1,
    /** an allocation failed */
    LAM_E_NO_MEMORY: 2,
    /** the operating system refused a read, write, map or rename */
    LAM_E_IO: 3,
    /** no such file, adapter or name */
    LAM_E_NOT_FOUND: 4,
    /** the disk lacks the bytes that the work needs */
    LAM_E_NO_SPACE: 5,
    /** a stated bound would be passed (size, count, context, cache) */
    LAM_E_LIMIT: 6,
    /** the caller's callback asked to stop */
    LAM_E_CANCELLED: 7,
    /** the forced instruction set is unknown or not on this CPU */
    LAM_E_ISA: 8,
    /** the thing is in use, or two requests exclude each other */
    LAM_E_CONFLICT: 9,
    /** the plan needs more memory than it may have */
    LAM_E_BUDGET: 10,
    /** not a file of this kind */
    LAM_E_MAGIC: 20,
    /** right kind, a version we do not read */
    LAM_E_VERSION: 21,
    /** written for the other byte order */
    LAM_E_BYTE_ORDER: 22,
    /** ends before a thing that it declares */
    LAM_E_TRUNCATED: 23,
    /** a declared size does not fit the arithmetic or the file */
    LAM_E_OVERFLOW: 24,
    /** two sections or tensors share bytes */
    LAM_E_OVERLAP: 25,
    /** bytes that belong to nothing */
    LAM_E_GAP: 26,
    /** a name, key or module occurs twice */
    LAM_E_DUPLICATE: 27,
    /** malformed in another way */
    LAM_E_FORMAT: 28,
    /** header checksum differs */
    LAM_E_CHECKSUM: 29,
    /** piece or root hash differs */
    LAM_E_DIGEST: 30,
    /** an obsolete format, named in the message */
    LAM_E_LEGACY: 31,
    /** a field that may change results and that we do not know */
    LAM_E_UNKNOWN_FIELD: 32,
    /** the file was truncated, replaced or written since it was opened */
    LAM_E_CHANGED: 33,
    /** an offset or alignment that the format forbids */
    LAM_E_ALIGNMENT: 34,
    /** a private key where a public one belongs */
    LAM_E_PRIVATE_KEY: 35,
    /** a public key for which anybody can sign */
    LAM_E_WEAK_KEY: 36,
    /** a model architecture that we do not run */
    LAM_E_ARCHITECTURE: 40,
    /** a feature that we do not implement, named */
    LAM_E_UNSUPPORTED: 41,
    /** a tensor that the architecture needs is not in the file */
    LAM_E_MISSING_TENSOR: 42,
    /** a tensor that the architecture has no use for */
    LAM_E_EXTRA_TENSOR: 43,
    /** a tensor's dimensions are not those that its place needs */
    LAM_E_SHAPE: 44,
    /** an element or block type that we do not read, or not in this place */
    LAM_E_DTYPE: 45,
    /** NaN or infinity in a weight or scale */
    LAM_E_NON_FINITE: 46,
    /** an activation left the finite range: the request ends */
    LAM_E_ACTIVATION: 47,
    /** adapter method (or a variant of it) not supported, named */
    LAM_E_METHOD: 60,
    /** bound to another base */
    LAM_E_WRONG_BASE: 61,
    /** bound to no base, and no waiver was given */
    LAM_E_UNBOUND: 62,
    /** tensors or modules that the base does not have */
    LAM_E_UNMATCHED: 63,
    /** A without B, or B without A */
    LAM_E_MISSING_PAIR: 64,
    /** A, both factors, a vector or a matrix lie the other way round */
    LAM_E_TRANSPOSED: 65,
    /** a square factor pair whose orientation nothing tells */
    LAM_E_AMBIGUOUS: 66,
    /** rank 0, or ranks that disagree */
    LAM_E_RANK: 67,
    /** the adapter brings tokens or a tokenizer of its own */
    LAM_E_TOKENIZER: 68,
    /** names that must rise and do not */
    LAM_E_ORDER: 70,
    /** a signature is not its key's */
    LAM_E_SIGNATURE: 71,
    /** made for, or about, another composition */
    LAM_E_WRONG_COMPOSITION: 72,
    /** another base than the manifest's: its weights differ */
    LAM_E_BASE_WEIGHTS: 73,
    /** … names, types, shapes or layout of its tensors */
    LAM_E_BASE_LAYOUT: 74,
    /** … what of its configuration enters the computation */
    LAM_E_BASE_CONFIG: 75,
    /** … which matrix a module's name means */
    LAM_E_BASE_TARGETS: 76,
    /** another adapter than the manifest's: modules, ranks, alphas or scaling rules differ */
    LAM_E_ADAPTER_MODULES: 77,
    /** … its tensors */
    LAM_E_ADAPTER_FACTORS: 78,
    /** … which rows it acts on */
    LAM_E_ADAPTER_ACTIVATION: 79,
    /** a text that must be UTF-8 is not */
    LAM_E_UTF8: 80,
    /** a token id outside the vocabulary */
    LAM_E_TOKEN: 81,
    /** chat template missing, unknown or failing */
    LAM_E_TEMPLATE: 82,
    /** a pre-tokenizer that we do not know */
    LAM_E_PRETOKENIZER: 83,
    /** of a pair of factors B alone lies the other way round */
    LAM_E_TRANSPOSED_B: 90,
    /** another adapter than the manifest's: its alphas differ, and so its scale */
    LAM_E_ADAPTER_ALPHA: 91,
    /** an activated adapter cannot be merged: it acts on some rows only */
    LAM_E_MERGE_ACTIVATED: 92,
    /** the context is full */
    LAM_E_CONTEXT: 100,
    /** an activated adapter's invocation is not in the history (lam_session_allow_base) */
    LAM_E_INVOCATION: 101,
    /** the history ends within it */
    LAM_E_INVOCATION_CUT: 102,
    /** a saved session belongs to another composition */
    LAM_E_IDENTITY: 103,
    /** it was computed with the base in an adapter's place, which was not asked for */
    LAM_E_BASE_FALLBACK: 104,
    /** rows without tokens: nothing about them can be derived */
    LAM_E_NO_TOKENS: 105,
    /** more than one continuation at a time was asked for (beam search) */
    LAM_E_BEAMS: 106,
    /** cached rows differ in their tokens */
    LAM_E_KV_TOKENS: 120,
    /** cached rows differ in their positions */
    LAM_E_KV_POSITIONS: 121,
    /** cached rows differ in their base */
    LAM_E_KV_BASE: 122,
    /** other operators acted on cached rows */
    LAM_E_KV_EXECUTION: 123,
    /** an adapter of the same name has other bytes */
    LAM_E_KV_REVISION: 124,
    /** cached rows: another revision of the same dependency graph */
    LAM_E_KV_GRAPH: 125,
    /** cached rows: their closure lacks something that they depend on */
    LAM_E_KV_CLOSURE_NARROW: 126,
    /** cached rows: their closure has something that they do not depend on */
    LAM_E_KV_CLOSURE_WIDE: 127,
    /** cached rows: another number of layers */
    LAM_E_KV_DEPTH: 128,
    /** cached rows differ in the layout or arithmetic of their rows */
    LAM_E_KV_SCHEMA: 129,
    /** cached rows differ in their element type */
    LAM_E_KV_DTYPE: 130,
    /** cached rows differ in how their elements are quantised */
    LAM_E_KV_QUANTISATION: 131,
    /** cached rows differ in which part of a model they are of */
    LAM_E_KV_SHARD: 132,
    /** cached rows differ in their rotation */
    LAM_E_KV_ROPE: 133,
    /** cached rows differ in what they could see, or their window */
    LAM_E_KV_VISIBILITY: 134,
    /** cached rows differ in inputs beside tokens */
    LAM_E_KV_SIDE_INPUTS: 135,
    /** cached rows: they belong to another tenant */
    LAM_E_KV_NAMESPACE: 136,
    /** cached rows: they claim positions that their keys do not cover */
    LAM_E_KV_COVERAGE: 137,
    /** cached rows: some layers are lacking */
    LAM_E_KV_LAYERS: 138,
    /** cached rows: they may still be written */
    LAM_E_KV_FROZEN: 139,
    /** cached rows: their key does not say what acted on them */
    LAM_E_KV_KEY_EXECUTION: 140,
    /** cached rows: their key does not say whose they are */
    LAM_E_KV_KEY_NAMESPACE: 141,
    /** cached rows: their key names a place or an owner, which is no meaning */
    LAM_E_KV_KEY_PLACE: 142,
    /** cached rows: logits whose key does not cover what they depend on */
    LAM_E_KV_LOGITS: 143,
    /** cached rows: looked up before it was said for whom */
    LAM_E_KV_UNAUTHORISED: 144,
    /** cached rows: forked without being held */
    LAM_E_KV_RECEIPT: 145,
    /** cached rows: published under other operators than acted on them */
    LAM_E_KV_RELABELLED: 146,
    /** cached rows: published as the base's, though an adapter acted on them */
    LAM_E_KV_TAINT: 147,
    /** cached rows: the rows before them are gone or changed */
    LAM_E_KV_PARENT: 148,
    /** cached rows: published with some layers only */
    LAM_E_KV_SUFFIX: 149,
    /** cached rows: blocks that are connected otherwise */
    LAM_E_KV_GRAPH_LAYOUT: 150,
    /** cached rows: their file lacks something of the session that owns them */
    LAM_E_KV_OWNER: 151,
    /** cached rows: other weights made what enters a layer: K and V are not what comes out here */
    LAM_E_KV_HIDDEN: 152,
    /** cached rows: other weights made a layer's K or V, of the same that enters it */
    LAM_E_KV_PROJECTION: 153,
    /** cached rows: other weights made the logits, of the same K and V */
    LAM_E_KV_HEAD: 154,
    /** every slot holds a generation that is still leased */
    LAM_E_GEN_SLOTS: 160,
    /** nothing is published */
    LAM_E_GEN_NONE: 161,
    /** a count of leases is at its limit */
    LAM_E_GEN_COUNTS: 162,
    /** another generation is current than was expected: somebody published meanwhile */
    LAM_E_GEN_STALE: 163,
    /** the catalogue would go back: to undo is to publish another generation */
    LAM_E_GEN_REWIND: 164,
    /** the catalogue's generation would not rise by one */
    LAM_E_GEN_CATALOGUE: 165,
    /** the catalogue has drifted: another slot than the current one */
    LAM_E_GEN_CATALOGUE_SLOT: 166,
    /** … another slot generation than its slot has */
    LAM_E_GEN_CATALOGUE_GENERATION: 167,
    /** … another pointer generation */
    LAM_E_GEN_CATALOGUE_POINTER: 168,
    /** … another digest */
    LAM_E_GEN_CATALOGUE_DIGEST: 169,
    /** a lease of a slot that holds nothing */
    LAM_E_GEN_LEASE_SLOT: 170,
    /** a lease of an earlier or later generation of its slot */
    LAM_E_GEN_LEASE_GENERATION: 171,
    /** a lease with another pointer generation than its slot's */
    LAM_E_GEN_LEASE_POINTER: 172,
    /** a lease of another digest than its slot's */
    LAM_E_GEN_LEASE_DIGEST: 173,
    /** a lease that nobody counted, or that was given back */
    LAM_E_GEN_LEASE_UNCOUNTED: 174,
    /** staged into the current slot */
    LAM_E_GEN_SHADOW_LIVE: 175,
    /** staged into a slot that was not free */
    LAM_E_GEN_SHADOW_USED: 176,
    /** reserving did not advance the slot's generation */
    LAM_E_GEN_SHADOW_GENERATION: 177,
    /** publishing would not advance the pointer generation */
    LAM_E_GEN_SHADOW_POINTER: 178,
    /** what is staged could be reached before it is published */
    LAM_E_GEN_SHADOW_EXPOSED: 179,
    /** the current digest for other bytes */
    LAM_E_GEN_ALIAS: 180,
    /** one change, published twice */
    LAM_E_GEN_PUBLISHED: 181,
    /** a copy has not ended */
    LAM_E_GEN_PENDING: 182,
    /** staged bytes, of no factor A or B, are not those that were staged */
    LAM_E_GEN_STAGED_DIGEST: 183,
    /** … those of a factor A */
    LAM_E_GEN_STAGED_A: 184,
    /** … those of a factor B */
    LAM_E_GEN_STAGED_B: 185,
    /** … a module acts on another matrix than it did */
    LAM_E_GEN_STAGED_TARGETS: 186,
    /** … a scale has changed */
    LAM_E_GEN_STAGED_SCALE: 187,
    /** … a factor is not laid out as the kernels read it */
    LAM_E_GEN_STAGED_LAYOUT: 188,
    /** … a rank is less than the rows that are stored for it */
    LAM_E_GEN_STAGED_RANK: 189,
    /** … a rank is more than the rows that are stored for it */
    LAM_E_GEN_STAGED_RANK_ABOVE: 190,
    /** … a factor has another extent than its rank and matrix give it */
    LAM_E_GEN_STAGED_EXTENT: 191,
    /** … a scale of padding is not zero */
    LAM_E_GEN_STAGED_TAIL: 192,
    /** … padding of a factor A is not zero */
    LAM_E_GEN_STAGED_TAIL_A: 193,
    /** … padding of a factor B is not zero */
    LAM_E_GEN_STAGED_TAIL_B: 194,
    /** … a value is not finite */
    LAM_E_GEN_STAGED_FINITE: 195,
    /** … a tensor that a module needs is not there */
    LAM_E_GEN_STAGED_MISSING: 196,
    /** … some modules only */
    LAM_E_GEN_STAGED_MODULES: 197,
    /** no way back: a factor A of what was active before has changed */
    LAM_E_GEN_PREVIOUS_A: 198,
    /** … a factor B */
    LAM_E_GEN_PREVIOUS_B: 199,
    /** … a scale */
    LAM_E_GEN_PREVIOUS_SCALE: 200,
    /** staged before the artefact was checked */
    LAM_E_GEN_STEP_ARTEFACT: 201,
    /** copied before the memory was cleared */
    LAM_E_GEN_STEP_TAIL: 202,
    /** published or verified before all was copied */
    LAM_E_GEN_STEP_COPY: 203,
    /** published before what was staged was verified */
    LAM_E_GEN_STEP_VERIFY: 204,
    /** published without waiting for the copies */
    LAM_E_GEN_STEP_WAIT: 205,
    /** another step of a publication out of its turn */
    LAM_E_GEN_STEP_ORDER: 206,
    /** a slot cannot be free again: it is leased, or current */
    LAM_E_GEN_RECLAIM_LEASED: 207,
    /** … a pass over it is under way */
    LAM_E_GEN_RECLAIM_USED: 208,
    /** … its generation would not advance */
    LAM_E_GEN_RECLAIM_GENERATION: 209,
    /** … its pointer generation would not advance */
    LAM_E_GEN_RECLAIM_POINTER: 210,
    /** a page has another size than its rows */
    LAM_E_RES_GEOMETRY: 211,
    /** a page spans another number of layers than the model has */
    LAM_E_RES_LAYERS: 212,
    /** a page has rows of another width than the model */
    LAM_E_RES_WIDTH: 213,
    /** a page has elements of another size than the kernels read */
    LAM_E_RES_ELEMENT: 214,
    /** a pool has another size than its pages */
    LAM_E_RES_POOL: 215,
    /** a page is counted twice, or is none */
    LAM_E_RES_CONSERVATION: 216,
    /** another number of pages is listed than the pool has */
    LAM_E_RES_TOTAL: 217,
    /** a page without an owner, or with one that it should not have */
    LAM_E_RES_OWNER: 218,
    /** a page is reserved for nobody */
    LAM_E_RES_ORPHAN: 219,
    /** a page is of another class than its owner */
    LAM_E_RES_CLASS: 220,
    /** a page is of another generation than its owner */
    LAM_E_RES_GENERATION: 221,
    /** an owner's list lacks a page of its own */
    LAM_E_RES_PAGES: 222,
    /** … names a page that is free */
    LAM_E_RES_PAGES_FREE: 223,
    /** … names a page of another owner */
    LAM_E_RES_PAGES_OTHER: 224,
    /** a request's history was chosen to make room */
    LAM_E_RES_VICTIM_KV: 225,
    /** … an idle adapter that is held */
    LAM_E_RES_VICTIM_LEASED: 226,
    /** … one at work */
    LAM_E_RES_VICTIM_ACTIVE: 227,
    /** … a pinned one */
    LAM_E_RES_VICTIM_PINNED: 228,
    /** … one that waiting requests count on */
    LAM_E_RES_VICTIM_QUEUED: 229,
    /** … one that a pass is under way over */
    LAM_E_RES_VICTIM_USED: 230,
    /** … one that is neither published nor idle */
    LAM_E_RES_VICTIM_STATE: 231,
    /** … one that a live plan names */
    LAM_E_RES_VICTIM_PLANNED: 232,
    /** … one that could not be had back */
    LAM_E_RES_VICTIM_SOURCE: 233,
    /** … one twice */
    LAM_E_RES_VICTIM_TWICE: 234,
    /** the chosen ones and what is free give too few pages */
    LAM_E_RES_VICTIMS_FEW: 235,
    /** a rank above what a worker takes */
    LAM_E_RES_RANK: 236,
    /** an element type that a worker's kernels don't read */
    LAM_E_RES_DTYPE: 237,
    /** a layout that they don't read */
    LAM_E_RES_LAYOUT: 238,
    /** other targets than a worker's */
    LAM_E_RES_TARGETS: 239,
    /** no room was asked for what will be generated */
    LAM_E_RES_GROWTH: 240,
    /** too few pages, with the shortfall */
    LAM_E_RES_SHORT: 241,
    /** the pages that are asked for are not what the adapter takes */
    LAM_E_RES_DEMAND: 242,
    /** as many pages are asked for as the rank is: those of one factor, not of the adapter */
    LAM_E_RES_DEMAND_RANK: 243,
    /** what is asked for is not the sum of its parts */
    LAM_E_RES_DEMAND_SUM: 244,
    /** another number of pages is reserved than asked for */
    LAM_E_RES_RESERVED: 245,
    /** a page is reserved that is in use */
    LAM_E_RES_RESERVED_LIVE: 246,
    /** a reserved page is two owners', or none's */
    LAM_E_RES_SPLIT: 247,
    /** too few pages are reserved for keys and values */
    LAM_E_RES_KV: 248,
    /** a copy has not ended */
    LAM_E_RES_PENDING: 249,
    /** loaded bytes are not the artefact's */
    LAM_E_RES_STAGED_DIGEST: 250,
    /** loaded in another layout */
    LAM_E_RES_STAGED_LAYOUT: 251,
    /** a page table lacks pages, or has more */
    LAM_E_RES_PAGE_TABLE: 252,
    /** … names other pages than the adapter's */
    LAM_E_RES_PAGE_TABLE_OTHER: 253,
    /** pointers of another generation */
    LAM_E_RES_POINTER: 254,
    /** pinned for another attempt */
    LAM_E_RES_PIN: 255,
    /** published before the copies have ended */
    LAM_E_RES_STEP_WAIT: 256,
    /** published before what was loaded is validated */
    LAM_E_RES_STEP_VALIDATE: 257,
    /** victims forgotten before their successor is published */
    LAM_E_RES_STEP_FINAL: 258,
    /** another step of an admission out of its turn */
    LAM_E_RES_STEP_ORDER: 259,
    /** oci-layout is missing or of another version: no store, or no longer one */
    LAM_E_STORE_LAYOUT: 260,
    /** index.json cannot be read, or names things as no index may */
    LAM_E_STORE_INDEX: 261,
    /** active.json cannot be read, names no composition of the store, or is not as the last switch made it */
    LAM_E_STORE_ACTIVE: 262,
    /** a journal line does not follow from the one before it, or the audit knows of a later one */
    LAM_E_STORE_JOURNAL: 263,
    /** an audit line is not what the next one says that it was, or the journal knows of a later one */
    LAM_E_STORE_AUDIT: 264,
    /** a change was begun and neither done nor undone: its process died */
    LAM_E_STORE_UNFINISHED: 265,
    /** a manifest blob that is none, or of a kind that is not ours */
    LAM_E_STORE_ARTIFACT: 266,
    /** a name, or active.json, for a manifest that is not there */
    LAM_E_STORE_DANGLING: 267,
    /** a manifest in the store names a file, which may lie anywhere */
    LAM_E_STORE_PATH: 268,
    /** a blob that a manifest names is not there */
    LAM_E_STORE_BLOB_MISSING: 269,
    /** a blob has another length than its descriptor says */
    LAM_E_STORE_BLOB_SIZE: 270,
    /** a blob's bytes do not hash to its name */
    LAM_E_STORE_BLOB_BYTES: 271,
    /** a blob may be written to */
    LAM_E_STORE_BLOB_MODE: 272,
    /** a link, folder or device where a plain file belongs, or a link in the place of a folder */
    LAM_E_STORE_LINK: 273,
    /** a file that does not belong to a store */
    LAM_E_STORE_STRAY: 274,
    /** what a process that died has left half written */
    LAM_E_STORE_TEMPORARY: 275,
    /** no name that the store's index may have */
    LAM_E_STORE_NAME: 276,
    /** no connection, or one that broke too often */
    LAM_E_NETWORK: 280,
    /** the server's certificate is not one that is trusted, or TLS failed otherwise */
    LAM_E_TLS: 281,
    /** the server answered with an error */
    LAM_E_HTTP: 282,
    /** the server sent no range, or another one than was asked for */
    LAM_E_HTTP_RANGE: 283,
    /** a web page in place of a file */
    LAM_E_HTTP_PAGE: 284,
    /** bytes that the server compressed on their way */
    LAM_E_HTTP_ENCODING: 285,
    /** the file on the server became another while it was fetched */
    LAM_E_HTTP_CHANGED: 286,
    /** the server's file is shorter or longer than it must be */
    LAM_E_HTTP_LENGTH: 287,
    /** the server wants to know who asks, or refuses that user */
    LAM_E_LOGIN: 288,
    /** a registry's answer that its protocol does not have */
    LAM_E_REGISTRY: 289,
    /** another root than the one that was pinned, signed or seen before */
    LAM_E_ROOT: 290,
} as const;

export type Code = keyof typeof codes;

export const lam_verify = {
    LAM_VERIFY_LAZY: 0,
    LAM_VERIFY_FULL: 1,
    LAM_VERIFY_OFF: 2,
} as const;

export const lam_kv = {
    LAM_KV_DEFAULT: 0,
    LAM_KV_FLOAT16: 1,
    LAM_KV_FLOAT32: 2,
    LAM_KV_INT8: 3,
} as const;

export const lam_stack_rule = {
    LAM_STACK_ADD: 0,
    LAM_STACK_REPLACE: 1,
} as const;

export const lam_policy = {
    LAM_POLICY_DUAL: 0,
    LAM_POLICY_MATERIALIZE: 1,
} as const;

export const lam_source_kind = {
    LAM_SOURCE_SLM_BASE: 0,
    LAM_SOURCE_SLM_ADAPTER: 1,
    LAM_SOURCE_GGUF_MODEL: 2,
    LAM_SOURCE_GGUF_ADAPTER: 3,
    LAM_SOURCE_HF_MODEL: 4,
    LAM_SOURCE_PEFT_ADAPTER: 5,
} as const;

export const lam_draft = {
    LAM_DRAFT_NONE: 0,
    LAM_DRAFT_LOOKUP: 1,
    LAM_DRAFT_BASE: 2,
} as const;

/** Structs on wasm32: their size, and each field's offset and type. */
export const layouts = {
    lam_error: {
        size: 524,
        fields: {
            code: [0, 'i32'],
            message: [4, 'text512'],
            file: [516, 'u32'],
            line: [520, 'i32'],
        },
    },
    lam_engine_options: {
        size: 20,
        fields: {
            threads: [0, 'u32'],
            isa: [4, 'u32'],
            max_rows: [8, 'u32'],
            prefix_cache: [12, 'u32'],
            budget: [16, 'u32'],
        },
    },
    lam_memory: {
        size: 12,
        fields: {
            limit: [0, 'u32'],
            used: [4, 'u32'],
            peak: [8, 'u32'],
        },
    },
    lam_base_info: {
        size: 132,
        fields: {
            name: [0, 'u32'],
            architecture: [4, 'u32'],
            base_digest: [8, 'u32'],
            tokenizer_digest: [12, 'u32'],
            template_digest: [16, 'u32'],
            weights_root: [20, 'text72'],
            n_layers: [92, 'u32'],
            d_model: [96, 'u32'],
            n_heads: [100, 'u32'],
            n_kv_heads: [104, 'u32'],
            head_dim: [108, 'u32'],
            d_ff: [112, 'u32'],
            n_vocab: [116, 'u32'],
            n_context: [120, 'u32'],
            weight_bytes: [124, 'u32'],
            has_chat_template: [128, 'bool'],
        },
    },
    lam_adapter_info: {
        size: 36,
        fields: {
            name: [0, 'u32'],
            digest: [4, 'u32'],
            n_modules: [8, 'u32'],
            n_tensors: [12, 'u32'],
            n_no_effect: [16, 'u32'],
            staged_bytes: [20, 'u32'],
            bound: [24, 'bool'],
            invocation: [28, 'u32'],
            n_invocation: [32, 'u32'],
        },
    },
    lam_owner: {
        size: 8,
        fields: {
            module: [0, 'u32'],
            adapter: [4, 'u32'],
        },
    },
    lam_module_policy: {
        size: 8,
        fields: {
            module: [0, 'u32'],
            policy: [4, 'i32'],
        },
    },
    lam_compose_options: {
        size: 32,
        fields: {
            kv: [0, 'i32'],
            rules: [4, 'u32'],
            owners: [8, 'u32'],
            n_owners: [12, 'u32'],
            policy: [16, 'i32'],
            module_policies: [20, 'u32'],
            n_module_policies: [24, 'u32'],
            chat_template: [28, 'u32'],
        },
    },
    lam_message: {
        size: 8,
        fields: {
            role: [0, 'u32'],
            content: [4, 'u32'],
        },
    },
    lam_sampling: {
        size: 32,
        fields: {
            temperature: [0, 'f32'],
            top_k: [4, 'u32'],
            top_p: [8, 'f32'],
            min_p: [12, 'f32'],
            repeat_penalty: [16, 'f32'],
            repeat_window: [20, 'u32'],
            seed: [24, 'u64'],
        },
    },
    lam_import_options: {
        size: 24,
        fields: {
            progress: [0, 'u32'],
            progress_context: [4, 'u32'],
            max_bytes: [8, 'u64'],
            quantise: [16, 'u32'],
            accept_tokenizer: [20, 'bool'],
        },
    },
    lam_fault: {
        size: 12,
        fields: {
            code: [0, 'i32'],
            subject: [4, 'u32'],
            what: [8, 'u32'],
        },
    },
    lam_adapter_report: {
        size: 1120,
        fields: {
            n_tensors: [0, 'u32'],
            n_applied: [4, 'u32'],
            n_modules: [8, 'u32'],
            n_no_effect: [12, 'u32'],
            digest: [16, 'text72'],
            warnings: [88, 'text1024'],
            faults: [1112, 'u32'],
            n_faults: [1116, 'u32'],
        },
    },
    lam_prefix_figures: {
        size: 40,
        fields: {
            lookups: [0, 'u32'],
            hits: [4, 'u32'],
            tokens_asked: [8, 'u64'],
            tokens_found: [16, 'u64'],
            pages: [24, 'u32'],
            bytes: [28, 'u32'],
            budget: [32, 'u32'],
            evicted: [36, 'u32'],
        },
    },
    lam_restore_options: {
        size: 12,
        fields: {
            context: [0, 'u32'],
            allow_base: [4, 'bool'],
            salt: [8, 'u32'],
        },
    },
    lam_generate_options: {
        size: 12,
        fields: {
            draft: [0, 'i32'],
            n_draft: [4, 'u32'],
            n_beams: [8, 'u32'],
        },
    },
    lam_generate_report: {
        size: 16,
        fields: {
            n_tokens: [0, 'u32'],
            n_passes: [4, 'u32'],
            n_drafted: [8, 'u32'],
            n_accepted: [12, 'u32'],
        },
    },
    lam_plan_stack: {
        size: 20,
        fields: {
            adapters: [0, 'u32'],
            n: [4, 'u32'],
            policy: [8, 'i32'],
            module_policies: [12, 'u32'],
            n_module_policies: [16, 'u32'],
        },
    },
    lam_plan_options: {
        size: 56,
        fields: {
            context: [0, 'u32'],
            sessions: [4, 'u32'],
            all_logits: [8, 'bool'],
            threads: [12, 'u32'],
            max_rows: [16, 'u32'],
            prefix_cache: [20, 'u32'],
            drafts_draft: [24, 'i32'],
            drafts_n_draft: [28, 'u32'],
            drafts_n_beams: [32, 'u32'],
            kv: [36, 'i32'],
            from: [40, 'u32'],
            budget: [48, 'u64'],
        },
    },
    lam_plan_bytes: {
        size: 128,
        fields: {
            mapped: [0, 'u64'],
            process: [8, 'u64'],
            base: [16, 'u64'],
            adapters: [24, 'u64'],
            overlay: [32, 'u64'],
            kv: [40, 'u64'],
            session: [48, 'u64'],
            scratch: [56, 'u64'],
            prefix: [64, 'u64'],
            drafts: [72, 'u64'],
            from: [80, 'u64'],
            from_kv: [88, 'u64'],
            sampling: [96, 'u64'],
            staging: [104, 'u64'],
            peak: [112, 'u64'],
            context: [120, 'u32'],
            threads: [124, 'u32'],
        },
    },
} as const;
