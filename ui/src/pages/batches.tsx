// Batches: many jobs under one handle, with their counts, their progress and their cost.

import { act, get, refusal, session } from "../api";
import { useLoaded } from "../live";
import {
  Ago,
  Badge,
  Button,
  Credits,
  Empty,
  Fact,
  Facts,
  Id,
  Page,
  Panel,
  Progress,
  Show,
  StateBadge,
  Tile,
  type Tone,
} from "../parts/basics";
import { CountBar } from "../parts/counts";
import { ask } from "../parts/dialogs";
import { Picked, Typed } from "../parts/filters";
import { chosenTenant } from "../parts/frame";
import { type Column, Pager, Table } from "../parts/table";
import { toast } from "../parts/toasts";
import { go, Link, part, place, setQuery } from "../router";
import type { Batch, BatchJobs, Batches as BatchList, CanceledBatch, Job } from "../wire";
import { between, count, plural, span } from "../words";
import "./batches.css";

const LIMIT = 50;
const FILTERS = ["tenant", "account", "state", "tag"] as const;

type Filter = Partial<Record<(typeof FILTERS)[number], string>>;

const STATES: Record<Batch["state"], readonly [Tone, string]> = {
  open: ["info", "Not all jobs have been added"],
  running: ["main", "Not all jobs have ended"],
  canceling: ["warn", "It was canceled, and not all jobs have ended"],
  completed: ["good", "All jobs have ended"],
  canceled: ["quiet", "It was canceled, and all jobs have ended"],
};

/** The name of a batch for display. */
function titleOf(batch: Batch): string {
  return batch.name ?? "Batch";
}

function BatchState({ batch }: { batch: Batch }) {
  const [tone, title] = STATES[batch.state];
  return (
    <Badge tone={tone} title={title}>
      {batch.state}
    </Badge>
  );
}

// The list

export function Batches() {
  const given = place.value.query;
  const filter: Filter = Object.fromEntries(
    FILTERS.flatMap((name) => (given.get(name) ? [[name, given.get(name)]] : [])),
  );
  const asked = { ...filter, cursor: given.get("cursor"), limit: LIMIT };
  const found = useLoaded((signal) => get<BatchList>("batches", asked, signal), [asked]);
  const isFiltered = Object.keys(filter).some((name) => name !== "tenant") || asked.cursor !== null;
  return (
    <Page title="Batches">
      <Panel>
        <Filters filter={filter} />
      </Panel>
      <Panel>
        <Show of={found} lines={6}>
          {(page) => (
            <>
              <Table
                label="Batches"
                columns={COLUMNS}
                rows={page.data}
                keyOf={(batch) => batch.id}
                onOpen={(batch) => go(`/batches/${part(batch.id)}`, { of: batch.tenant })}
                toneOf={(batch) => (batch.failed ? "warn" : undefined)}
                empty={isFiltered ? <NoMatches /> : <NoBatches />}
              />
              <Pager next={page.next_cursor} />
            </>
          )}
        </Show>
      </Panel>
    </Page>
  );
}

function Filters({ filter }: { filter: Filter }) {
  const change = (changes: Filter | Record<string, null>) => setQuery({ ...changes, cursor: null }, { replace: false });
  const isOfAll = !session.value?.tenant;
  const states = [["", "Any"], ...Object.keys(STATES).map((state) => [state, state] as const)] as const;
  return (
    <search class="filter-row">
      <Picked label="State" value={filter.state ?? ""} options={states} onValue={(state) => change({ state })} />
      <Typed label="Tag" value={filter.tag} hint="team:ads" onValue={(tag) => change({ tag })} />
      {isOfAll && <Typed label="Tenant" value={filter.tenant} onValue={(tenant) => change({ tenant, account: "" })} />}
      <Typed
        label="Account"
        value={filter.account}
        isDisabled={isOfAll && !filter.tenant && !filter.account}
        {...(isOfAll && !filter.tenant ? { hint: "select a tenant" } : {})}
        onValue={(account) => change({ account })}
      />
      {Object.keys(filter).length > 0 && <Button onClick={clear}>Clear</Button>}
    </search>
  );
}

function clear(): void {
  setQuery(Object.fromEntries([...FILTERS, "cursor"].map((name) => [name, null])), { replace: false });
}

function NoMatches() {
  return (
    <Empty title="No batches match this filter.">
      <Button onClick={clear}>Clear the filter</Button>
    </Empty>
  );
}

function NoBatches() {
  return (
    <Empty title="No batches yet.">
      <p>
        A batch is up to 100,000 independent jobs under one handle: with its counts, its cost, one cancel and one
        webhook at the end. Clients create batches through the API, the SDK or the command line.
      </p>
    </Empty>
  );
}

const COLUMNS: readonly Column<Batch>[] = [
  {
    name: "name",
    head: "Batch",
    cell: (batch) => (
      <span class="two-lines">
        <Link to={`/batches/${part(batch.id)}`} query={{ of: batch.tenant }}>
          {titleOf(batch)}
        </Link>
        <small class="soft">
          {batch.tenant}/{batch.account}
        </small>
      </span>
    ),
  },
  { name: "state", head: "State", cell: (batch) => <BatchState batch={batch} /> },
  { name: "ended", head: "Ended", cell: (batch) => <Ended batch={batch} /> },
  { name: "outcomes", head: "Jobs", cell: (batch) => <OutcomeBar batch={batch} /> },
  { name: "cost", head: "Cost", align: "right", cell: (batch) => <Cost batch={batch} /> },
  { name: "created", head: "Created", cell: (batch) => <Ago at={batch.created_at} /> },
];

function Ended({ batch }: { batch: Batch }) {
  return (
    <span class="two-lines">
      <Progress value={batch.progress} label={`Progress of ${titleOf(batch)}`} />
      <small class="soft">
        {count(batch.ended)} of {count(batch.total)}
      </small>
    </span>
  );
}

function Cost({ batch }: { batch: Batch }) {
  if (batch.captured === null || batch.price === null) return <span class="soft">–</span>;
  return (
    <span class="two-lines">
      <Credits value={batch.captured} />
      <small class="soft">of {count(batch.price)}</small>
    </span>
  );
}

const PARTS = [
  ["succeeded", "good"],
  ["failed", "bad"],
  ["canceled", "quiet"],
  ["active", "info"],
  ["not added yet", "quiet"],
] as const;

/** How many jobs have ended how, and how many have not. */
function OutcomeBar({ batch, isExact = false }: { batch: Batch; isExact?: boolean }) {
  const active = batch.submitted - batch.ended;
  const counts = { ...batch, active, "not added yet": batch.total - batch.submitted };
  const some = PARTS.filter(([name]) => counts[name] > 0);
  if (!some.length) return <span class="soft">none</span>;
  return <CountBar isExact={isExact} counts={some.map(([name, tone]) => ({ name, tone, count: counts[name] }))} />;
}

// One batch

/** The tenant of the batch: from the URL, otherwise the selected tenant. */
function owner(): { tenant?: string } {
  const of = place.value.query.get("of");
  return of ? { tenant: of } : chosenTenant();
}

export function BatchPage({ id }: { id: string }) {
  const query = owner();
  const found = useLoaded((signal) => get<Batch>(`batches/${part(id)}`, query, signal), [id, query]);
  const batch = found.value;
  return (
    <Page
      title={batch ? titleOf(batch) : "Batch"}
      aside={batch && <BatchState batch={batch} />}
      acts={
        batch &&
        !batch.parent_id && (
          <Button tone="bad" because={uncancelable(batch)} onClick={() => cancel(batch, found.reload)}>
            Cancel batch
          </Button>
        )
      }
    >
      <Show of={found} lines={8}>
        {(one) => <One batch={one} />}
      </Show>
    </Page>
  );
}

function uncancelable(batch: Batch): string | undefined {
  if (batch.canceled_at) return "It has been canceled.";
  return refusal("operator") ?? (batch.ended_at ? "All of its jobs have ended." : undefined);
}

function cancel(batch: Batch, reload: () => void) {
  const active = batch.submitted - batch.ended;
  return ask({
    title: "Cancel the batch?",
    text: `It accepts no more jobs, and the ${plural(active, "job")} that have not ended are canceled, a few hundred at a time. Their credits are released. Jobs that have ended do not change.`,
    action: "Cancel batch",
    tone: "bad",
    act: async () => {
      const query = { tenant: batch.tenant };
      const done = await act<CanceledBatch>("POST", `batches/${part(batch.id)}/cancel`, undefined, { query });
      toast(done.is_accepted ? "The batch is being canceled." : "The batch had already ended.");
      reload();
    },
  });
}

function One({ batch }: { batch: Batch }) {
  return (
    <>
      <div class="tiles">
        <Tile
          label="Ended"
          value={`${count(batch.ended)} of ${count(batch.total)}`}
          note={batch.submitted < batch.total ? `${count(batch.submitted)} added so far` : percent(batch.progress)}
          tone={batch.ended_at ? "quiet" : "main"}
        />
        <Tile label="Succeeded" value={count(batch.succeeded)} tone={batch.succeeded ? "good" : "quiet"} />
        <Tile
          label="Failed"
          value={count(batch.failed)}
          note="failed, expired or blocked"
          tone={batch.failed ? "bad" : "quiet"}
        />
        <Tile label="Canceled" value={count(batch.canceled)} />
        {batch.captured !== null && (
          <Tile label="Cost" value={count(batch.captured)} note={`of ${count(batch.price ?? 0)} credits`} />
        )}
      </div>
      <Panel title="Progress">
        <OutcomeBar batch={batch} isExact />
      </Panel>
      <Panel title="Details">
        <Facts>
          <Fact name="Id">
            <Id id={batch.id} tenant={batch.tenant} />
          </Fact>
          <Fact name="Account">
            <Link to={`/credits/${part(batch.tenant)}/${part(batch.account)}`}>
              {batch.tenant}/{batch.account}
            </Link>
          </Fact>
          {batch.parent_id && (
            <Fact name="Children of">
              <Id id={batch.parent_id} tenant={batch.tenant} />
            </Fact>
          )}
          <Fact name="Created">
            <Ago at={batch.created_at} />
          </Fact>
          <Fact name="Ended">
            <Ago at={batch.ended_at} none="not yet" />
            {batch.ended_at && ` after ${span(between(batch.created_at, batch.ended_at))}`}
          </Fact>
          {batch.canceled_at && (
            <Fact name="Canceled">
              <Ago at={batch.canceled_at} />
            </Fact>
          )}
          {Object.keys(batch.tags).length > 0 && (
            <Fact name="Tags">
              {Object.entries(batch.tags).map(([key, value]) => (
                <Link key={key} to="/jobs" query={{ tag: `${key}:${value}`, tenant: batch.tenant }} class="batches-tag">
                  {key}: {value}
                </Link>
              ))}
            </Fact>
          )}
        </Facts>
      </Panel>
      <JobList batch={batch} />
    </>
  );
}

function percent(share: number): string {
  return `${Math.floor(share * 100)} %`;
}

// Its jobs

const OUTCOMES = [
  ["", "Any"],
  ...["succeeded", "failed", "expired", "blocked", "canceled"].map((outcome) => [outcome, outcome] as const),
] as const;

function JobList({ batch }: { batch: Batch }) {
  const given = place.value.query;
  const outcome = given.get("outcome");
  const asked = { tenant: batch.tenant, outcome, cursor: given.get("cursor"), limit: LIMIT };
  const path = `batches/${part(batch.id)}/jobs`;
  const found = useLoaded((signal) => get<BatchJobs>(path, asked, signal), [path, asked]);
  return (
    <Panel title="Jobs" aside="in the order of their positions">
      <div class="filter-row batches-filter">
        <Picked
          label="Outcome"
          value={outcome ?? ""}
          options={OUTCOMES}
          onValue={(next) => setQuery({ outcome: next, cursor: null }, { replace: false })}
        />
      </div>
      <Show of={found}>
        {(page) => (
          <>
            <Table
              label="Jobs"
              columns={JOB_COLUMNS}
              rows={page.data}
              keyOf={(job) => job.id}
              onOpen={(job) => go(`/jobs/${part(job.id)}`, { of: job.tenant })}
              toneOf={(job) => (job.outcome === "failed" ? "bad" : undefined)}
              empty={<Empty title={outcome ? "No jobs match this filter." : "No jobs yet."} />}
            />
            <Pager next={page.next_cursor} />
          </>
        )}
      </Show>
    </Panel>
  );
}

const JOB_COLUMNS: readonly Column<Job>[] = [
  { name: "id", head: "Job", cell: (job) => <Id id={job.id} tenant={job.tenant} /> },
  { name: "kind", head: "Kind", cell: (job) => job.kind },
  {
    name: "state",
    head: "State",
    cell: (job) => <StateBadge state={job.state} phase={job.phase} outcome={job.outcome} />,
  },
  {
    name: "duration",
    head: "Duration",
    align: "right",
    cell: (job) => span(between(job.started_at, job.finished_at)),
  },
  { name: "price", head: "Price", align: "right", cell: (job) => <Credits value={job.price} /> },
  {
    name: "error",
    head: "Error",
    cell: (job) => (job.error ? String(job.error["message"] ?? job.error["code"]) : "–"),
  },
];
