// Requests to the server. The session is an HttpOnly cookie; requests that change something also send its CSRF token.
// When the session ends, the page and its input stay: the page asks for a key, and then repeats the request.

import { computed, signal } from "@preact/signals";
import { type Changes, ROOT } from "./router";
import type { Problem as ProblemBody, Session } from "./wire";

const TIMEOUT_MS = 20_000;
const RETRY_MS = 3_000;

export const session = signal<Session | null>(null);
/** Why a key is required; empty while signed in. `unknown` until the server answers, `unreachable` if it does not. */
export const signInReason = signal<"" | "unknown" | "missing" | "expired" | "unreachable">("unknown");
/** Why signing in failed when the page was opened: the server is unreachable, or it refused the key of a link. */
export const signInProblem = signal<Problem | null>(null);
/** The number of pending requests, for the progress line at the top. */
export const pending = signal(0);

const RANKS = ["viewer", "operator", "admin"] as const;
export type Role = (typeof RANKS)[number];

export const role = computed<Role>(() => (session.value?.scope as Role | undefined) ?? "viewer");

/** Whether the session has this role or a higher one. */
export function may(needed: Role): boolean {
  return RANKS.indexOf(role.value) >= RANKS.indexOf(needed);
}

/**
 * Why the session may not perform an action that needs this role, as the title of a disabled button; undefined if it
 * may. Actions with `ofAll` affect all tenants, and need a key that is not limited to one.
 */
export function refusal(needed: "operator" | "admin", { ofAll = false } = {}): string | undefined {
  if (!may(needed)) return `This requires a key of scope ${needed}.`;
  return ofAll && session.value?.tenant ? "This applies to all tenants; your key is limited to one." : undefined;
}

/** The display name of the signed-in user. */
export function nameOf(user: Session): string {
  return user.name ?? user.actor.slice(0, 14);
}

/** An error that the server answered, or (status 0) a request that got no answer. */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly field: string | null;
  readonly hint: string | null;
  readonly request: string | null;
  readonly body: Partial<ProblemBody> & Record<string, unknown>;

  constructor(status: number, body: Record<string, unknown>, request: string | null) {
    const problem = body as Partial<ProblemBody>;
    super(problem.detail ?? problem.title ?? `The server answered ${status}.`);
    this.status = status;
    this.code = String(problem.code ?? "");
    this.field = (problem.field as string | undefined) ?? null;
    this.hint = (problem.hint as string | undefined) ?? null;
    this.request = request;
    this.body = body;
  }
}

const HINTS = {
  read: "The page retries automatically. Check that the server is running.",
  once: "Try again: repeating this request has no further effect.",
  unsure: "The change may have been made. Check before you try again.",
};

export function asProblem(error: unknown, hint: keyof typeof HINTS = "read"): Problem {
  if (error instanceof Problem) return error;
  const isSlow = error instanceof DOMException && error.name === "TimeoutError";
  const detail = isSlow ? "The server did not respond in time." : "Cannot reach the server.";
  return new Problem(0, { code: "unreachable", detail, hint: HINTS[hint] }, null);
}

interface Options {
  query?: Changes;
  body?: unknown;
  signal?: AbortSignal | undefined;
  /** An Idempotency-Key, for a request that must not take effect twice. */
  key?: string;
  /** Whether the body makes repeating the request safe, as the reference of a grant does. */
  isOnce?: boolean;
  timeout?: number;
}

let waiting: { promise: Promise<void>; resolve: () => void } | null = null;

/** Resolves after the next sign-in. */
function signedIn(reason: "missing" | "expired"): Promise<void> {
  if (!waiting) {
    let resolve = () => {};
    const promise = new Promise<void>((done) => {
      resolve = done;
    });
    waiting = { promise, resolve };
  }
  signInReason.value = reason;
  return waiting.promise;
}

function address(path: string, query: Changes = {}): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== null && value !== undefined && value !== "") found.set(name, String(value));
  const text = found.toString();
  return `${ROOT}/${path}${text ? `?${text}` : ""}`;
}

/** The URL of an event stream of the API. */
export function streamOf(path: string, query: Changes = {}): string {
  return address(`api/v1/${path}`, query);
}

async function send(method: string, url: string, options: Options): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET" && session.value) headers["Millpond-Csrf"] = session.value.csrf;
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  if (options.key) headers["Idempotency-Key"] = options.key;
  const limit = AbortSignal.timeout(options.timeout ?? TIMEOUT_MS);
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
  const body = answer.status === 204 ? null : await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, body ?? {}, answer.headers.get("request-id"));
  return body as T;
}

/** After a sign-in, a read is repeated for any user, but a change only for the user who requested it. */
function checkActor(method: string, before: Session | null): void {
  const now = session.value;
  if (method === "GET" || !before || !now || now.actor === before.actor) return;
  const detail = `Nothing was changed: ${nameOf(before)} started this action, but ${nameOf(now)} is now signed in.`;
  const hint = `Repeat the action to perform it as ${nameOf(now)}, or cancel.`;
  throw new Problem(0, { code: "other_actor", detail, hint }, null);
}

async function request<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const before = session.value;
  const isOnce = Boolean(options.key) || options.isOnce || method === "PUT" || method === "DELETE";
  for (;;) {
    try {
      return await read<T>(await send(method, address(`api/v1/${path}`, options.query), options));
    } catch (error) {
      const isSignedOut = error instanceof Problem && error.status === 401;
      const isStaleToken = error instanceof Problem && error.code === "csrf";
      if (!isSignedOut && !isStaleToken) {
        if (options.signal?.aborted) throw error;
        throw asProblem(error, method === "GET" ? "read" : isOnce ? "once" : "unsure");
      }
      const isRenewed = isStaleToken && (await renew()); // another tab has signed in, so the session has a new token
      if (!isRenewed) await signedIn(error.code === "session_missing" ? "missing" : "expired");
      options.signal?.throwIfAborted();
      checkActor(method, before);
    }
  }
}

/** Send a GET request. Paths are those of the native API below /v1: `get<Job>("jobs/job_…", { tenant })`. */
export function get<T>(path: string, query: Changes = {}, signal?: AbortSignal): Promise<T> {
  return request<T>("GET", path, { query, signal });
}

/** Send a POST, PUT, PATCH or DELETE request. */
export function act<T>(method: string, path: string, body?: unknown, options: Omit<Options, "body"> = {}): Promise<T> {
  return request<T>(method, path, { ...options, body });
}

/** A new idempotency key, so that a request sent twice takes effect once. */
export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is not available without TLS
  return `ui-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Whether a key was generated by `freshKey`, and so has no meaning for people. */
export function isFreshKey(text: string): boolean {
  return /^ui-[0-9a-f]{32}$/.test(text);
}

// The session

async function renew(): Promise<boolean> {
  const before = session.value?.csrf;
  try {
    const found = await readSession();
    rememberActor(found.actor);
    session.value = found;
    return found.csrf !== before;
  } catch {
    return false;
  }
}

async function readSession(): Promise<Session> {
  return read<Session>(await send("GET", address("session"), {}));
}

/** The key in the fragment of the URL, or null. It is removed from the address bar at once. */
export function takeKey(): string | null {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (key !== null) history.replaceState(null, "", location.pathname + location.search);
  return key;
}

/**
 * Read the session. If there is none, sign in with the key of the link. If there is one, the key does not replace it,
 * because somebody else may have made the link: it is returned, so that the user can be asked.
 */
export async function openSession(key: string | null): Promise<string | null> {
  for (;;) {
    try {
      setSession(await readSession());
      return key;
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status === 401) return signInByLink(key, problem.code === "session_expired" ? "expired" : "missing");
      signInProblem.value = problem;
      signInReason.value = "unreachable";
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }
}

async function signInByLink(key: string | null, reason: "missing" | "expired"): Promise<null> {
  signInProblem.value = null;
  try {
    if (key) await signIn(key);
    else signInReason.value = reason;
  } catch (error) {
    signInProblem.value = asProblem(error);
    signInReason.value = reason;
  }
  return null;
}

export async function signIn(key: string): Promise<void> {
  try {
    setSession(await read<Session>(await send("POST", address("session"), { body: { key } })));
  } catch (error) {
    throw asProblem(error, "once");
  }
}

/** Run before the session ends, for instance to revoke a key that was made for this visit. */
export const beforeSignOut = new Set<() => Promise<unknown>>();

export async function signOut(): Promise<void> {
  await Promise.allSettled([...beforeSignOut].map((task) => task()));
  await send("DELETE", address("session"), {}).catch(() => null);
  rememberActor(null);
  session.value = null;
  signInReason.value = "missing";
}

/** Called when another user signs in, or the user signs out: clear what was shown to or typed by the previous user. */
export const onUserChange = new Set<() => void>();
const ACTOR = "actor";

function rememberActor(actor: string | null): void {
  if (sessionStorage.getItem(ACTOR) === actor) return;
  for (const clear of onUserChange) clear();
  if (actor === null) sessionStorage.removeItem(ACTOR);
  else sessionStorage.setItem(ACTOR, actor);
}

function setSession(found: Session): void {
  rememberActor(found.actor);
  session.value = found;
  signInReason.value = "";
  signInProblem.value = null;
  waiting?.resolve();
  waiting = null;
}
