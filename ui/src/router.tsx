// The current path and query. Filters are part of the URL, so that a view can be sent to a colleague.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

/** The path under which the dashboard is served, such as `/ui`. */
export const ROOT = document.documentElement.dataset["root"] ?? "/ui";

export interface Place {
  /** Below the root: `/jobs/job_01k…`. */
  path: string;
  query: URLSearchParams;
}

export type Changes = Record<string, string | number | boolean | null | undefined>;

export const place = signal<Place>(read());

function read(): Place {
  const below = location.pathname.startsWith(ROOT) ? location.pathname.slice(ROOT.length) : "/";
  return { path: below || "/", query: new URLSearchParams(location.search) };
}

addEventListener("popstate", () => {
  place.value = read();
});

/** The URL of a path below the root. Null and empty values are left out of the query. */
export function href(path: string, query: Changes = {}): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) found.set(name, String(value));
  }
  const text = found.toString();
  return `${ROOT}${path}${text ? `?${text}` : ""}`;
}

export function go(path: string, query: Changes = {}, { replace = false } = {}): void {
  const address = href(path, query);
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  place.value = read();
  if (!replace) scrollTo(0, 0);
}

/** Change a part of the query, and keep the path. */
export function setQuery(changes: Changes, options: { replace?: boolean } = { replace: true }): void {
  const query: Changes = Object.fromEntries(place.value.query);
  go(place.value.path, { ...query, ...changes }, options);
}

/** The variable parts of a path that matches a pattern such as `/jobs/{id}`; null if it does not match. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.replace(/(.)\/$/, "$1").split("/");
  if (wanted.length !== given.length) return null;
  const found: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? "";
    if (part.startsWith("{")) {
      if (!value) return null;
      found[part.slice(1, -1)] = unescaped(value);
    } else if (part !== value) return null;
  }
  return found;
}

interface LinkProps {
  to: string;
  query?: Changes;
  class?: string;
  title?: string;
  current?: boolean;
  label?: string;
  children?: ComponentChildren;
}

/** A link inside the dashboard, with a real URL, that opens without loading a new document. */
export function Link({ to, query = {}, class: name, title, current, label, children }: LinkProps) {
  const open = (event: MouseEvent) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
      return;
    event.preventDefault();
    go(to, query);
  };
  return (
    <a
      href={href(to, query)}
      onClick={open}
      class={name}
      title={title}
      aria-label={label}
      aria-current={current ? "page" : undefined}
    >
      {children}
    </a>
  );
}

/** A part of a path, unescaped. Text that is not validly escaped is returned unchanged. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** One part of a path, escaped. */
export function part(text: string): string {
  return encodeURIComponent(text);
}
