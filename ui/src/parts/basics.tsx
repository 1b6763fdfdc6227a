// Basic components of pages.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Problem, session } from "../api";
import { Link, part } from "../router";
import { between, clock, day, number, plain, shortId, span } from "../words";
import { toast } from "./toasts";

export type Tone = "good" | "bad" | "warn" | "info" | "quiet" | "main";

// Panels and pages

interface PageProps {
  title: string;
  /** Badges or a sentence beside the title. */
  aside?: ComponentChildren;
  acts?: ComponentChildren;
  /** The title of the browser tab, if it differs. */
  tab?: string;
  children: ComponentChildren;
}

export function Page({ title, aside, acts, tab, children }: PageProps) {
  useEffect(() => {
    document.title = `${tab ?? title} · Millpond`;
  }, [title, tab]);
  return (
    <>
      <header class="page-head">
        <h1>{title}</h1>
        {aside && <div class="page-aside">{aside}</div>}
        {acts && <div class="acts">{acts}</div>}
      </header>
      {children}
    </>
  );
}

/** A page about all tenants, which a key of one tenant may not read. */
export function ForAll({ title, children }: { title: string; children: ComponentChildren }) {
  if (!session.value?.tenant) return <>{children}</>;
  return (
    <Page title={title}>
      <Empty title="This page covers all tenants.">
        <p>Your key is limited to {session.value.tenant}. Use a key without a tenant to view this page.</p>
      </Empty>
    </Page>
  );
}

interface PanelProps {
  title?: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
  class?: string;
  id?: string;
}

export function Panel({ title, aside, children, class: name = "", id }: PanelProps) {
  return (
    <section class={`panel ${name}`} id={id} aria-label={title}>
      {(title || aside) && (
        <header class="panel-head">
          {title && <h2>{title}</h2>}
          {aside && <div class="panel-aside">{aside}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

interface TileProps {
  label: string;
  value: ComponentChildren;
  /** A few words below the number. */
  note?: ComponentChildren;
  tone?: Tone;
  to?: string;
  query?: Record<string, string>;
}

/** One number with a label, and a link to its details. */
export function Tile({ label, value, note, tone = "quiet", to, query }: TileProps) {
  const inside = (
    <>
      <span class="tile-label">{label}</span>
      <strong class="tile-value">{value}</strong>
      <span class="tile-note">{note}</span>
    </>
  );
  return to ? (
    <Link to={to} query={query ?? {}} class={`tile ${tone}`}>
      {inside}
    </Link>
  ) : (
    <div class={`tile ${tone}`}>{inside}</div>
  );
}

// Badges

export function Badge({
  tone = "quiet",
  children,
  title,
}: {
  tone?: Tone;
  children: ComponentChildren;
  title?: string;
}) {
  return (
    <span class={`badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

const OUTCOMES: Record<string, Tone> = {
  succeeded: "good",
  failed: "bad",
  expired: "bad",
  blocked: "warn",
  canceled: "quiet",
};
const PHASES: Record<string, Tone> = {
  ready: "info",
  waiting: "quiet",
  leased: "main",
  parked: "warn",
  delivering: "info",
};

/** The colour of a phase or an outcome. */
export function toneOf(phase: string, outcome: string | null): Tone {
  return outcome ? (OUTCOMES[outcome] ?? "quiet") : (PHASES[phase] ?? "quiet");
}

/** The state of a job as its lifecycle names it, in the colour of its phase or outcome. */
export function StateBadge({ state, phase, outcome }: { state: string; phase: string; outcome: string | null }) {
  return (
    <Badge tone={toneOf(phase, outcome)} title={outcome ?? phase}>
      {plain(state)}
    </Badge>
  );
}

const VERDICTS: Record<string, Tone> = { ok: "good", busy: "info", paused: "warn", stuck: "bad", unserved: "bad" };

export function Verdict({ verdict, reason }: { verdict: string; reason?: string }) {
  return (
    <Badge tone={VERDICTS[verdict] ?? "quiet"} {...(reason ? { title: reason } : {})}>
      {verdict}
    </Badge>
  );
}

// Times and amounts

/** The current time, updated once a second, for displayed ages. */
export function useNow(every = 1000): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setNow(new Date()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** How long ago something was; the exact time is in its title. */
export function Ago({ at, none = "never" }: { at: string | null | undefined; none?: string }) {
  const now = useNow();
  if (!at) return <span class="soft">{none}</span>;
  const seconds = between(at, now) ?? 0;
  return (
    <time dateTime={at} title={at}>
      {seconds >= 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`}
    </time>
  );
}

export function Instant({ at, none = "–" }: { at: string | null | undefined; none?: string }) {
  if (!at) return <span class="soft">{none}</span>;
  const isToday = new Date(at).toDateString() === new Date().toDateString();
  return (
    <time dateTime={at} title={at}>
      {isToday ? clock(at) : day(at)}
    </time>
  );
}

export function Credits({ value, sign = false }: { value: number; sign?: boolean }) {
  const text = `${sign && value > 0 ? "+" : ""}${number(value)}`.replace("-", "−");
  return (
    <span class={`credits ${sign ? (value < 0 ? "minus" : value > 0 ? "plus" : "") : ""}`}>
      {text}
      <abbr title="credits">cr</abbr>
    </span>
  );
}

export function Progress({ value, label }: { value: number; label: string }) {
  return <progress max={1} value={value} aria-label={label} title={`${Math.round(value * 100)} %`} />;
}

// Ids

const PLACES: Record<string, string> = {
  job: "/jobs",
  worker: "/fleet",
  ep: "/webhooks",
  msg: "/deliveries",
  bulk: "/bulk",
  sched: "/schedules",
  batch: "/batches",
};

/** An id with a link to its page and a button to copy it. */
export function Id({ id, tenant, whole = false }: { id: string; tenant?: string | null; whole?: boolean }) {
  const base = PLACES[id.slice(0, id.indexOf("_"))];
  const text = whole ? id : shortId(id);
  return (
    <span class="id">
      {base ? (
        <Link to={`${base}/${part(id)}`} query={tenant ? { of: tenant } : {}} title={id}>
          <code>{text}</code>
        </Link>
      ) : (
        <code title={id}>{text}</code>
      )}
      <Copy text={id} what="id" />
    </span>
  );
}

interface CopyProps {
  text: string;
  what: string;
  label?: string;
  /** Called too, for instance to select the text for browsers that do not let pages copy. */
  onCopy?: () => void;
}

export function Copy({ text, what, label, onCopy }: CopyProps) {
  const copy = async () => {
    onCopy?.();
    try {
      await navigator.clipboard.writeText(text);
      toast(`Copied the ${what}.`);
    } catch {
      toast(`The browser blocked copying. Select the ${what} and copy it manually.`, "warn");
    }
  };
  return (
    <button
      type="button"
      class={label ? "small" : "copy"}
      onClick={copy}
      aria-label={label ? undefined : `Copy the ${what}`}
    >
      {label ?? (
        <svg viewBox="0 0 16 16" class="icon" aria-hidden="true">
          <path d="M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3" />
        </svg>
      )}
    </button>
  );
}

// Lists of facts

export function Facts({ children }: { children: ComponentChildren }) {
  return <dl class="facts">{children}</dl>;
}

export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

// Empty, loading and failed states

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <svg viewBox="0 0 64 32" aria-hidden="true">
        <path d="M4 8h20c14 0 10 16 36 16" />
      </svg>
      <p class="empty-title">{title}</p>
      {children && <div class="soft">{children}</div>}
    </div>
  );
}

export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, index) => (
        <span key={index} />
      ))}
    </div>
  );
}

/** An error of the server, with its hint. */
export function Trouble({ problem, retry }: { problem: Problem; retry?: () => void }) {
  return (
    <div class="trouble" role="alert">
      <p>
        <strong>
          {problem.field && `${problem.field}: `}
          {problem.message}
        </strong>
      </p>
      {problem.hint && <p>{problem.hint}</p>}
      <p class="soft">
        {problem.code && <code>{problem.code}</code>} {problem.request && <>request {problem.request}</>}
        {retry && (
          <button type="button" class="small" onClick={retry}>
            Try again
          </button>
        )}
      </p>
    </div>
  );
}

interface WaitingProps<T> {
  of: { value: T | null; problem: Problem | null; isLoading: boolean; reload: () => void };
  lines?: number;
  children: (value: T) => ComponentChildren;
}

/** The three states of loaded data: loading, failed, or present (and possibly out of date). */
export function Show<T>({ of, lines, children }: WaitingProps<T>) {
  if (of.value !== null)
    return (
      <>
        {of.problem && <p class="stale">Out of date: {of.problem.message}</p>}
        {children(of.value)}
      </>
    );
  if (of.problem) return <Trouble problem={of.problem} retry={of.reload} />;
  return <Skeleton {...(lines ? { lines } : {})} />;
}

// Buttons

interface ButtonProps {
  title?: string;
  "aria-label"?: string;
  "aria-expanded"?: boolean;
  tone?: "main" | "bad" | "plain" | "small";
  disabled?: boolean;
  /** Why the button is disabled; shown as its title. */
  because?: string | undefined;
  onClick: () => unknown;
  children: ComponentChildren;
}

/** A button that is disabled while its action is running. */
export function Button({ tone = "plain", onClick, disabled, because, children, ...more }: ButtonProps) {
  const isBusy = useSignal(false);
  const press = async () => {
    isBusy.value = true;
    try {
      await onClick();
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <button
      type="button"
      {...more}
      class={tone}
      onClick={press}
      disabled={Boolean(disabled) || Boolean(because) || isBusy.value}
      aria-busy={isBusy.value}
      title={because ?? more.title}
    >
      {children}
    </button>
  );
}

export interface Tab {
  name: string;
  title: ComponentChildren;
}

/** Tabs. The caller keeps the choice, usually in the URL. */
export function Tabs({
  tabs,
  chosen,
  onChoose,
  label,
}: {
  tabs: Tab[];
  chosen: string;
  onChoose: (name: string) => void;
  label: string;
}) {
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const index = tabs.findIndex((tab) => tab.name === chosen);
    const next = tabs[(index + step + tabs.length) % tabs.length];
    if (!next) return;
    onChoose(next.name);
    const list = event.currentTarget as HTMLElement;
    requestAnimationFrame(() => list.querySelector<HTMLElement>('[aria-selected="true"]')?.focus());
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.name}
          type="button"
          role="tab"
          id={`tab-${tab.name}`}
          aria-selected={tab.name === chosen}
          tabIndex={tab.name === chosen ? 0 : -1}
          onClick={() => onChoose(tab.name)}
        >
          {tab.title}
        </button>
      ))}
    </div>
  );
}
