// The files that the module sees: what the page's side put at paths before a call. All of it is synchronous, as the module's calls are:
// handles of the origin's private file system, blobs, and pieces in memory.

/** 4 MiB: what is read, fetched, hashed and kept at a time. */
export const PIECE = 4 << 20;

export interface FileNode {
    readonly size: number;
    /** Up to into.length bytes from position at; how many. */
    read(into: Uint8Array, at: number): number;
    write(bytes: Uint8Array, at: number): void;
    truncate(size: number): void;
    flush(): void;
    close(): void;
}

const full = (message: string) => new DOMException(message, 'QuotaExceededError');

/** A file of the origin's private file system. Chromium 156 does not throw where the quota is reached: a write gives a count above the bytes, and
 * a file that should become longer stays as it is. */
export class HandleFile implements FileNode {
    constructor(readonly handle: FileSystemSyncAccessHandle) {}

    get size(): number {
        return this.handle.getSize();
    }

    read(into: Uint8Array, at: number): number {
        return this.handle.read(into, { at });
    }

    write(bytes: Uint8Array, at: number): void {
        for (let done = 0; done < bytes.length;) {
            const n = this.handle.write(bytes.subarray(done), { at: at + done });
            if (n === 0 || n > bytes.length - done) throw full(`${bytes.length - done} bytes could not be written`);
            done += n;
        }
    }

    truncate(size: number): void {
        this.handle.truncate(size);
        if (this.size !== size) throw full(`the file could not be made ${size} bytes long`);
    }

    flush(): void {
        this.handle.flush();
    }

    close(): void {
        this.handle.close();
    }
}

function readBlob(blob: Blob, into: Uint8Array, at: number): number {
    const n = Math.max(0, Math.min(into.length, blob.size - at));
    for (let done = 0; done < n; done += PIECE) {
        const part = blob.slice(at + done, at + Math.min(done + PIECE, n));
        into.set(new Uint8Array(new FileReaderSync().readAsArrayBuffer(part)), done);
    }
    return n;
}

function readOnly(): never {
    throw new DOMException('the file can only be read', 'NoModificationAllowedError');
}

/** A file that the user chose, or any other blob. */
export class BlobFile implements FileNode {
    constructor(readonly blob: Blob) {}

    get size(): number {
        return this.blob.size;
    }

    read(into: Uint8Array, at: number): number {
        return readBlob(this.blob, into, at);
    }

    write = readOnly;
    truncate = readOnly;
    flush(): void {}
    close(): void {}
}

/** Without a disk: a blob for each piece, which the browser keeps outside of the JavaScript heap. */
export class PiecesFile implements FileNode {
    size = 0;
    readonly #pieces: Blob[] = [];

    read(into: Uint8Array, at: number): number {
        const n = Math.max(0, Math.min(into.length, this.size - at));
        for (let done = 0; done < n;) {
            const offset = (at + done) % PIECE, length = Math.min(PIECE - offset, n - done);
            readBlob(this.#pieces[Math.floor((at + done) / PIECE)]!, into.subarray(done, done + length), offset);
            done += length;
        }
        return n;
    }

    write(bytes: Uint8Array, at: number): void {
        if (at > this.size) this.write(new Uint8Array(at - this.size), this.size);
        for (let done = 0; done < bytes.length;) {
            const index = Math.floor((at + done) / PIECE), offset = (at + done) % PIECE, n = Math.min(PIECE - offset, bytes.length - done);
            const old = this.#pieces[index] ?? new Blob(), part = bytes.slice(done, done + n) as Uint8Array<ArrayBuffer>;
            this.#pieces[index] = new Blob([old.slice(0, offset), part, old.slice(offset + n)]);
            done += n;
        }
        this.size = Math.max(this.size, at + bytes.length);
    }

    truncate(size: number): void {
        if (size > this.size) this.write(new Uint8Array(size - this.size), this.size);
        this.#pieces.length = Math.ceil(size / PIECE);
        const last = this.#pieces.length - 1;
        if (last >= 0) this.#pieces[last] = this.#pieces[last]!.slice(0, size - last * PIECE);
        this.size = size;
    }

    flush(): void {}
    close(): void {}
}

export interface Entry {
    node: FileNode;
    inode: number;
    modified: number; // milliseconds since 1970
    size?: number; // once sealed
}

export class FileTable {
    readonly #entries = new Map<string, Entry>();
    #inodes = 1;
    /** What the next file that the module creates becomes. */
    spare: FileNode | undefined;

    mount(path: string, node: FileNode): string {
        this.#entries.set(path, { node, inode: this.#inodes++, modified: Date.now() });
        return `/${path}`;
    }

    /** Takes a file from the table; the caller closes it. */
    unmount(path: string): FileNode | undefined {
        const node = this.find(path)?.node;
        this.#entries.delete(clean(path));
        return node;
    }

    /** The module has the file's bytes in its memory: the handle goes back, and the path stays what it was. */
    seal(path: string): void {
        const entry = this.find(path);
        if (!entry || entry.size !== undefined) return;
        entry.size = entry.node.size;
        entry.node.close();
    }

    find(path: string): Entry | undefined {
        return this.#entries.get(clean(path));
    }

    isFolder(path: string): boolean {
        const prefix = clean(path) && `${clean(path)}/`;
        return prefix === '' || [...this.#entries.keys()].some((name) => name.startsWith(prefix));
    }

    create(path: string): Entry | undefined {
        if (!this.spare) return undefined;
        this.mount(clean(path), this.spare);
        this.spare = undefined;
        return this.find(path);
    }

    rename(from: string, to: string): boolean {
        const entry = this.find(from);
        if (!entry) return false;
        this.#entries.delete(clean(from));
        this.#entries.set(clean(to), entry);
        return true;
    }

    /** What the module created and removes is the next spare again. */
    remove(path: string): boolean {
        const entry = this.find(path);
        if (!entry) return false;
        this.#entries.delete(clean(path));
        this.spare ??= entry.node;
        return true;
    }

    closeAll(): void {
        for (const { node, size } of this.#entries.values()) if (size === undefined) node.close();
        this.spare?.close();
        this.spare = undefined;
        this.#entries.clear();
    }
}

function clean(path: string): string {
    return path.split('/').filter((part) => part && part !== '.').join('/');
}
