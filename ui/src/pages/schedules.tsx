// The schedules: what submits jobs at due times, when next, and what came of it last.

import { get, refusal, session } from "../api";
import { useLoaded } from "../live";
import { Ago, Button, Empty, Page, Panel, Show } from "../parts/basics";
import { Picked, Typed } from "../parts/filters";
import { chosenTenant } from "../parts/frame";
import { FireResult, SCHEDULE_STATES, ScheduleState, ScheduleTiming, ZonedTime } from "../parts/schedules";
import { type Column, Pager, Table } from "../parts/table";
import { go, Link, part, place, setQuery } from "../router";
import type { Kinds, ScheduleInfo, Schedules as SchedulePage } from "../wire";
import { plain } from "../words";

const LIMIT = 50;
const FILTERS = ["name", "kind", "tenant", "state", "source"] as const;

type Filter = Partial<Record<(typeof FILTERS)[number], string>>;

const STATES = [["", "Any"], ...SCHEDULE_STATES.map((state) => [state, plain(state)] as const)] as const;
const SOURCES = [
  ["", "Any"],
  ["code", "The code of an app"],
  ["api", "The API"],
] as const;

export function Schedules() {
  const given = place.value.query;
  const filter: Filter = Object.fromEntries(
    FILTERS.flatMap((name) => (given.get(name) ? [[name, given.get(name)]] : [])),
  );
  const asked = { ...filter, cursor: given.get("cursor"), limit: LIMIT };
  const found = useLoaded((signal) => get<SchedulePage>("schedules", asked, signal), [asked]);
  const isFiltered = Object.keys(filter).some((name) => name !== "tenant");
  return (
    <Page
      title="Schedules"
      acts={
        <Button tone="main" because={refusal("operator")} onClick={() => go("/schedules/new", chosenTenant())}>
          Create schedule
        </Button>
      }
    >
      <Panel>
        <Filters filter={filter} />
      </Panel>
      <Panel>
        <Show of={found} lines={6}>
          {(page) => (
            <>
              <Table
                label="Schedules"
                columns={COLUMNS}
                rows={page.data}
                keyOf={(schedule) => schedule.id}
                onOpen={(schedule) => go(`/schedules/${part(schedule.id)}`, chosenTenant())}
                toneOf={toneOf}
                empty={isFiltered || asked.cursor ? <NoMatches /> : <NoSchedules />}
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
  const kinds = useLoaded((signal) => get<Kinds>("kinds", {}, signal), [], { live: false });
  const change = (changes: Filter) => setQuery({ ...changes, cursor: null }, { replace: false });
  return (
    <search class="filter-row">
      <Typed label="Name" value={filter.name} hint="the whole name" onValue={(name) => change({ name })} />
      <Typed
        label="Kind"
        value={filter.kind}
        options={kinds.value?.data.map((kind) => kind.name) ?? []}
        onValue={(kind) => change({ kind })}
      />
      <Picked label="State" value={filter.state ?? ""} options={STATES} onValue={(state) => change({ state })} />
      <Picked
        label="Declared in"
        value={filter.source ?? ""}
        options={SOURCES}
        onValue={(source) => change({ source })}
      />
      {!session.value?.tenant && (
        <Typed label="Tenant" value={filter.tenant} onValue={(tenant) => change({ tenant })} />
      )}
      {Object.keys(filter).length > 0 && <Button onClick={clear}>Clear</Button>}
    </search>
  );
}

function clear(): void {
  setQuery(Object.fromEntries([...FILTERS, "cursor"].map((name) => [name, null])), { replace: false });
}

function NoMatches() {
  return (
    <Empty title="No schedules match this filter.">
      <Button onClick={clear}>Clear the filter</Button>
    </Empty>
  );
}

function NoSchedules() {
  return (
    <Empty title="No schedules yet.">
      <p>A schedule submits jobs of a kind by a cron expression, at intervals, or once. Declare it in an app:</p>
      <pre class="schedules-command">@app.schedule("0 3 * * *", zone="Europe/Berlin")</pre>
      <p>or create it here.</p>
    </Empty>
  );
}

function toneOf(schedule: ScheduleInfo): string | undefined {
  if (schedule.state === "orphaned" || schedule.is_overdue) return "bad";
  return schedule.last_fire?.outcome === "failed" ? "warn" : undefined;
}

const COLUMNS: readonly Column<ScheduleInfo>[] = [
  {
    name: "name",
    head: "Name",
    cell: (schedule) => (
      <span class="two-lines">
        <Link to={`/schedules/${part(schedule.id)}`} query={chosenTenant()}>
          {schedule.name}
        </Link>
        <small class="soft">{schedule.tenant}</small>
      </span>
    ),
  },
  { name: "kind", head: "Kind", cell: (schedule) => <Link to={`/kinds/${part(schedule.kind)}`}>{schedule.kind}</Link> },
  { name: "timing", head: "Due", cell: (schedule) => <ScheduleTiming schedule={schedule} /> },
  { name: "next", head: "Next", cell: (schedule) => <Next schedule={schedule} /> },
  { name: "last", head: "Last", cell: (schedule) => <Last schedule={schedule} /> },
  {
    name: "policies",
    head: "Overlap, catch-up",
    hide: "medium",
    cell: (schedule) => `${plain(schedule.overlap)}, ${catchUp(schedule)}`,
  },
  { name: "state", head: "State", cell: (schedule) => <ScheduleState schedule={schedule} /> },
];

/** The catch-up policy in words. */
export function catchUp(schedule: ScheduleInfo): string {
  return schedule.catch_up === "all" ? `all (at most ${schedule.catch_up_max})` : schedule.catch_up;
}

function Next({ schedule }: { schedule: ScheduleInfo }) {
  if (!schedule.due_at) return <span class="soft">–</span>;
  return (
    <span class="two-lines">
      <Ago at={schedule.next_at} />
      <small class="soft">
        <ZonedTime at={schedule.due_at} zone={schedule.zone} />
      </small>
    </span>
  );
}

function Last({ schedule }: { schedule: ScheduleInfo }) {
  const { last_fire: fire } = schedule;
  if (!fire) return <span class="soft">never</span>;
  return (
    <span class="two-lines">
      {fire.job_id ? (
        <Link to={`/jobs/${part(fire.job_id)}`} query={{ of: schedule.tenant }}>
          <FireResult fire={fire} />
        </Link>
      ) : (
        <FireResult fire={fire} />
      )}
      <small class="soft">
        <Ago at={fire.at} />
      </small>
    </span>
  );
}
