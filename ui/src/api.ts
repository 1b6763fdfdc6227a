// Talking to the server. The session is a cookie that no script can read; what acts also sends the session's token.
// A session that ends takes nothing away: the page stays, asks for a key, and what was asked for is asked again.

import { computed, signal } from "@preact/signals";
import { type Changes, ROOT } from "./router";
import type { Problem as ProblemBody, Session } from "./wire";

const PATIENCE = 20_000;
const AGAIN = 3_000;

export const session = signal<Session | null>(null);
/** Why a key is asked for: none is known yet, or the one that was is no longer good. */
export const asking = signal<"" | "unknown" | "missing" | "expired" | "away">("unknown");
/** Why nobody could be signed in when the page was opened: the server is away, or refused the key of a link. */
export const hindrance = signal<Problem | null>(null);
/** Counts requests that are under way, for the thin line at the top. */
export const pending = signal(0);

const RANKS = ["viewer", "operator", "admin"] as const;
export type Role = (typeof RANKS)[number];

export const role = computed<Role>(() => (session.value?.scope as Role | undefined) ?? "viewer");

/** Whether whoever signed in may do what this role may. */
export function may(needed: Role): boolean {
  return RANKS.indexOf(role.value) >= RANKS.indexOf(needed);
}

/**
 * Why whoever signed in may not do what this role may, for the title of a button; nothing where they may. Some things
 * are everybody's: a key for one tenant is not enough there.
 */
export function refusal(needed: "operator" | "admin", { ofAll = false } = {}): string | undefined {
  if (!may(needed)) return `This needs an ${needed}'s key.`;
  return ofAll && session.value?.tenant ? "This is about all tenants, and your key is for one." : undefined;
}

/** How whoever signed in is called. */
export function nameOf(who: Session): string {
  return who.name ?? who.actor.slice(0, 14);
}

/** What the server refused, in its own words. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly field: string | null;
  readonly hint: string | null;
  readonly request: string | null;
  readonly body: Partial<ProblemBody> & Record<string, unknown>;

  constructor(status: number, body: Record<string, unknown>, request: string | null) {
    const told = body as Partial<ProblemBody>;
    super(told.detail ?? told.title ?? `The server answered ${status}.`);
    this.status = status;
    this.code = String(told.code ?? "");
    this.field = (told.field as string | undefined) ?? null;
    this.hint = (told.hint as string | undefined) ?? null;
    this.request = request;
    this.body = body;
  }
}

const HINTS = {
  read: "It is tried again by itself; look whether it runs.",
  once: "Do it again: however often it is sent, it is done once.",
  unsure: "It may have been done all the same: look before you do it again.",
};

export function asProblem(error: unknown, what: keyof typeof HINTS = "read"): Problem {
  if (error instanceof Problem) return error;
  const isSlow = error instanceof DOMException && error.name === "TimeoutError";
  const detail = isSlow ? "The server took too long to answer." : "The server cannot be reached.";
  return new Problem(0, { code: "unreachable", detail, hint: HINTS[what] }, null);
}

interface Options {
  query?: Changes;
  body?: unknown;
  signal?: AbortSignal | undefined;
  /** An Idempotency-Key, where the same act must not happen twice. */
  key?: string;
  /** Whether its body says by itself that it is the same act, as the reference of a grant does. */
  isOnce?: boolean;
  patience?: number;
}

let waiting: { promise: Promise<void>; resolve: () => void } | null = null;

/** Resolves when somebody has signed in again. */
function signedIn(why: "missing" | "expired"): Promise<void> {
  if (!waiting) {
    let resolve = () => {};
    const promise = new Promise<void>((done) => {
      resolve = done;
    });
    waiting = { promise, resolve };
  }
  asking.value = why;
  return waiting.promise;
}

function address(path: string, query: Changes = {}): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== null && value !== undefined && value !== "") found.set(name, String(value));
  const text = found.toString();
  return `${ROOT}/${path}${text ? `?${text}` : ""}`;
}

/** Where a stream of the API is. */
export function streamOf(path: string, query: Changes = {}): string {
  return address(`api/v1/${path}`, query);
}

async function send(method: string, url: string, options: Options): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET" && session.value) headers["Millpond-Csrf"] = session.value.csrf;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (options.key) headers["Idempotency-Key"] = options.key;
  const limit = AbortSignal.timeout(options.patience ?? PATIENCE);
  pending.value += 1;
  try {
    return await fetch(url, {
      method,
      headers,
      body: options.body === undefined ? null : JSON.stringify(options.body),
      signal: options.signal ? AbortSignal.any([options.signal, limit]) : limit,
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
    });
  } finally {
    pending.value -= 1;
  }
}

async function read<T>(answer: Response): Promise<T> {
  const told = answer.status === 204 ? null : await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, told ?? {}, answer.headers.get("request-id"));
  return told as T;
}

/** Whoever signs in meanwhile gets to see what was asked for, but does nothing that somebody else has ordered. */
function checkActor(method: string, before: Session | null): void {
  const now = session.value;
  if (method === "GET" || !before || !now || now.actor === before.actor) return;
  const detail = `Nothing was done: ${nameOf(before)} asked for it, and ${nameOf(now)} is signed in now.`;
  const hint = `Do it again, and it is done as ${nameOf(now)}; or leave it.`;
  throw new Problem(0, { code: "other_actor", detail, hint }, null);
}

async function ask<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const before = session.value;
  const isOnce = Boolean(options.key) || options.isOnce || method === "PUT" || method === "DELETE";
  for (;;) {
    try {
      return await read<T>(await send(method, address(`api/v1/${path}`, options.query), options));
    } catch (error) {
      const isOver = error instanceof Problem && error.status === 401;
      const isForeign = error instanceof Problem && error.code === "csrf";
      if (!isOver && !isForeign) {
        if (options.signal?.aborted) throw error;
        throw asProblem(error, method === "GET" ? "read" : isOnce ? "once" : "unsure");
      }
      const isRenewed = isForeign && (await renew()); // another tab has signed in: its token is the session's now
      if (!isRenewed) await signedIn(error.code === "session_missing" ? "missing" : "expired");
      options.signal?.throwIfAborted();
      checkActor(method, before);
    }
  }
}

/** Read. Paths are those of the native API below /v1: `get<Job>("jobs/job_…", { tenant })`. */
export function get<T>(path: string, query: Changes = {}, signal?: AbortSignal): Promise<T> {
  return ask<T>("GET", path, { query, signal });
}

/** Act: POST, PUT, PATCH or DELETE. */
export function act<T>(method: string, path: string, body?: unknown, options: Omit<Options, "body"> = {}): Promise<T> {
  return ask<T>(method, path, { ...options, body });
}

/** A key of its own for one act, so that sending it twice does it once. */
export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is missing where there is no TLS
  return `ui-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Whether one was made by `freshKey`, and by nobody who wanted to say something with it. */
export function isFreshKey(text: string): boolean {
  return /^ui-[0-9a-f]{32}$/.test(text);
}

// The session

async function renew(): Promise<boolean> {
  const before = session.value?.csrf;
  try {
    const found = await whoIs();
    remember(found.actor);
    session.value = found;
    return found.csrf !== before;
  } catch {
    return false;
  }
}

async function whoIs(): Promise<Session> {
  return read<Session>(await send("GET", address("session"), {}));
}

/** The key in the fragment of the address, if there is one; it is taken out of the address at once. */
export function takeKey(): string | null {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (key !== null) history.replaceState(null, "", location.pathname + location.search);
  return key;
}

/**
 * Find out whether somebody is signed in. The key of a link signs in whoever is not; nobody's session is replaced by a
 * link that somebody else may have made, so whoever has one is to be asked: tells the key that is left for that.
 */
export async function begin(key: string | null): Promise<string | null> {
  for (;;) {
    try {
      enter(await whoIs());
      return key;
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status === 401) return enterBy(key, problem.code === "session_expired" ? "expired" : "missing");
      hindrance.value = problem;
      asking.value = "away";
      await new Promise((done) => setTimeout(done, AGAIN));
    }
  }
}

async function enterBy(key: string | null, why: "missing" | "expired"): Promise<null> {
  hindrance.value = null;
  try {
    if (key) await signIn(key);
    else asking.value = why;
  } catch (error) {
    hindrance.value = asProblem(error);
    asking.value = why;
  }
  return null;
}

export async function signIn(key: string): Promise<void> {
  try {
    enter(await read<Session>(await send("POST", address("session"), { body: { key } })));
  } catch (error) {
    throw asProblem(error, "once");
  }
}

/** What is to be done while one is still signed in, such as to give back a key that was made for this visit. */
export const farewells = new Set<() => Promise<unknown>>();

export async function signOut(): Promise<void> {
  await Promise.allSettled([...farewells].map((leave) => leave()));
  await send("DELETE", address("session"), {}).catch(() => null);
  remember(null);
  session.value = null;
  asking.value = "missing";
}

/** What is to be forgotten as soon as somebody else, or nobody, is signed in: it was shown to, or typed by, another. */
export const secrets = new Set<() => void>();
const ACTOR = "actor";

function remember(actor: string | null): void {
  if (sessionStorage.getItem(ACTOR) === actor) return;
  for (const forget of secrets) forget();
  if (actor === null) sessionStorage.removeItem(ACTOR);
  else sessionStorage.setItem(ACTOR, actor);
}

function enter(found: Session): void {
  remember(found.actor);
  session.value = found;
  asking.value = "";
  hindrance.value = null;
  waiting?.resolve();
  waiting = null;
}
