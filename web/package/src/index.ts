/** Quantised language models and reversible adapters in the browser, off the main thread. */
export { Adapter, Composition, Lamina, Session } from './lamina.js';
export type { AdapterOptions, Layer, LoadOptions, SessionOptions } from './lamina.js';
export { LaminaError } from './errors.js';
export { forget, stored, type Stored } from './storage.js';
export { codes, type Code } from './generated.js';
export type {
    AdapterInfo, BaseInfo, ComposeOptions, CompositionInfo, FolderSource, GenerateOptions, MemoryOptions, Message, Piece, Plan, PlanOptions, Progress,
    RemoteSource, Report, Sampling, Source, Summary,
} from './protocol.js';
