// From the network to a file, one piece of 4 MiB at a time through one buffer in the module's memory. An interrupted download goes on where it
// was: pieces of an .slm that are there and have the right hash are not fetched again.
import type { Core } from './core.js';
import { LaminaError } from './errors.js';
import { PIECE, type FileNode } from './files.js';
import { checkHead, HEADER_BYTES, isSlm, leafOf, readHeader, type Header } from './slm.js';
import type { Storage } from './storage.js';

export interface Download {
    url: string;
    /** The file_root that an .slm must have, "sha256:…". */
    root?: string;
    signal: AbortSignal;
    progress: (done: number, total: number) => void;
    /** Before anything is written: bytes still to come, and of the whole, and whether the file could be made so long. Throws if they have no place. */
    reserve: (lacking: number, total: number, fits: boolean) => Promise<void>;
}

/** 4 MiB of the module's memory, with a zero in front: a Merkle leaf is hashed with it. */
class Staging {
    readonly #at: number;

    constructor(readonly core: Core) {
        this.#at = core.alloc(PIECE + 16);
    }

    view(n: number): Uint8Array {
        return this.core.bytes.subarray(this.#at + 1, this.#at + 1 + n);
    }

    leaf(n: number): string {
        return this.core.digest(this.#at, n + 1).slice('sha256:'.length);
    }

    free(): void {
        this.core.free(this.#at);
    }
}

/** The whole file's length in an answer with a part of it; 0 without. */
const totalOf = (answer: Response): number => Number(/\/(\d+)$/.exec(answer.headers.get('content-range') ?? '')?.[1] ?? 0);
const versionOf = (answer: Response, total: number): string => `${answer.headers.get('etag') ?? answer.headers.get('last-modified') ?? ''} ${total}`;

/** An address's bytes in order, by ranges where the server has them, else from one answer. */
class Remote {
    total = 0;
    /** What tells this version of the file from another. */
    version = '';
    ranges = false;
    type = '';
    #position = 0;
    #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
    #left = new Uint8Array(0);

    constructor(readonly url: string, readonly signal: AbortSignal) {}

    /** Asks for the first bytes. */
    async open(): Promise<void> {
        const answer = await this.#ask(0, HEADER_BYTES);
        const range = totalOf(answer);
        this.ranges = answer.status === 206 && range > 0;
        this.total = this.ranges ? range : Number(answer.headers.get('content-length') ?? 0);
        this.type = answer.headers.get('content-type') ?? '';
        this.version = versionOf(answer, this.total);
        if (!this.total) throw new LaminaError('LAM_E_IO', `${this.url}: the server does not say how long it is`);
        this.#use(answer, 0);
    }

    async #ask(from: number, n: number): Promise<Response> {
        let answer: Response;
        try {
            answer = await fetch(this.url, { headers: { range: `bytes=${from}-${from + n - 1}` }, signal: this.signal });
        } catch (problem) {
            if (this.signal.aborted) throw this.signal.reason;
            throw new LaminaError('LAM_E_IO', `${this.url}: ${(problem as Error).message}`);
        }
        const changed = this.ranges && (answer.status !== 206 || versionOf(answer, totalOf(answer)) !== this.version);
        if (answer.ok && !changed) return answer;
        await answer.body?.cancel();
        if (answer.ok) throw new LaminaError('LAM_E_CHANGED', `${this.url}: another version than at the download's beginning`);
        throw new LaminaError(answer.status === 404 || answer.status === 410 ? 'LAM_E_NOT_FOUND' : 'LAM_E_IO', `${this.url}: HTTP status ${answer.status}`);
    }

    #use(answer: Response, position: number): void {
        this.#reader = answer.body!.getReader();
        this.#position = position;
        this.#left = new Uint8Array(0);
    }

    async close(): Promise<void> {
        await this.#reader?.cancel().catch(() => undefined);
        this.#reader = undefined;
    }

    async #next(): Promise<boolean> {
        try {
            const { done, value } = await this.#reader!.read();
            if (!done) this.#left = value as Uint8Array<ArrayBuffer>;
            return !done;
        } catch (problem) {
            if (this.signal.aborted) throw this.signal.reason;
            throw new LaminaError('LAM_E_IO', `${this.url}: interrupted at byte ${this.#position}: ${(problem as Error).message}`);
        }
    }

    /** n bytes from position `at` into into(), which gives the place anew each time: memory may grow meanwhile. */
    async read(into: () => Uint8Array, at: number, n: number): Promise<void> {
        if (this.#position !== at && this.ranges) {
            await this.close();
            this.#use(await this.#ask(at, n), at);
        }
        for (let done = 0; done < n;) {
            if (!this.#left.length && !(await this.#next())) {
                if (!this.ranges || this.#position >= this.total) throw new LaminaError('LAM_E_TRUNCATED', `${this.url}: ends at byte ${this.#position} of ${this.total}`);
                this.#use(await this.#ask(this.#position, n - done), this.#position); // the range asked for before is read
                continue;
            }
            const skip = Math.min(this.#left.length, Math.max(0, at + done - this.#position)); // without ranges everything comes
            const take = Math.min(this.#left.length - skip, n - done);
            if (take > 0) into().set(this.#left.subarray(skip, skip + take), done);
            this.#left = this.#left.subarray(skip + take);
            this.#position += skip + take;
            done += take;
        }
    }
}

/** Leaves url's bytes in storage under name, whole. The errors are the network's, the file's and the storage's; what came stays for the next try,
 * but not what cannot be of use. */
export async function download(core: Core, storage: Storage, name: string, options: Download): Promise<void> {
    const remote = new Remote(options.url, options.signal), staging = new Staging(core);
    try {
        await remote.open();
        const start = new Uint8Array(HEADER_BYTES), n = Math.min(HEADER_BYTES, remote.total);
        await remote.read(() => start, 0, n);
        checkKind(start.subarray(0, n), remote, options.url);
        if (isSlm(start)) await downloadSlm(staging, remote, start, storage, name, options);
        else await downloadPlain(staging, remote, start.subarray(0, n), storage, name, options);
    } finally {
        staging.free();
        await remote.close();
    }
}

function checkKind(start: Uint8Array, remote: Remote, url: string): void {
    const text = new TextDecoder().decode(start).trimStart().toLowerCase();
    if (text.startsWith('<!doctype') || text.startsWith('<html') || text.startsWith('<?xml') || (remote.type.startsWith('text/html') && text.startsWith('<')))
        throw new LaminaError('LAM_E_MAGIC', `${url}: an HTML page of ${remote.total} bytes, no model`);
}

/** Pieces that are there and right stay. */
async function downloadSlm(staging: Staging, remote: Remote, start: Uint8Array, storage: Storage, name: string, options: Download): Promise<void> {
    const { url, root } = options, header = readHeader(start, url);
    if (root && root !== header.root) throw new LaminaError('LAM_E_DIGEST', `${url}: its root is ${header.root}, expected ${root}`);
    if (header.fileBytes !== remote.total) throw new LaminaError('LAM_E_TRUNCATED', `${url}: the server has ${remote.total} bytes, the header says ${header.fileBytes}`);
    const node = await storage.edit(name);
    let kept = false;
    try {
        await options.reserve(Math.max(0, remote.total - node.size), remote.total, hasRoom(node, remote.total));
        const resumed = remote.ranges && sameStart(node, start);
        if (!resumed) node.truncate(0);
        await head(staging, remote, header, node, url, resumed);
        kept = true; // from here on every piece is checked by itself
        await pieces(staging, remote, header, node, options);
        await storage.finish(name, node, url);
    } catch (problem) {
        await leave(storage, name, node, kept);
        throw problem;
    }
}

/** Whether the file may become so long: browsers' estimates of what is left are not to be relied on. Its bytes stay as they are. */
function hasRoom(node: FileNode, total: number): boolean {
    const size = node.size;
    if (size >= total) return true;
    try {
        node.truncate(total);
    } catch (problem) {
        if (problem instanceof DOMException && problem.name === 'QuotaExceededError') return false;
        throw problem;
    }
    node.truncate(size);
    return true;
}

/** What an unfinished download leaves behind: its file for the next try, or nothing. */
async function leave(storage: Storage, name: string, node: FileNode, kept: boolean): Promise<void> {
    try {
        node.flush();
        node.close();
    } catch { /* closed by finish */ }
    if (!kept) await storage.remove(name);
}

function sameStart(node: FileNode, start: Uint8Array): boolean {
    const there = new Uint8Array(start.length);
    return node.read(there, 0) === start.length && there.every((byte, i) => byte === start[i]);
}

async function head(staging: Staging, remote: Remote, header: Header, node: FileNode, url: string, resumed: boolean): Promise<void> {
    if (resumed && node.size >= header.data) {
        try {
            return checkHead(staging.core, node, header, url);
        } catch { /* damaged on this disk: fetch it again */ }
    }
    node.write(header.bytes, 0);
    for (let at = header.bytes.length; at < header.data;) {
        const n = Math.min(PIECE, header.data - at);
        await remote.read(() => staging.view(n), at, n);
        node.write(staging.view(n), at);
        at += n;
    }
    checkHead(staging.core, node, header, url);
}

async function pieces(staging: Staging, remote: Remote, header: Header, node: FileNode, { url, progress }: Download): Promise<void> {
    for (let i = 0; i < header.pieces; i++) {
        const at = header.data + i * PIECE, n = Math.min(PIECE, header.fileBytes - at), leaf = leafOf(node, i);
        progress(at, header.fileBytes);
        if (remote.ranges && node.size >= at + n && node.read(staging.view(n), at) === n && staging.leaf(n) === leaf) continue;
        await remote.read(() => staging.view(n), at, n);
        const found = staging.leaf(n);
        if (found !== leaf) throw new LaminaError('LAM_E_DIGEST', `${url}: piece ${i} of ${header.pieces} has the hash sha256:${found}, the file says sha256:${leaf}`);
        node.write(staging.view(n), at);
    }
    progress(header.fileBytes, header.fileBytes);
}

/** Any other file: nothing vouches for what is there but the server's word that it is the same version. */
async function downloadPlain(staging: Staging, remote: Remote, start: Uint8Array, storage: Storage, name: string, options: Download): Promise<void> {
    if (options.root) throw new LaminaError('LAM_E_ARGUMENT', `${options.url} is no .slm file, so it has no root to compare with ${options.root}`);
    const same = remote.ranges && remote.version.startsWith(' ') === false && (await storage.note(name)) === remote.version;
    const node = await storage.edit(name);
    let kept = false;
    try {
        let at = same ? Math.floor(Math.min(node.size, remote.total) / PIECE) * PIECE : 0;
        await options.reserve(remote.total - at, remote.total, hasRoom(node, remote.total));
        node.truncate(at);
        await storage.setNote(name, remote.version);
        kept = true;
        if (at === 0) {
            node.write(start, 0);
            at = start.length;
        }
        while (at < remote.total) {
            const n = Math.min(PIECE - (at % PIECE), remote.total - at);
            options.progress(at, remote.total);
            await remote.read(() => staging.view(n), at, n);
            node.write(staging.view(n), at);
            at += n;
        }
        options.progress(remote.total, remote.total);
        await storage.finish(name, node, options.url);
    } catch (problem) {
        await leave(storage, name, node, kept);
        throw problem;
    }
}
