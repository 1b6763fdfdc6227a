// The frame around every page: navigation, search box, live status and the signed-in user.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, get, nameOf, pending, role, session, signOut } from "../api";
import { board, type Liveness, liveness, refresh, updatedAt } from "../live";
import { go, Link, part, place, setQuery } from "../router";
import { type Theme, theme } from "../theme";
import type { SearchResult, SearchResults } from "../wire";
import { clock, count } from "../words";
import { Dialogs, Secrets } from "./dialogs";
import { Toasts, toast } from "./toasts";

interface NavItem {
  to: string;
  title: string;
  key: string;
  /** A number beside the title: how many things need attention. */
  note?: () => number | null;
}

const NAV: readonly NavItem[] = [
  { to: "/", title: "Overview", key: "o", note: () => board.value?.alarms.length ?? null },
  { to: "/jobs", title: "Jobs", key: "j" },
  { to: "/batches", title: "Batches", key: "t" },
  { to: "/kinds", title: "Kinds and queues", key: "k" },
  { to: "/schedules", title: "Schedules", key: "d" },
  { to: "/fleet", title: "Fleet", key: "f", note: () => board.value?.workers.deaf ?? null },
  { to: "/failures", title: "Failures", key: "x" },
  { to: "/credits", title: "Credits", key: "c" },
  { to: "/webhooks", title: "Webhooks", key: "w", note: () => board.value?.webhooks_failing ?? null },
  { to: "/playground", title: "Playground", key: "p" },
  { to: "/bulk", title: "Bulk operations", key: "b" },
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
        Skip to content
      </a>
      <div class={`line ${pending.value ? "busy" : ""}`} aria-hidden="true" />
      <nav class="nav" aria-label="Pages" id="nav">
        <Link to="/" class="brand">
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <rect width="32" height="32" rx="7" />
            <path d="M7 9h8c5 0 4 14 10 14" />
          </svg>
          <span>Millpond</span>
        </Link>
        {NAV.map((item) => (
          <Link key={item.to} to={item.to} query={chosenTenant()} class="nav-link" current={isAt(item.to, path)}>
            <span>{item.title}</span>
            {item.note?.() ? <span class="nav-note">{count(item.note() ?? 0)}</span> : null}
          </Link>
        ))}
        <UserPanel />
      </nav>
      <header class="bar">
        <button
          type="button"
          class="menu"
          aria-expanded={isMenuOpen.value}
          aria-controls="nav"
          onClick={() => (isMenuOpen.value = !isMenuOpen.value)}
        >
          Menu
        </button>
        <Search />
        <TenantBadge />
        {session.value?.is_development && (
          <span class="dev" title="Development server (millpond up)">
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

/** The selected tenant as a query; empty if all tenants are shown. */
export function chosenTenant(): { tenant?: string } {
  const tenant = place.value.query.get("tenant");
  return tenant ? { tenant } : {};
}

function isAt(item: string, path: string): boolean {
  if (item === "/") return path === "/";
  return path === item || path.startsWith(`${item}/`) || (item === "/webhooks" && path.startsWith("/deliveries/"));
}

function TenantBadge() {
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
  manual: "manual refresh",
  lost: "connection lost",
  off: "…",
};

function Live() {
  const at = updatedAt.value;
  return (
    <button type="button" class={`live ${liveness.value}`} onClick={() => refresh()} title="Refresh">
      <span class="dot" aria-hidden="true" />
      {LIVENESS[liveness.value]}
      {at && <span class="as-of"> as of {clock(at)}</span>}
    </button>
  );
}

function UserPanel() {
  const found = session.value;
  if (!found) return null;
  return (
    <div class="who">
      <label class="theme">
        <span>Theme</span>
        <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
          <option value="auto">system</option>
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
        Shortcuts
      </button>
      <p class="soft version">Millpond {found.version}</p>
    </div>
  );
}

// Search

/** The page of a search result. */
export function placeOf(result: SearchResult): { to: string; query: Record<string, string> } {
  const of: Record<string, string> = result.tenant ? { of: result.tenant } : {};
  const id = part(result.id);
  switch (result.type) {
    case "job":
      return { to: `/jobs/${id}`, query: of };
    case "worker":
      return { to: `/fleet/${id}`, query: {} };
    case "endpoint":
      return { to: `/webhooks/${id}`, query: of };
    case "delivery":
      return { to: `/deliveries/${id}`, query: of };
    case "bulk_operation":
      return { to: `/bulk/${id}`, query: {} };
    case "batch":
      return { to: `/batches/${id}`, query: of };
    case "schedule":
      return { to: `/schedules/${id}`, query: {} };
    case "kind":
      return { to: `/kinds/${id}`, query: {} };
    case "queue":
      return { to: "/kinds", query: { queue: result.id } };
    case "tenant":
      return { to: `/access/${id}`, query: {} };
    case "account":
      return { to: `/credits/${part(result.tenant ?? "")}/${id}`, query: {} };
    case "key":
      return { to: "/access", query: { key: result.id } };
    default:
      return { to: "/audit", query: { subject: result.id } };
  }
}

/** The names of job filters, both in the search box and in the query of the jobs page. */
export const FILTERS = [
  ...["tenant", "account", "kind", "state", "phase", "outcome"],
  ...["error", "fingerprint", "stage", "tag", "since", "until"],
] as const;

/** Matches a job filter, such as `state:failed kind:image.*`. */
const FILTER = new RegExp(`(^|\\s)(${FILTERS.join("|")}):`);

/** The filter of the jobs page, as text for the search box. */
export function filterWords(filter: Record<string, unknown>): string {
  return FILTERS.filter((name) => filter[name])
    .flatMap((name) => [filter[name]].flat().map((value) => `${name}:${value}`))
    .join(" ");
}

/** The text of the search box, as the query of the jobs page. */
export function filterOf(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const word of text.trim().split(/\s+/)) {
    const [name, ...rest] = word.split(":");
    if (name && rest.length && rest.join(":")) found[name] = rest.join(":");
  }
  return found;
}

function Search() {
  const [results, setResults] = useState<SearchResult[] | null>(null);
  const [isNone, setNone] = useState(false);
  const box = useRef<HTMLInputElement>(null);
  const close = () => {
    setResults(null);
    setNone(false);
  };
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const text = box.current?.value.trim() ?? "";
    const isAtJobs = place.value.path === "/jobs"; // where the box contains the whole filter
    if (!text && !isAtJobs) return;
    if (!text || FILTER.test(` ${text}`)) {
      go("/jobs", { ...(isAtJobs ? {} : chosenTenant()), ...filterOf(text) });
      close();
      return;
    }
    try {
      const { data } = await get<SearchResults>("search", { q: text });
      const [only] = data;
      if (data.length === 1 && only) {
        const { to, query } = placeOf(only);
        go(to, query);
        close();
        if (box.current) box.current.value = "";
      } else {
        setResults(data);
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
          placeholder="Search by id, or state:failed kind:image.* since:24h"
          aria-label="Search by id, name or job filter"
          autocomplete="off"
          spellcheck={false}
        />
        <span class="search-key" aria-hidden="true">
          /
        </span>
      </form>
      {(results?.length || isNone) && (
        <div class="found" role="region" aria-label="Search results">
          {isNone && <p class="soft">No results.</p>}
          {results?.map((result) => {
            const { to, query } = placeOf(result);
            return (
              <Link key={`${result.type}${result.id}`} to={to} query={query}>
                <span class="badge quiet">{result.type}</span> {result.title} <code class="soft">{result.id}</code>
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
      const item = isGoing ? NAV.find((each) => each.key === event.key) : undefined;
      isGoing = false;
      if (item) {
        event.preventDefault();
        go(item.to, chosenTenant());
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
        <h2 id="help">Keyboard shortcuts</h2>
        <dl class="facts keys">
          {[
            ["/", "search"],
            ["j k", "next and previous row"],
            ["Enter", "open the row"],
            ["x", "select the row"],
            [".", "refresh"],
            ...NAV.map((item) => [`g ${item.key}`, item.title]),
          ].map(([key, what]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <p class="soft">On a job page: r retries the job, c cancels it. Both ask for confirmation.</p>
        <div class="acts">
          <button type="submit" class="main">
            Close
          </button>
        </div>
      </form>
    </dialog>
  );
}
