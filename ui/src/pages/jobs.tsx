// The jobs: found by a filter that lives in the address, acted upon one by one or all that fit.

import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { asProblem, get, type Problem, refusal, session } from "../api";
import { useLoaded } from "../live";
import {
  Badge,
  Button,
  Copy,
  Empty,
  Id,
  Moment,
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
import { FILTERS } from "../parts/frame";
import { type Column, Pager, Table } from "../parts/table";
import { go, Link, part, place, setQuery } from "../router";
import type { JobFilter, JobLine, JobLines, Kinds } from "../wire";
import { between, number, plain, plural, span } from "../words";
import "./jobs.css";

const LIMIT = 50;

type Filter = Partial<Record<(typeof FILTERS)[number], string>>;

/** The filter that the address tells. */
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
  const [isUnderHand, setUnderHand] = useState(false);
  const found = useLoaded(
    (signal) => get<JobLines>("board/jobs", { ...filter, cursor, limit: LIMIT }, signal),
    [filter, cursor],
  );
  const key = JSON.stringify([filter, cursor]);
  useEffect(() => {
    setSelected(new Set());
    setAll(false);
  }, [key]);
  const select = (next: ReadonlySet<string>) => {
    setAll(false); // whoever takes one row out no longer means all
    setSelected(next);
  };
  const isHeld = selected.size > 0 || isAll || isUnderHand || isAsking.value;
  const { page, newer, show } = useStill(found.value, isHeld, key);
  const isFiltered = Object.keys(filter).length > 0;
  const meant: JobFilter = isAll || !selected.size ? (filter as JobFilter) : { ids: [...selected] };
  return (
    <Page title="Jobs" acts={<NewJob />}>
      <Panel>
        <Filters filter={filter} />
      </Panel>
      <Panel title="What was found">
        <Show of={{ ...found, value: page }} lines={8}>
          {(lines) =>
            !lines.data.length && !cursor && !lines.next_cursor ? (
              isFiltered ? (
                <NoneFits />
              ) : (
                <NoJobs />
              )
            ) : (
              <div
                onPointerEnter={(event) => event.pointerType === "mouse" && setUnderHand(true)}
                onPointerLeave={() => setUnderHand(false)}
              >
                <Bar
                  selected={selected}
                  isAll={isAll}
                  isFiltered={isFiltered}
                  meant={meant}
                  onPage={() => select(new Set(lines.data.map((line) => line.id)))}
                  onAll={() => setAll(true)}
                  onClear={() => select(new Set())}
                />
                {newer > 0 && (
                  <button type="button" class="jobs-newer" onClick={show}>
                    Show {plural(newer, "newer job")}
                  </button>
                )}
                {lines.data.length > 0 && (
                  <div class="jobs-list">
                    <Lines lines={lines.data} selected={selected} isAll={isAll} onSelect={select} />
                  </div>
                )}
                <Onward key={key} page={lines} filter={filter} />
                <Pager next={lines.next_cursor} />
              </div>
            )
          }
        </Show>
      </Panel>
    </Page>
  );
}

/** What is shown while somebody has a hand on it: the same rows in the same order, each as it is now. */
function useStill(value: JobLines | null, isHeld: boolean, key: string) {
  const kept = useRef<{ key: string; page: JobLines } | null>(null);
  const [, again] = useState(0);
  if (value && (!isHeld || kept.current?.key !== key)) kept.current = { key, page: value };
  if (kept.current?.key !== key) return { page: value, newer: 0, show: () => {} };
  const { page } = kept.current;
  const fresh = new Map(value?.data.map((line) => [line.id, line]));
  const known = new Set(page.data.map((line) => line.id));
  const first = page.data[0]?.id ?? "";
  return {
    page: { ...page, data: page.data.map((line) => fresh.get(line.id) ?? line) },
    newer: value?.data.filter((line) => !known.has(line.id) && line.id > first).length ?? 0,
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

function NoneFits() {
  return (
    <Empty title="No job fits this filter.">
      <p>
        <Button onClick={clearFilter}>Clear the filter</Button>
      </p>
    </Empty>
  );
}

function NoJobs() {
  const command = `millpond run hello --input name=Ada`;
  return (
    <Empty title="There are no jobs yet.">
      <p>A job is one piece of work of a kind: it waits, a worker runs it, and what it costs is held until it ends.</p>
      <p>
        Submit the first: <code>{command}</code> <Copy text={command} what="command" />
      </p>
      <p>
        or fill in a form in the <Link to="/playground">playground</Link>.
      </p>
    </Empty>
  );
}

// The filter

const STATES = [
  ["", "Any"],
  ["phase:waiting", "Waiting for its time"],
  ["phase:ready", "Ready, in line"],
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

/** What has no field of its own, or stands beside one: told as a word that can be taken away. */
const CHIPS = ["state", "stage", "error", "fingerprint", "until"] as const;

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
      <div class="jobs-row">
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
          {...(isOfAll && !filter.tenant ? { hint: "of a tenant" } : {})}
          onValue={(account) => change({ account })}
        />
        <Picked label="Submitted" value={filter.since ?? ""} options={TIMES} onValue={(since) => change({ since })} />
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
                aria-label={`Take ${name} out of the filter`}
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

interface TypedProps {
  label: string;
  value: string | undefined;
  hint?: string;
  options?: readonly string[];
  isDisabled?: boolean;
  onValue: (value: string) => void;
}

/** A field that says what was typed when one leaves it or presses Enter; nothing that happens meanwhile changes it. */
function Typed({ label, value = "", hint, options, isDisabled = false, onValue }: TypedProps) {
  const id = useId();
  const [draft, setDraft] = useState(value);
  useEffect(() => setDraft(value), [value]);
  const commit = () => draft.trim() !== value && onValue(draft.trim());
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        value={draft}
        placeholder={hint ?? "any"}
        disabled={isDisabled}
        list={options?.length ? `${id}-options` : undefined}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onBlur={commit}
        onKeyDown={(event) => event.key === "Enter" && commit()}
      />
      {options?.length ? (
        <datalist id={`${id}-options`}>
          {options.map((option) => (
            <option key={option} value={option} />
          ))}
        </datalist>
      ) : null}
    </div>
  );
}

interface PickedProps {
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
  onValue: (value: string) => void;
}

function Picked({ label, value, options, onValue }: PickedProps) {
  const id = useId();
  const isKnown = options.some(([each]) => each === value);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
        {!isKnown && <option value={value}>since {value}</option>}
        {options.map(([each, words]) => (
          <option key={each} value={each}>
            {words}
          </option>
        ))}
      </select>
    </div>
  );
}

// Acts on many

interface BarProps {
  selected: ReadonlySet<string>;
  isAll: boolean;
  isFiltered: boolean;
  meant: JobFilter;
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

function Bar({ selected, isAll, isFiltered, meant, onPage, onAll, onClear }: BarProps) {
  const all = isFiltered ? "all that fit the filter" : "all jobs";
  const isChosen = isAll || selected.size > 0;
  return (
    <div class={`jobs-bar ${isChosen ? "chosen" : ""}`} role="group" aria-label="Acts on many jobs">
      {isChosen && (
        <strong>{isAll ? `${all.charAt(0).toUpperCase()}${all.slice(1)}` : `${number(selected.size)} selected`}</strong>
      )}
      {isChosen ? (
        ACTIONS.map((action) => (
          <Button key={action} tone="small" because={forbidden(action)} onClick={() => bulk(action, meant)}>
            {VERBS[action]}…
          </Button>
        ))
      ) : (
        <span class="soft">Select rows to act on them, or</span>
      )}
      {!isChosen && (
        <button type="button" class="small jobs-page" onClick={onPage}>
          Select this page
        </button>
      )}
      {!isAll && (
        <Button tone="small" because={refusal("operator")} onClick={onAll}>
          Act on {all}
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

interface LinesProps {
  lines: readonly JobLine[];
  selected: ReadonlySet<string>;
  isAll: boolean;
  onSelect: (selected: Set<string>) => void;
}

function Lines({ lines, selected, isAll, onSelect }: LinesProps) {
  const now = useNow();
  const columns: Column<JobLine>[] = [
    {
      name: "state",
      head: "State",
      cell: (line) => (
        <>
          <StateBadge state={line.state} phase={line.phase} outcome={line.outcome} />
          {line.is_canceling && !line.outcome && <Badge tone="warn">canceling</Badge>}
        </>
      ),
    },
    {
      name: "kind",
      head: "Kind",
      cell: (line) => (
        <>
          <span class="jobs-kind">{line.kind}</span> <Id id={line.id} tenant={line.tenant} />
        </>
      ),
    },
    {
      name: "whose",
      head: "Whose",
      cell: (line) => (
        <Link to={`/credits/${part(line.tenant)}/${part(line.account)}`}>
          {line.tenant}/{line.account}
        </Link>
      ),
    },
    { name: "where", head: "Where it is", cell: (line) => <Where line={line} /> },
    { name: "wait", head: "Wait", align: "right", hide: "narrow", cell: (line) => span(waitOf(line, now)) },
    { name: "run", head: "Run", align: "right", cell: (line) => span(runOf(line, now)) },
    { name: "attempts", head: "Failed tries", align: "right", hide: "medium", cell: (line) => line.attempts || "–" },
    { name: "credits", head: "Credits", align: "right", cell: (line) => <Money line={line} /> },
    { name: "worker", head: "Worker", hide: "medium", cell: (line) => line.worker ?? <span class="soft">–</span> },
    {
      name: "age",
      head: "Age",
      align: "right",
      cell: (line) => (
        <time dateTime={line.created_at} title={line.created_at}>
          {span(between(line.created_at, now))}
        </time>
      ),
    },
  ];
  const ticked = isAll ? new Set(lines.map((line) => line.id)) : selected;
  return (
    <Table
      label="Jobs"
      columns={columns}
      rows={lines}
      keyOf={(line) => line.id}
      selected={ticked}
      onSelect={onSelect}
      onOpen={(line) => go(`/jobs/${part(line.id)}`, { of: line.tenant })}
      toneOf={(line) => (line.outcome === "failed" || line.outcome === "expired" ? "bad" : undefined)}
    />
  );
}

function Where({ line }: { line: JobLine }) {
  if (line.outcome && line.error_message)
    return (
      <div class="jobs-where">
        <span
          class={`jobs-error ${line.outcome === "failed" || line.outcome === "expired" ? "bad" : ""}`}
          title={line.error_message}
        >
          {line.error_message}
        </span>
      </div>
    );
  if (line.outcome || line.phase === "ready" || line.phase === "waiting")
    return (
      <span class="soft">
        {line.phase === "waiting" && line.run_at ? (
          <>
            from <Moment at={line.run_at} />
          </>
        ) : (
          "–"
        )}
      </span>
    );
  return (
    <div class="jobs-where">
      {line.stage ? plain(line.stage) : <span class="soft">{line.phase === "leased" ? "running" : line.phase}</span>}
      {line.phase === "leased" && <Progress value={line.progress} label={`Progress of ${line.id}`} />}
    </div>
  );
}

function waitOf(line: JobLine, now: Date): number | null {
  const from = line.run_at && line.run_at > line.created_at ? line.run_at : line.created_at;
  return between(from, line.started_at ?? line.finished_at ?? now);
}

function runOf(line: JobLine, now: Date): number | null {
  return between(line.started_at, line.finished_at ?? now);
}

/** What became of the credits of a job: held while it lasts, then captured, released, or some of each. */
export function Money({ line }: { line: { price: number; captured: number | null; outcome: string | null } }) {
  if (!line.price) return <span class="soft">free</span>;
  const captured = line.captured ?? 0;
  const [amount, word] = !line.outcome
    ? [line.price, "held"]
    : captured
      ? [captured, captured < line.price ? `of ${number(line.price)}` : "captured"]
      : [line.price, "released"];
  return (
    <span class="numeric">
      {number(amount)} <span class="soft">{word}</span>
    </span>
  );
}

// How far it has looked

/** A filter that fits few jobs may look at many without finding one: say so, and go on until there is something. */
function Onward({ page, filter }: { page: JobLines; filter: Filter }) {
  const [searched, setSearched] = useState<string | null>(null);
  const [isOver, setOver] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const looking = useRef<AbortController | null>(null);
  const [isLooking, setLooking] = useState(false);
  useEffect(() => () => looking.current?.abort(), []);
  const to = searched ?? page.searched_to;
  if (!page.searched_to) return null;
  const goOn = async () => {
    const control = new AbortController();
    looking.current = control;
    setLooking(true);
    setProblem(null);
    try {
      let cursor = page.next_cursor;
      while (cursor) {
        const next: JobLines = await get<JobLines>("board/jobs", { ...filter, cursor, limit: LIMIT }, control.signal);
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
        <span>There are no more: every job was looked at.</span>
      ) : (
        <>
          <span>
            {page.data.length ? "Looked" : "Nothing yet. Looked"} back to <Moment at={to} />.
          </span>
          {isLooking ? (
            <button type="button" onClick={() => looking.current?.abort()}>
              Stop
            </button>
          ) : (
            <button type="button" class="main" disabled={!page.next_cursor} onClick={goOn}>
              Go on until something is found
            </button>
          )}
        </>
      )}
    </div>
  );
}
