// From a source to a file that the module can open: fetched, imported where it is of another format, kept for the next visit.
import type { Core } from './core.js';
import { download } from './download.js';
import { failureOf, LaminaError } from './errors.js';
import { BlobFile, type FileNode, type FileTable } from './files.js';
import { lam_source_kind, type Code } from './generated.js';
import { MemoryStorage, type Storage } from './storage.js';
import type { FolderSource, Progress, RemoteSource, Source } from './protocol.js';

/** What a call that loads something brings along. */
export interface Loading {
    signal: AbortSignal;
    /** True once the call was aborted, also while the module works. */
    stopped: () => boolean;
    progress: (progress: Progress) => void;
}

/** A file in the table, as the module sees it. */
export interface Mounted {
    path: string;
    /** Gives the file's handle back. */
    seal: () => void;
    unmount: () => void;
    /** Its bytes are not what they should be: the next load fetches or imports what is damaged. */
    doubt: () => Promise<void>;
}

/** For an adapter that must be imported: what it is bound to. */
export interface Binding {
    basePath: string;
    baseDigest: string;
    acceptTokenizer: boolean;
}

interface Part {
    name: string; // within its folder
    source: string | URL | Blob;
}

/** Failures of an import that say nothing against what was imported. */
const NOT_THE_FILES = new Set<Code>(['LAM_E_NO_MEMORY', 'LAM_E_NO_SPACE', 'LAM_E_CANCELLED', 'LAM_E_CONFLICT']);

const isBlob = (value: unknown): value is Blob => value instanceof Blob;
const lastOf = (url: string) => decodeURIComponent(new URL(url).pathname.split('/').pop() || 'model');

export class Library {
    #mounts = 0;

    /** pageUrl: what relative addresses are relative to. */
    constructor(readonly core: Core, readonly files: FileTable, readonly storage: Storage, readonly pageUrl: string, readonly mayUseMemory: boolean) {}

    async base(source: Source, loading: Loading): Promise<Mounted> {
        return this.#open(source, undefined, loading);
    }

    async adapter(source: Source, binding: Binding, loading: Loading): Promise<Mounted> {
        return this.#open(source, binding, loading);
    }

    async #open(source: Source, binding: Binding | undefined, loading: Loading): Promise<Mounted> {
        const { parts, root } = this.#parts(source), key = this.#keyOf(parts, binding);
        const whole = key && (await this.storage.find(`${key}.slm`));
        if (whole) return this.#mount(this.storage, `${key}.slm`, whole);
        const got: { part: Part; node: FileNode; stored?: string; in: Storage }[] = [];
        try {
            for (const part of parts) got.push({ part, ...(await this.#fetch(part, root, loading)) });
            const folder = `in/${++this.#mounts}`;
            for (const { part, node } of got) this.files.mount(`${folder}/${part.name}`, node);
            const path = parts.length === 1 && !('files' in Object(source)) ? `/${folder}/${parts[0]!.name}` : `/${folder}`;
            if (!this.#mustImport(path)) {
                const [{ stored, in: storage }] = got.splice(0) as [(typeof got)[0]]; // stays mounted
                return this.#mounted(path, storage, stored);
            }
            try {
                return await this.#import(path, key, this.#label(parts), binding, loading);
            } catch (problem) {
                if (NOT_THE_FILES.has(failureOf(problem).code)) for (const one of got) one.stored = undefined; // it may work another time
                throw problem;
            } finally {
                for (const { part } of got) this.files.unmount(`${folder}/${part.name}`);
            }
        } finally {
            for (const { node, stored, in: storage } of got) {
                node.close();
                if (stored) await storage.remove(stored); // imported: only the result is kept
            }
        }
    }

    #parts(source: Source): { parts: Part[]; root?: string } {
        const absolute = (from: string | URL | Blob) => (isBlob(from) ? from : new URL(from, this.pageUrl));
        const nameOf = (from: URL | Blob) => (isBlob(from) ? (from as File).name || 'file' : lastOf(from.href));
        if (typeof source === 'object' && 'files' in source)
            return { parts: Object.entries((source as FolderSource).files).map(([name, from]) => ({ name, source: absolute(from) })) };
        const remote = typeof source === 'object' && !isBlob(source) && !(source instanceof URL) ? (source as RemoteSource) : undefined;
        const from = absolute(remote ? remote.url : (source as string | URL | Blob));
        return { parts: [{ name: nameOf(from), source: from }], root: remote?.root };
    }

    /** The name under which the result is kept; none for a blob without a name. Adapters are kept for one base. */
    #keyOf(parts: Part[], binding: Binding | undefined): string | undefined {
        const names: string[] = [];
        for (const { name, source } of parts) {
            if (!isBlob(source)) names.push(`${name} ${source}`);
            else if (source instanceof File) names.push(`${name} ${source.name} ${source.size} ${source.lastModified}`);
            else return undefined;
        }
        const about = binding ? `${binding.baseDigest} ${binding.acceptTokenizer}` : '';
        return this.core.digestText(`${names.join('\n')}\n${about}`).slice('sha256:'.length);
    }

    #label(parts: Part[]): string {
        return parts.map(({ name, source }) => (isBlob(source) ? name : String(source))).join(' ');
    }

    async #fetch(part: Part, root: string | undefined, loading: Loading): Promise<{ node: FileNode; stored?: string; in: Storage }> {
        if (isBlob(part.source)) return { node: new BlobFile(part.source), in: this.storage };
        const url = part.source as URL, name = `${this.core.digestText(String(url)).slice('sha256:'.length)}.file`;
        const kept = await this.storage.find(name);
        if (kept) return { node: kept, stored: name, in: this.storage };
        const fetchTo = async (storage: Storage, why: string | undefined) => {
            await download(this.core, storage, name, {
                url: String(url), root, signal: loading.signal,
                progress: (done, total) => loading.progress({ stage: 'download', done, total }),
                reserve: async (lacking, total, fits) => {
                    if (!fits || lacking > (await storage.free())) throw new NoRoom(lacking);
                    loading.progress({ stage: 'store', done: 0, total, where: storage.where, why });
                },
            });
            return { node: (await storage.find(name))!, stored: name, in: storage };
        };
        try {
            return await fetchTo(this.storage, undefined);
        } catch (problem) {
            if (!(problem instanceof NoRoom)) throw problem;
            const why = `${String(url)} needs ${problem.lacking} bytes more than the browser's storage has for this page`;
            if (!this.mayUseMemory) throw new LaminaError('LAM_E_NO_SPACE', why);
            return fetchTo(new MemoryStorage(), why);
        }
    }

    #mustImport(path: string): boolean {
        return this.core.with((scratch) => {
            const kind = scratch.block(4);
            this.core.call('lam_source_detect', scratch.text(path), kind);
            const found = this.core.view.getUint32(kind, true);
            return found !== lam_source_kind.LAM_SOURCE_SLM_BASE && found !== lam_source_kind.LAM_SOURCE_SLM_ADAPTER;
        });
    }

    /** path → an .slm in storage, mounted. Without a key it lives as long as the page. */
    async #import(path: string, key: string | undefined, label: string, binding: Binding | undefined, loading: Loading): Promise<Mounted> {
        const storage = key ? this.storage : new MemoryStorage(), name = `${key ?? 'import'}.slm`, out = `/out/${++this.#mounts}/${name}`;
        this.files.spare = await storage.edit(name);
        this.files.spare.truncate(0);
        try {
            this.core.callbacks = {
                progress: (_stage, done, total) => {
                    loading.progress({ stage: 'import', done, total });
                    return !loading.stopped();
                },
            };
            this.core.with((scratch) => {
                const options = scratch.struct('lam_import_options', {
                    progress: this.core.run('lam_web_progress_callback'), accept_tokenizer: binding?.acceptTokenizer ?? false,
                });
                if (binding) this.core.call('lam_import_adapter', scratch.text(path), scratch.text(binding.basePath), scratch.text(out), options, 0);
                else this.core.call('lam_import_base', scratch.text(path), scratch.text(out), options);
            });
            await storage.finish(name, this.files.unmount(out)!, label);
        } catch (problem) {
            (this.files.unmount(out) ?? this.files.spare)?.close();
            this.files.spare = undefined;
            await storage.remove(name);
            throw problem;
        } finally {
            this.core.callbacks = {};
        }
        return this.#mount(storage, name, (await storage.find(name))!);
    }

    #mount(storage: Storage, name: string, node: FileNode): Mounted {
        return this.#mounted(this.files.mount(`kept/${++this.#mounts}/${name}`, node), storage, name);
    }

    /** name: of the file in storage, if it is kept there. */
    #mounted(path: string, storage: Storage, name: string | undefined): Mounted {
        return {
            path,
            doubt: async () => {
                if (name) await storage.doubt(name);
            },
            seal: () => this.files.seal(path),
            unmount: () => {
                this.files.seal(path);
                this.files.unmount(path);
            },
        };
    }
}

class NoRoom extends Error {
    constructor(readonly lacking: number) {
        super(`${lacking} bytes`);
    }
}
