// The jobs: filtered by the query of the URL, with actions on selected jobs or on all that match.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { asProblem, get, type Problem, refusal, session } from "../api";
import { useLoaded } from "../live";
import {
  Badge,
  Button,
  Copy,
  Empty,
  Id,
  Instant,
  Page,
  Panel,
  Progress,
  Show,
  StateBadge,
  Trouble,
  useNow,
} from "../parts/basics";
import { ACTIONS, type Action, bulk, forbidden } from "../parts/bulk";
import { isAsking } from "../parts/dialogs";
import { Picked, Typed } from "../parts/filters";
import { FILTERS } from "../parts/frame";
import { type Column, Pager, Table } from "../parts/table";
import { go, Link, part, place, setQuery } from "../router";
import type { JobFilter, JobSummaries, JobSummary, Kinds } from "../wire";
import { between, number, plain, plural, span } from "../words";
import "./jobs.css";

const LIMIT = 50;

type Filter = Partial<Record<(typeof FILTERS)[number], string>>;

/** The filter in the URL. */
function useFilter(): Filter {
  const { query } = place.value;
  const key = query.toString();
  return useMemo(
    () => Object.fromEntries(FILTERS.flatMap((name) => (query.get(name) ? [[name, query.get(name)]] : []))),
    [key],
  );
}

function clearFilter(): void {
  setQuery(Object.fromEntries([...FILTERS, "cursor"].map((name) => [name, null])), { replace: false });
}

export function Jobs() {
  const filter = useFilter();
  const cursor = place.value.query.get("cursor");
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [isAll, setAll] = useState(false);
  const [isHovered, setHovered] = useState(false);
  const found = useLoaded(
    (signal) => get<JobSummaries>("board/jobs", { ...filter, cursor, limit: LIMIT }, signal),
    [filter, cursor],
  );
  const key = JSON.stringify([filter, cursor]);
  useEffect(() => {
    setSelected(new Set());
    setAll(false);
  }, [key]);
  const select = (next: ReadonlySet<string>) => {
    setAll(false); // removing a row ends the selection of all
    setSelected(next);
  };
  const isHeld = selected.size > 0 || isAll || isHovered || isAsking.value;
  const { page, newer, show } = useStableRows(found.value, isHeld, key);
  const isFiltered = Object.keys(filter).length > 0;
  const { tag, ...others } = filter;
  const matching = { ...others, ...(tag && { tag: [tag] }) } as JobFilter;
  const target: JobFilter = isAll || !selected.size ? matching : { ids: [...selected] };
  return (
    <Page title="Jobs" acts={<NewJob />}>
      <Panel>
        <Filters filter={filter} />
      </Panel>
      <Panel title="Results">
        <Show of={{ ...found, value: page }} lines={8}>
          {(summaries) =>
            !summaries.data.length && !cursor && !summaries.next_cursor ? (
              isFiltered ? (
                <NoMatches />
              ) : (
                <NoJobs />
              )
            ) : (
              <div
                onPointerEnter={(event) => event.pointerType === "mouse" && setHovered(true)}
                onPointerLeave={() => setHovered(false)}
              >
                <Bar
                  selected={selected}
                  isAll={isAll}
                  isFiltered={isFiltered}
                  target={target}
                  onPage={() => select(new Set(summaries.data.map((summary) => summary.id)))}
                  onAll={() => setAll(true)}
                  onClear={() => select(new Set())}
                />
                {newer > 0 && (
                  <button type="button" class="jobs-newer" onClick={show}>
                    Show {plural(newer, "newer job")}
                  </button>
                )}
                {summaries.data.length > 0 && (
                  <div class="jobs-list">
                    <Summaries summaries={summaries.data} selected={selected} isAll={isAll} onSelect={select} />
                  </div>
                )}
                <SearchProgress key={key} page={summaries} filter={filter} />
                <Pager next={summaries.next_cursor} />
              </div>
            )
          }
        </Show>
      </Panel>
    </Page>
  );
}

/** Keeps the rows and their order while `isHeld`, so that they do not move; the state of each row is still updated. */
function useStableRows(value: JobSummaries | null, isHeld: boolean, key: string) {
  const kept = useRef<{ key: string; page: JobSummaries } | null>(null);
  const [, again] = useState(0);
  if (value && (!isHeld || kept.current?.key !== key)) kept.current = { key, page: value };
  if (kept.current?.key !== key) return { page: value, newer: 0, show: () => {} };
  const { page } = kept.current;
  const fresh = new Map(value?.data.map((summary) => [summary.id, summary]));
  const known = new Set(page.data.map((summary) => summary.id));
  const first = page.data[0]?.id ?? "";
  return {
    page: { ...page, data: page.data.map((summary) => fresh.get(summary.id) ?? summary) },
    newer: value?.data.filter((summary) => !known.has(summary.id) && summary.id > first).length ?? 0,
    show: () => {
      if (value) kept.current = { key, page: value };
      again((count) => count + 1);
    },
  };
}

function NewJob() {
  return (
    <Link to="/playground" class="button">
      Submit a job
    </Link>
  );
}

function NoMatches() {
  return (
    <Empty title="No jobs match this filter.">
      <p>
        <Button onClick={clearFilter}>Clear the filter</Button>
      </p>
    </Empty>
  );
}

function NoJobs() {
  const command = `millpond run hello --input name=Ada`;
  return (
    <Empty title="No jobs yet.">
      <p>
        A job is one unit of work of a kind. It waits in a queue, a worker runs it, and its price is held until it ends.
      </p>
      <p>
        Submit one: <code>{command}</code> <Copy text={command} what="command" />
      </p>
      <p>
        or use the form in the <Link to="/playground">playground</Link>.
      </p>
    </Empty>
  );
}

// The filter

const STATES = [
  ["", "Any"],
  ["phase:waiting", "Waiting (scheduled)"],
  ["phase:ready", "Ready (queued)"],
  ["phase:leased", "Running"],
  ["phase:parked", "Parked"],
  ["phase:delivering", "Delivering"],
  ["phase:ended", "Ended"],
  ["outcome:succeeded", "Succeeded"],
  ["outcome:failed", "Failed"],
  ["outcome:canceled", "Canceled"],
  ["outcome:expired", "Expired"],
  ["outcome:blocked", "Blocked"],
] as const;

const TIMES = [
  ["", "Any time"],
  ["15m", "The last 15 minutes"],
  ["1h", "The last hour"],
  ["24h", "The last 24 hours"],
  ["7d", "The last 7 days"],
  ["30d", "The last 30 days"],
] as const;

/** Filters without a field of their own, or in addition to one: shown as chips that can be removed. */
const CHIPS = ["state", "stage", "error", "fingerprint", "tag", "until"] as const;

function Filters({ filter }: { filter: Filter }) {
  const kinds = useLoaded((signal) => get<Kinds>("kinds", {}, signal), [], { live: false });
  const change = (changes: Filter | Record<string, string | null>) =>
    setQuery({ ...changes, cursor: null }, { replace: false });
  const state = filter.outcome ? `outcome:${filter.outcome}` : filter.phase ? `phase:${filter.phase}` : "";
  const names = kinds.value?.data.map((kind) => kind.name) ?? [];
  const isOfAll = !session.value?.tenant;
  const chips = CHIPS.filter((name) => filter[name]);
  return (
    <search>
      <div class="filter-row">
        <Typed label="Kind" hint="image.*" value={filter.kind} options={names} onValue={(kind) => change({ kind })} />
        <Picked
          label="State"
          value={state}
          options={STATES}
          onValue={(value) => {
            const [name, word] = value.split(":");
            change({ phase: null, outcome: null, ...(name ? { [name]: word ?? null } : {}) });
          }}
        />
        {isOfAll && (
          <Typed label="Tenant" value={filter.tenant} onValue={(tenant) => change({ tenant, account: null })} />
        )}
        <Typed
          label="Account"
          value={filter.account}
          isDisabled={isOfAll && !filter.tenant && !filter.account}
          {...(isOfAll && !filter.tenant ? { hint: "select a tenant" } : {})}
          onValue={(account) => change({ account })}
        />
        <Picked
          label="Submitted"
          value={filter.since ?? ""}
          options={TIMES}
          other={(since) => `since ${since}`}
          onValue={(since) => change({ since })}
        />
        {Object.keys(filter).length > 0 && <Button onClick={clearFilter}>Clear</Button>}
      </div>
      {chips.length > 0 && (
        <div class="jobs-chips">
          {chips.map((name) => (
            <span key={name} class="jobs-chip">
              {name}: {filter[name]}
              <button
                type="button"
                class="copy"
                aria-label={`Remove ${name} from the filter`}
                onClick={() => change({ [name]: null })}
              >
                ✕
              </button>
            </span>
          ))}
        </div>
      )}
    </search>
  );
}

// Bulk actions

interface BarProps {
  selected: ReadonlySet<string>;
  isAll: boolean;
  isFiltered: boolean;
  target: JobFilter;
  onPage: () => void;
  onAll: () => void;
  onClear: () => void;
}

const VERBS: Record<Action, string> = {
  retry: "Retry",
  cancel: "Cancel",
  refund: "Refund",
  priority: "Priority",
  export: "Export",
};

function Bar({ selected, isAll, isFiltered, target, onPage, onAll, onClear }: BarProps) {
  const all = isFiltered ? "all matching jobs" : "all jobs";
  const isChosen = isAll || selected.size > 0;
  return (
    <div class={`jobs-bar ${isChosen ? "chosen" : ""}`} role="group" aria-label="Bulk actions">
      {isChosen && (
        <strong>{isAll ? `${all.charAt(0).toUpperCase()}${all.slice(1)}` : `${number(selected.size)} selected`}</strong>
      )}
      {isChosen ? (
        ACTIONS.map((action) => (
          <Button key={action} tone="small" because={forbidden(action)} onClick={() => bulk(action, target)}>
            {VERBS[action]}…
          </Button>
        ))
      ) : (
        <span class="soft">Select rows, or</span>
      )}
      {!isChosen && (
        <button type="button" class="small jobs-page" onClick={onPage}>
          Select this page
        </button>
      )}
      {!isAll && (
        <Button tone="small" because={refusal("operator")} onClick={onAll}>
          Select {all}
        </Button>
      )}
      {isChosen && (
        <Button tone="small" onClick={onClear}>
          Clear the selection
        </Button>
      )}
    </div>
  );
}

// The rows

interface SummariesProps {
  summaries: readonly JobSummary[];
  selected: ReadonlySet<string>;
  isAll: boolean;
  onSelect: (selected: Set<string>) => void;
}

function Summaries({ summaries, selected, isAll, onSelect }: SummariesProps) {
  const now = useNow();
  const columns: Column<JobSummary>[] = [
    {
      name: "state",
      head: "State",
      cell: (summary) => (
        <>
          <StateBadge state={summary.state} phase={summary.phase} outcome={summary.outcome} />
          {summary.is_canceling && !summary.outcome && <Badge tone="warn">canceling</Badge>}
        </>
      ),
    },
    {
      name: "kind",
      head: "Kind",
      cell: (summary) => (
        <>
          <span class="jobs-kind">{summary.kind}</span> <Id id={summary.id} tenant={summary.tenant} />
        </>
      ),
    },
    {
      name: "account",
      head: "Account",
      cell: (summary) => (
        <Link to={`/credits/${part(summary.tenant)}/${part(summary.account)}`}>
          {summary.tenant}/{summary.account}
        </Link>
      ),
    },
    { name: "where", head: "Stage", cell: (summary) => <StageCell summary={summary} /> },
    { name: "wait", head: "Wait", align: "right", hide: "narrow", cell: (summary) => span(waitOf(summary, now)) },
    { name: "run", head: "Run", align: "right", cell: (summary) => span(runOf(summary, now)) },
    {
      name: "attempts",
      head: "Failed attempts",
      align: "right",
      hide: "medium",
      cell: (summary) => summary.attempts || "–",
    },
    { name: "credits", head: "Credits", align: "right", cell: (summary) => <Money summary={summary} /> },
    {
      name: "worker",
      head: "Worker",
      hide: "medium",
      cell: (summary) => summary.worker ?? <span class="soft">–</span>,
    },
    {
      name: "age",
      head: "Age",
      align: "right",
      cell: (summary) => (
        <time dateTime={summary.created_at} title={summary.created_at}>
          {span(between(summary.created_at, now))}
        </time>
      ),
    },
  ];
  const ticked = isAll ? new Set(summaries.map((summary) => summary.id)) : selected;
  return (
    <Table
      label="Jobs"
      columns={columns}
      rows={summaries}
      keyOf={(summary) => summary.id}
      selected={ticked}
      onSelect={onSelect}
      onOpen={(summary) => go(`/jobs/${part(summary.id)}`, { of: summary.tenant })}
      toneOf={(summary) => (summary.outcome === "failed" || summary.outcome === "expired" ? "bad" : undefined)}
    />
  );
}

function StageCell({ summary }: { summary: JobSummary }) {
  if (summary.outcome && summary.error_message)
    return (
      <div class="jobs-where">
        <span
          class={`jobs-error ${summary.outcome === "failed" || summary.outcome === "expired" ? "bad" : ""}`}
          title={summary.error_message}
        >
          {summary.error_message}
        </span>
      </div>
    );
  if (summary.outcome || summary.phase === "ready" || summary.phase === "waiting")
    return (
      <span class="soft">
        {summary.phase === "waiting" && summary.run_at ? (
          <>
            from <Instant at={summary.run_at} />
          </>
        ) : (
          "–"
        )}
      </span>
    );
  return (
    <div class="jobs-where">
      {summary.stage ? (
        plain(summary.stage)
      ) : (
        <span class="soft">{summary.phase === "leased" ? "running" : summary.phase}</span>
      )}
      {summary.phase === "leased" && <Progress value={summary.progress} label={`Progress of ${summary.id}`} />}
    </div>
  );
}

function waitOf(summary: JobSummary, now: Date): number | null {
  const from = summary.run_at && summary.run_at > summary.created_at ? summary.run_at : summary.created_at;
  return between(from, summary.started_at ?? summary.finished_at ?? now);
}

function runOf(summary: JobSummary, now: Date): number | null {
  return between(summary.started_at, summary.finished_at ?? now);
}

/** The credits of a job: held until it ends, then captured, released, or partly both. */
export function Money({ summary }: { summary: { price: number; captured: number | null; outcome: string | null } }) {
  if (!summary.price) return <span class="soft">free</span>;
  const captured = summary.captured ?? 0;
  const [amount, word] = !summary.outcome
    ? [summary.price, "held"]
    : captured
      ? [captured, captured < summary.price ? `of ${number(summary.price)}` : "captured"]
      : [summary.price, "released"];
  return (
    <span class="numeric">
      {number(amount)} <span class="soft">{word}</span>
    </span>
  );
}

// The progress of a search

/**
 * One request examines a limited number of jobs, so a page may be short or empty although older jobs match. Shows how
 * far the search has come, and continues it until a match is found.
 */
function SearchProgress({ page, filter }: { page: JobSummaries; filter: Filter }) {
  const [searched, setSearched] = useState<string | null>(null);
  const [isOver, setOver] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const looking = useRef<AbortController | null>(null);
  const [isLooking, setLooking] = useState(false);
  useEffect(() => () => looking.current?.abort(), []);
  const to = searched ?? page.searched_to;
  if (!page.searched_to) return null;
  const continueSearch = async () => {
    const control = new AbortController();
    looking.current = control;
    setLooking(true);
    setProblem(null);
    try {
      let cursor = page.next_cursor;
      while (cursor) {
        const next: JobSummaries = await get<JobSummaries>(
          "board/jobs",
          { ...filter, cursor, limit: LIMIT },
          control.signal,
        );
        if (next.data.length) {
          setQuery({ cursor }, { replace: false });
          return;
        }
        setSearched(next.searched_to);
        cursor = next.next_cursor;
      }
      setOver(true);
    } catch (error) {
      if (!control.signal.aborted) setProblem(asProblem(error));
    } finally {
      setLooking(false);
    }
  };
  return (
    <div class="jobs-onward" role="status">
      {problem && <Trouble problem={problem} />}
      {isOver ? (
        <span>End of list: all jobs were searched.</span>
      ) : (
        <>
          <span>
            {page.data.length ? "Searched" : "No matches. Searched"} back to <Instant at={to} />.
          </span>
          {isLooking ? (
            <button type="button" onClick={() => looking.current?.abort()}>
              Stop
            </button>
          ) : (
            <button type="button" class="main" disabled={!page.next_cursor} onClick={continueSearch}>
              Search until a match is found
            </button>
          )}
        </>
      )}
    </div>
  );
}
