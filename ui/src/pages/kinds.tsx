// Kinds and queues: the declared kinds with their prices and run times, and the health of the queues.

import { get } from "../api";
import { useLoaded } from "../live";
import {
  Badge,
  Credits,
  Empty,
  Fact,
  Facts,
  Page,
  Panel,
  Show,
  Tabs,
  type Tone,
  toneOf,
  Verdict,
} from "../parts/basics";
import { CountBar } from "../parts/counts";
import { Diagram } from "../parts/diagram";
import { chosenTenant } from "../parts/frame";
import { Json } from "../parts/json";
import { QueueTable } from "../parts/queues";
import { Table } from "../parts/table";
import { SchemaTable } from "../parts/takes";
import { Trends } from "../parts/trends";
import { go, Link, part, place, setQuery } from "../router";
import type { Failures, KindCounts, KindInfo, Kinds as KindList, LifecycleInfo, QueueInfo, Queues } from "../wire";
import { plain, plural, span } from "../words";
import { FailureTable } from "./failures";
import "./kinds.css";

export function Kinds({ kind }: { kind?: string }) {
  return kind ? <One name={kind} /> : <All />;
}

type Counts = Record<string, { states: Record<string, number>; held: number }>;

function useCounts() {
  const asked = chosenTenant();
  return useLoaded(
    async (signal): Promise<Counts> => {
      const found = await get<KindCounts>("board/kinds", asked, signal);
      return Object.fromEntries(found.data.map((each) => [each.kind, each]));
    },
    [asked],
  );
}

function useQueues() {
  return useLoaded((signal) => get<Queues>("queues", {}, signal), []);
}

// All kinds

function All() {
  const chosen = place.value.query.get("queue");
  const kinds = useLoaded((signal) => get<KindList>("kinds", { closed: true }, signal), [], { live: false });
  const queues = useQueues();
  const counts = useCounts();
  const isShown = (queue: string) => !chosen || queue === chosen;
  return (
    <Page
      title="Kinds and queues"
      aside={
        chosen && (
          <Badge>
            queue {chosen}{" "}
            <button type="button" class="copy" aria-label="Show all queues" onClick={() => setQuery({ queue: null })}>
              ✕
            </button>
          </Badge>
        )
      }
    >
      <Panel title={chosen ? "Queue" : "Queues"}>
        <Show of={queues}>
          {(found) => {
            const rows = found.data.filter((each) => isShown(each.queue));
            return rows.length ? (
              <QueueTable queues={rows} />
            ) : (
              <Empty title={chosen ? `Queue ${chosen} not found.` : "No queues yet."} />
            );
          }}
        </Show>
      </Panel>
      <Panel title={chosen ? "Kinds in this queue" : "Kinds"}>
        <Show of={kinds} lines={6}>
          {(found) => (
            <KindTable
              kinds={found.data.filter((each) => isShown(each.queue))}
              queues={queues.value?.data ?? []}
              counts={counts.value}
            />
          )}
        </Show>
      </Panel>
    </Page>
  );
}

interface KindTableProps {
  kinds: readonly KindInfo[];
  queues: readonly QueueInfo[];
  /** Null until they are known. */
  counts: Counts | null;
}

function KindTable({ kinds, queues, counts }: KindTableProps) {
  return (
    <Table
      label="Kinds"
      rows={kinds}
      keyOf={(row) => row.name}
      onOpen={(row) => go(`/kinds/${part(row.name)}`, chosenTenant())}
      empty={
        <Empty title="No kinds yet.">
          A kind is a function with a name and a price. Declare one in an app, then start the app:{" "}
          <code>millpond up app.py</code>.
        </Empty>
      }
      columns={[
        {
          name: "kind",
          head: "Kind",
          cell: (row) => (
            <>
              <Link to={`/kinds/${part(row.name)}`} query={chosenTenant()}>
                {row.name}
              </Link>
              <small class="kinds-summary soft">{row.summary}</small>
            </>
          ),
        },
        { name: "price", head: "Price", align: "right", cell: (row) => <Price price={row.price} /> },
        { name: "queue", head: "Queue", cell: (row) => <QueueOf name={row.queue} queues={queues} /> },
        {
          name: "p50",
          head: "p50",
          align: "right",
          hide: "narrow",
          cell: (row) => span(row.durations?.p50),
        },
        { name: "p90", head: "p90", align: "right", hide: "narrow", cell: (row) => span(row.durations?.p90) },
        {
          name: "states",
          head: "Jobs by state",
          cell: (row) => (counts ? <StateBar kind={row} states={counts[row.name]?.states ?? {}} /> : "…"),
        },
      ]}
    />
  );
}

function Price({ price }: { price: KindInfo["price"] }) {
  return typeof price === "number" ? <Credits value={price} /> : <span class="soft">{price}</span>;
}

function QueueOf({ name, queues }: { name: string; queues: readonly QueueInfo[] }) {
  const queue = queues.find((each) => each.queue === name);
  return (
    <>
      <Link to="/kinds" query={{ queue: name, ...chosenTenant() }} class="kinds-queue">
        {name}
      </Link>{" "}
      {queue && <Verdict verdict={queue.verdict} reason={queue.reason} />}
    </>
  );
}

function toneIn(lifecycle: LifecycleInfo, state: string): Tone {
  return toneOf(lifecycle.states[state] ?? "ended", lifecycle.ends[state] ?? null);
}

/** The states that have jobs, final states last. */
function inOrder(lifecycle: LifecycleInfo, states: Record<string, number>): string[] {
  const some = Object.keys(lifecycle.states).filter((state) => states[state]);
  return [...some.filter((state) => !lifecycle.ends[state]), ...some.filter((state) => lifecycle.ends[state])];
}

/** The number of jobs in each state, as a bar and as text. */
function StateBar({ kind, states }: { kind: KindInfo; states: Record<string, number> }) {
  const some = inOrder(kind.lifecycle, states);
  if (!some.length) return <span class="soft">none</span>;
  return (
    <CountBar
      counts={some.map((state) => ({ name: state, count: states[state] ?? 0, tone: toneIn(kind.lifecycle, state) }))}
    />
  );
}

// One kind

function One({ name }: { name: string }) {
  const kind = useLoaded((signal) => get<KindInfo>(`kinds/${part(name)}`, {}, signal), [name]);
  const counts = useCounts();
  const queues = useQueues();
  return (
    <Page
      title={name}
      aside={kind.value && <span class="soft">{kind.value.summary}</span>}
      acts={
        <>
          <Link to="/jobs" query={{ kind: name, ...chosenTenant() }} class="button">
            Jobs of this kind
          </Link>
          {kind.value?.is_open && (
            <Link to={`/playground/${part(name)}`} query={chosenTenant()} class="button">
              Open in playground
            </Link>
          )}
        </>
      }
    >
      <Show of={kind} lines={10}>
        {(found) => (
          <>
            <Panel title="Lifecycle" aside={<>{found.lifecycle.name}: jobs by state, including all that have ended</>}>
              <Show of={counts} lines={8}>
                {({ [name]: own }) => (
                  <>
                    <Diagram lifecycle={found.lifecycle} counts={own?.states ?? {}} />
                    <States kind={found} states={own?.states ?? {}} />
                  </>
                )}
              </Show>
            </Panel>
            <div class="grid">
              <About kind={found} held={counts.value?.[name]?.held ?? 0} queues={queues.value?.data ?? []} />
              <Schema kind={found} />
            </div>
            <Trends kind={name} />
            <Recent name={name} />
          </>
        )}
      </Show>
    </Page>
  );
}

/** Links to the jobs in each state. */
function States({ kind, states }: { kind: KindInfo; states: Record<string, number> }) {
  const some = inOrder(kind.lifecycle, states);
  if (!some.length) return null;
  return (
    <p class="kinds-links">
      {some.map((state) => (
        <Link
          key={state}
          to="/jobs"
          query={{ kind: kind.name, state, ...chosenTenant() }}
          class={`badge ${toneIn(kind.lifecycle, state)}`}
        >
          {plural(states[state] ?? 0, "job")} {plain(state)}
        </Link>
      ))}
    </p>
  );
}

function About({ kind, held, queues }: { kind: KindInfo; held: number; queues: readonly QueueInfo[] }) {
  const queue = queues.find((each) => each.queue === kind.queue);
  return (
    <Panel title="Settings">
      <Facts>
        <Fact name="Price">
          <Price price={kind.price} />
        </Fact>
        <Fact name="Held">
          <Credits value={held} />
        </Fact>
        <Fact name="Queue">
          <QueueOf name={kind.queue} queues={queues} />
          {queue && <small class="kinds-summary soft">{queue.reason}</small>}
        </Fact>
        <Fact name="Priority">{kind.priority}</Fact>
        <Fact name="Run time">
          {kind.durations ? (
            <>
              {span(kind.durations.p50)} (p50), {span(kind.durations.p90)} (p90){" "}
              <span class="soft">({plural(kind.durations.jobs, "job")})</span>
            </>
          ) : (
            <span class="soft">unknown: no job has ended recently</span>
          )}
        </Fact>
        <Fact name="Time limit">{kind.time_limit_seconds ? span(kind.time_limit_seconds) : "none"}</Fact>
        <Fact name="Expires">
          {kind.expires_in_seconds ? `${span(kind.expires_in_seconds)} after submission` : "never"}
        </Fact>
        <Fact name="Submitted through">{kind.is_open ? "any client" : "its product's routes only"}</Fact>
      </Facts>
      <h3 class="kinds-stages">Stages</h3>
      {kind.stages.length ? (
        <ol class="kinds-stage-list">
          {kind.stages.map((stage) => (
            <li key={stage}>
              {plain(stage)}{" "}
              {kind.firm_stages.includes(stage) && (
                <Badge tone="warn" title="Jobs in this stage cannot be canceled">
                  firm
                </Badge>
              )}
            </li>
          ))}
        </ol>
      ) : (
        <p class="soft">No stages.</p>
      )}
      {kind.firm_stages.length > 0 && <p class="soft">Jobs in a firm stage cannot be canceled.</p>}
    </Panel>
  );
}

function Schema({ kind }: { kind: KindInfo }) {
  const isRaw = place.value.query.get("schema") === "raw";
  return (
    <Panel title="Input">
      <Tabs
        label="Input schema"
        tabs={[
          { name: "fields", title: "Fields" },
          { name: "raw", title: "JSON schema" },
        ]}
        chosen={isRaw ? "raw" : "fields"}
        onChoose={(tab) => setQuery({ schema: tab === "raw" ? "raw" : null })}
      />
      {isRaw ? <Json value={kind.input_schema} label="schema" /> : <SchemaTable schema={kind.input_schema} />}
    </Panel>
  );
}

function Recent({ name }: { name: string }) {
  const asked = { kind: name, since: "24h", ...chosenTenant() };
  const found = useLoaded((signal) => get<Failures>("failures", asked, signal), [asked]);
  return (
    <Panel
      title="Failures of the last 24 hours"
      aside={
        <Link to="/failures" query={{ kind: name }}>
          All failures
        </Link>
      }
    >
      <Show of={found}>
        {(groups) => (
          <FailureTable
            failures={groups.data.slice(0, 10)}
            empty={<Empty title="No failures in the last 24 hours." />}
          />
        )}
      </Show>
    </Panel>
  );
}
