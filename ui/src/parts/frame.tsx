// What stands around every page: where one can go, the search box, whether what is shown is live, and who one is.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, get, nameOf, pending, role, session, signOut } from "../api";
import { board, heardAt, type Liveness, liveness, refresh } from "../live";
import { go, Link, part, place, setQuery } from "../router";
import { type Theme, theme } from "../theme";
import type { Found, FoundItem } from "../wire";
import { clock, count } from "../words";
import { Dialogs, Secrets } from "./dialogs";
import { Toasts, toast } from "./toasts";

interface Way {
  to: string;
  title: string;
  key: string;
  /** A number beside it, where something wants to be looked at. */
  note?: () => number | null;
}

const WAYS: readonly Way[] = [
  { to: "/", title: "Overview", key: "o", note: () => board.value?.alarms.length ?? null },
  { to: "/jobs", title: "Jobs", key: "j" },
  { to: "/kinds", title: "Kinds and queues", key: "k" },
  { to: "/fleet", title: "Fleet", key: "f", note: () => board.value?.workers.deaf ?? null },
  { to: "/failures", title: "Failures", key: "x" },
  { to: "/credits", title: "Credits", key: "c" },
  { to: "/webhooks", title: "Webhooks", key: "w", note: () => board.value?.webhooks_failing ?? null },
  { to: "/playground", title: "Playground", key: "p" },
  { to: "/errands", title: "Errands", key: "e" },
  { to: "/access", title: "Access", key: "a" },
  { to: "/audit", title: "Audit", key: "u" },
  { to: "/system", title: "System", key: "s" },
];

const isMenuOpen = signal(false);
const isHelpOpen = signal(false);

export function Frame({ children }: { children: ComponentChildren }) {
  useShortcuts();
  const { path } = place.value;
  const main = useRef<HTMLElement>(null);
  const before = useRef(path);
  useEffect(() => {
    isMenuOpen.value = false;
    if (before.current !== path) main.current?.focus({ preventScroll: true });
    before.current = path;
  }, [path]);
  return (
    <div class={`frame ${isMenuOpen.value ? "menu-open" : ""}`}>
      <a class="skip" href="#main">
        To the content
      </a>
      <div class={`line ${pending.value ? "busy" : ""}`} aria-hidden="true" />
      <nav class="ways" aria-label="Pages" id="ways">
        <Link to="/" class="brand">
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <rect width="32" height="32" rx="7" />
            <path d="M7 9h8c5 0 4 14 10 14" />
          </svg>
          <span>Millpond</span>
        </Link>
        {WAYS.map((way) => (
          <Link key={way.to} to={way.to} query={whose()} class="way" current={isAt(way.to, path)}>
            <span>{way.title}</span>
            {way.note?.() ? <span class="way-note">{count(way.note() ?? 0)}</span> : null}
          </Link>
        ))}
        <Who />
      </nav>
      <header class="bar">
        <button
          type="button"
          class="menu"
          aria-expanded={isMenuOpen.value}
          aria-controls="ways"
          onClick={() => (isMenuOpen.value = !isMenuOpen.value)}
        >
          Menu
        </button>
        <Search />
        <TenantMark />
        {session.value?.is_development && (
          <span class="dev" title="Served by millpond up, with the keys of a developer">
            DEV
          </span>
        )}
        <Live />
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {children}
      </main>
      <Toasts />
      <Dialogs />
      <Secrets />
      <Help />
    </div>
  );
}

/** The tenant that is looked at, as a query; nothing where all are. */
export function whose(): { tenant?: string } {
  const tenant = place.value.query.get("tenant");
  return tenant ? { tenant } : {};
}

function isAt(way: string, path: string): boolean {
  if (way === "/") return path === "/";
  return path === way || path.startsWith(`${way}/`) || (way === "/webhooks" && path.startsWith("/deliveries/"));
}

function TenantMark() {
  const tenant = session.value?.tenant ?? place.value.query.get("tenant");
  if (!tenant) return null;
  return (
    <span class="tenant" title="Only this tenant is shown">
      {tenant}
      {!session.value?.tenant && (
        <button type="button" class="copy" aria-label="Show all tenants" onClick={() => setQuery({ tenant: null })}>
          ✕
        </button>
      )}
    </span>
  );
}

const LIVENESS: Record<Liveness, string> = {
  live: "live",
  paused: "paused",
  manual: "by hand",
  lost: "connection lost",
  off: "…",
};

function Live() {
  const at = heardAt.value;
  return (
    <button type="button" class={`live ${liveness.value}`} onClick={() => refresh()} title="Look again now">
      <span class="dot" aria-hidden="true" />
      {LIVENESS[liveness.value]}
      {at && <span class="as-of"> as of {clock(at)}</span>}
    </button>
  );
}

function Who() {
  const found = session.value;
  if (!found) return null;
  return (
    <div class="who">
      <label class="theme">
        <span>Theme</span>
        <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
          <option value="auto">as the system</option>
          <option value="light">light</option>
          <option value="dark">dark</option>
        </select>
      </label>
      <p>
        <strong>{nameOf(found)}</strong>
        <br />
        <span class="soft">
          {role.value}
          {found.tenant && ` of ${found.tenant}`}
        </span>
      </p>
      <button type="button" class="small" onClick={() => signOut()}>
        Sign out
      </button>
      <button type="button" class="small" onClick={() => (isHelpOpen.value = true)}>
        Keys
      </button>
      <p class="soft version">Millpond {found.version}</p>
    </div>
  );
}

// Search

/** What is found, and where it leads. */
export function placeOf(thing: FoundItem): { to: string; query: Record<string, string> } {
  const of: Record<string, string> = thing.tenant ? { of: thing.tenant } : {};
  const id = part(thing.id);
  switch (thing.type) {
    case "job":
      return { to: `/jobs/${id}`, query: of };
    case "worker":
      return { to: `/fleet/${id}`, query: {} };
    case "endpoint":
      return { to: `/webhooks/${id}`, query: of };
    case "delivery":
      return { to: `/deliveries/${id}`, query: of };
    case "errand":
      return { to: `/errands/${id}`, query: {} };
    case "kind":
      return { to: `/kinds/${id}`, query: {} };
    case "queue":
      return { to: "/kinds", query: { queue: thing.id } };
    case "tenant":
      return { to: `/access/${id}`, query: {} };
    case "account":
      return { to: `/credits/${part(thing.tenant ?? "")}/${id}`, query: {} };
    case "key":
      return { to: "/access", query: { key: thing.id } };
    default:
      return { to: "/audit", query: { subject: thing.id } };
  }
}

/** What a filter of jobs is made of: the words of the search box, and the query of the page of jobs. */
export const FILTERS = [
  ...["tenant", "account", "kind", "state", "phase", "outcome"],
  ...["error", "fingerprint", "stage", "since", "until"],
] as const;

/** Whether it is a filter of jobs, such as `state:failed kind:image.*`. */
const FILTER = new RegExp(`(^|\\s)(${FILTERS.join("|")}):`);

/** The filter of the page of jobs, as words for the search box. */
export function filterWords(filter: Record<string, unknown>): string {
  return FILTERS.filter((name) => filter[name])
    .map((name) => `${name}:${filter[name]}`)
    .join(" ");
}

/** The words of the search box as the query of the page of jobs. */
export function filterOf(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const word of text.trim().split(/\s+/)) {
    const [name, ...rest] = word.split(":");
    if (name && rest.length && rest.join(":")) found[name] = rest.join(":");
  }
  return found;
}

function Search() {
  const [things, setThings] = useState<FoundItem[] | null>(null);
  const [isNone, setNone] = useState(false);
  const box = useRef<HTMLInputElement>(null);
  const close = () => {
    setThings(null);
    setNone(false);
  };
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const text = box.current?.value.trim() ?? "";
    const isAtJobs = place.value.path === "/jobs"; // where the box tells the whole filter
    if (!text && !isAtJobs) return;
    if (!text || FILTER.test(` ${text}`)) {
      go("/jobs", { ...(isAtJobs ? {} : whose()), ...filterOf(text) });
      close();
      return;
    }
    try {
      const { data } = await get<Found>("find", { q: text });
      const [only] = data;
      if (data.length === 1 && only) {
        const { to, query } = placeOf(only);
        go(to, query);
        close();
        if (box.current) box.current.value = "";
      } else {
        setThings(data);
        setNone(!data.length);
      }
    } catch (error) {
      toast(asProblem(error).message, "bad");
    }
  };
  const { path, query } = place.value;
  const words = path === "/jobs" ? filterWords(Object.fromEntries(query)) : "";
  useEffect(close, [path]);
  useEffect(() => {
    if (box.current) box.current.value = words;
  }, [words]);
  return (
    <search class="search" onKeyDown={(event) => event.key === "Escape" && close()}>
      <form onSubmit={submit}>
        <input
          ref={box}
          id="search"
          type="search"
          placeholder="Paste any id, or state:failed kind:image.* since:24h"
          aria-label="Search: an id, a name, or a filter of jobs"
          autocomplete="off"
          spellcheck={false}
        />
        <span class="search-key" aria-hidden="true">
          /
        </span>
      </form>
      {(things?.length || isNone) && (
        <div class="found" role="region" aria-label="What was found">
          {isNone && <p class="soft">Nothing has this id or name.</p>}
          {things?.map((thing) => {
            const { to, query } = placeOf(thing);
            return (
              <Link key={`${thing.type}${thing.id}`} to={to} query={query}>
                <span class="badge quiet">{thing.type}</span> {thing.title} <code class="soft">{thing.id}</code>
              </Link>
            );
          })}
        </div>
      )}
    </search>
  );
}

// Keys

let isGoing = false;

function useShortcuts(): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (target.closest("input, textarea, select, dialog")) return;
      const way = isGoing ? WAYS.find((each) => each.key === event.key) : undefined;
      isGoing = false;
      if (way) {
        event.preventDefault();
        go(way.to, whose());
      } else if (event.key === "/") {
        event.preventDefault();
        document.getElementById("search")?.focus();
      } else if (event.key === "?") isHelpOpen.value = true;
      else if (event.key === "g") isGoing = true;
      else if (event.key === ".") refresh();
      else if ((event.key === "j" || event.key === "k") && !target.closest("tbody"))
        document.querySelector<HTMLElement>("main tbody tr[tabindex]")?.focus();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function Help() {
  const box = useRef<HTMLDialogElement>(null);
  const isOpen = isHelpOpen.value;
  useEffect(() => {
    if (isOpen) box.current?.showModal();
  }, [isOpen]);
  if (!isOpen) return null;
  return (
    <dialog ref={box} onClose={() => (isHelpOpen.value = false)} aria-labelledby="help">
      <form method="dialog">
        <h2 id="help">Keys</h2>
        <dl class="facts keys">
          {[
            ["/", "search"],
            ["j k", "next and previous row"],
            ["Enter", "open the row"],
            ["x", "select the row"],
            [".", "look again now"],
            ...WAYS.map((way) => [`g ${way.key}`, way.title]),
          ].map(([key, what]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <p class="soft">On a job: r retries it, c cancels it. Both ask first.</p>
        <div class="acts">
          <button type="submit" class="main">
            Close
          </button>
        </div>
      </form>
    </dialog>
  );
}
