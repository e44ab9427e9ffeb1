// What a download must know of an .slm file to check its pieces as they come (docs/format.md): where the small sections lie, the hash of each
// piece, and the file_root that covers both. The module checks the whole again when it opens the file.
import type { Core } from './core.js';
import { LaminaError } from './errors.js';
import { PIECE, type FileNode } from './files.js';

export const HEADER_BYTES = 128;
const TABLE_AT = 128, ENTRY_BYTES = 64, HASH_BYTES = 32;

const AT = {
    log2Piece: 7, tensors: 12, metadata: 24, metadataBytes: 32, directory: 40, data: 48, dataBytes: 56, fileBytes: 80, root: 88, vocabulary: 120,
    crc: 124,
} as const;

export interface Header {
    bytes: Uint8Array; // the header itself
    root: string; // file_root as the file says it, "sha256:…"
    tensors: number;
    metadata: number;
    metadataBytes: number;
    vocabularyBytes: number;
    directory: number;
    data: number;
    dataBytes: number;
    fileBytes: number;
    pieces: number;
}

export const isSlm = (start: Uint8Array): boolean => String.fromCharCode(...start.subarray(0, 4)) === 'SLM0';

const hex = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
const up = (value: number, multiple: number) => Math.ceil(value / multiple) * multiple;

export function readHeader(bytes: Uint8Array, what: string): Header {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const u64 = (at: number) => Number(view.getBigUint64(at, true));
    const header: Header = {
        bytes, root: `sha256:${hex(bytes.subarray(AT.root, AT.root + HASH_BYTES))}`,
        tensors: view.getUint32(AT.tensors, true), metadata: u64(AT.metadata), metadataBytes: u64(AT.metadataBytes),
        vocabularyBytes: view.getUint32(AT.vocabulary, true), directory: u64(AT.directory), data: u64(AT.data), dataBytes: u64(AT.dataBytes),
        fileBytes: u64(AT.fileBytes), pieces: Math.ceil(u64(AT.dataBytes) / PIECE),
    };
    const { metadata, metadataBytes, vocabularyBytes, directory, data, dataBytes, fileBytes, pieces, tensors } = header;
    if (bytes[AT.log2Piece] !== 22 || metadata !== TABLE_AT + HASH_BYTES * pieces || up(metadata + metadataBytes, 64) + vocabularyBytes > directory
        || directory + ENTRY_BYTES * tensors > data || data + dataBytes !== fileBytes)
        throw new LaminaError('LAM_E_FORMAT', `${what}: the header's sections do not fit each other`);
    return header;
}

/** The small sections of node, from its start to the data section, against file_root: LAM_E_DIGEST if they differ. */
export function checkHead(core: Core, node: FileNode, header: Header, what: string): void {
    const found = rootOf(core, node, header);
    if (found !== header.root)
        throw new LaminaError('LAM_E_DIGEST', `${what}: the ${header.data} bytes before its weights have the root ${found}, the header says ${header.root}`);
}

function rootOf(core: Core, node: FileNode, h: Header): string {
    const vocabulary = up(h.metadata + h.metadataBytes, 64);
    const sections: [at: number, bytes: number][] = [[h.metadata, h.metadataBytes], [vocabulary, h.vocabularyBytes],
        [h.directory, ENTRY_BYTES * h.tensors + nameBytes(node, h)]];
    return core.with((scratch) => {
        const at = scratch.block(HEADER_BYTES + 1 + sections.reduce((sum, [, bytes]) => sum + bytes, 0));
        const header = h.bytes.slice();
        header.fill(0, AT.root, AT.root + HASH_BYTES).fill(0, AT.crc, AT.crc + 4);
        core.bytes.set(header, at + 1); // behind a zero, the mark of a leaf
        let end = at + 1 + HEADER_BYTES;
        for (const [from, bytes] of sections) {
            node.read(core.bytes.subarray(end, end + bytes), from);
            end += bytes;
        }
        return pair(core, hash(core, at, end - at), weightsRoot(core, node, h));
    });
}

/** Names follow the directory; their lengths stand in it. */
function nameBytes(node: FileNode, h: Header): number {
    const directory = new Uint8Array(ENTRY_BYTES * h.tensors), view = new DataView(directory.buffer);
    node.read(directory, h.directory);
    let sum = 0;
    for (let i = 0; i < h.tensors; i++) sum += view.getUint16(ENTRY_BYTES * i + 4, true);
    if (h.directory + directory.length + sum > h.data) throw new LaminaError('LAM_E_OVERFLOW', `names of ${sum} bytes`);
    return sum;
}

const hash = (core: Core, at: number, n: number): string => core.digest(at, n).slice('sha256:'.length);
const unhex = (text: string) => Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));

function pair(core: Core, left: string, right: string): string {
    return core.with((scratch) => core.digest(scratch.bytes(Uint8Array.of(1, ...unhex(left), ...unhex(right))), 65));
}

function weightsRoot(core: Core, node: FileNode, h: Header): string {
    const leaves = Array.from({ length: h.pieces }, (_, i) => leafOf(node, i));
    const tree = (from: number, end: number): string => {
        if (end - from === 1) return leaves[from]!;
        let split = 1;
        while (2 * split < end - from) split *= 2;
        return pair(core, tree(from, from + split), tree(from + split, end)).slice('sha256:'.length);
    };
    return leaves.length ? tree(0, leaves.length) : hash(core, 16, 0);
}

/** The hash of piece i that the table gives, in hexadecimal. */
export function leafOf(node: FileNode, i: number): string {
    const leaf = new Uint8Array(HASH_BYTES);
    node.read(leaf, TABLE_AT + HASH_BYTES * i);
    return hex(leaf);
}
