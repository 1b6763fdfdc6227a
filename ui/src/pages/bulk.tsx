// Bulk operations: changes to many jobs in the background, with their progress and a button to abort them.

import { useEffect } from "preact/hooks";
import { act, get, refusal } from "../api";
import { useLoaded } from "../live";
import {
  Ago,
  Badge,
  Button,
  Empty,
  Fact,
  Facts,
  Id,
  Instant,
  Page,
  Panel,
  Progress,
  Show,
  Tile,
} from "../parts/basics";
import { ask } from "../parts/dialogs";
import { chosenTenant, filterWords } from "../parts/frame";
import { Pager, Table } from "../parts/table";
import { toast } from "../parts/toasts";
import { go, Link, part, place } from "../router";
import type { BulkOperation, BulkOperations as BulkOperationsPage } from "../wire";
import { between, bytes, count, number, plain, plural, shortId, span } from "../words";
import "./bulk.css";

const TONES: Record<BulkOperation["state"], "good" | "bad" | "info" | "main" | "warn"> = {
  waiting: "info",
  running: "main",
  done: "good",
  aborted: "warn",
  failed: "bad",
};
const POLL_MS = 700;

export function BulkOperations({ id }: { id?: string }) {
  return id ? <One id={id} /> : <All />;
}

function StateOf({ operation }: { operation: BulkOperation }) {
  const isAborting = operation.is_aborting && isLive(operation);
  return <Badge tone={isAborting ? "warn" : TONES[operation.state]}>{isAborting ? "aborting" : operation.state}</Badge>;
}

function isLive(operation: BulkOperation): boolean {
  return operation.state === "waiting" || operation.state === "running";
}

/** The jobs of the operation, as text. */
function about(operation: BulkOperation): string {
  if (operation.action === "verify") return "the entire ledger";
  if (operation.filter.ids) return plural(operation.filter.ids.length, "selected job");
  return filterWords({ ...operation.filter }) || "all jobs";
}

function processed(operation: BulkOperation): number {
  return operation.done + operation.refused;
}

/** The progress from 0 to 1; null if the total is unknown. */
function share(operation: BulkOperation): number | null {
  if (operation.state === "done") return 1;
  const whole = operation.estimate ?? (isLive(operation) ? 0 : operation.matched);
  return whole ? Math.min(1, processed(operation) / whole) : isLive(operation) ? null : 0;
}

// The list

function All() {
  const cursor = place.value.query.get("cursor");
  const found = useLoaded(
    (signal) => get<BulkOperationsPage>("bulk", { ...chosenTenant(), cursor }, signal),
    [chosenTenant().tenant, cursor],
  );
  useFrequentReload(found.value?.data.some(isLive) ?? false, found.reload);
  return (
    <Page title="Bulk operations" aside={<span class="soft">changes to many jobs, executed in the background</span>}>
      <Panel>
        <Show of={found}>
          {(page) => (
            <>
              <Table
                label="Bulk operations"
                rows={page.data}
                keyOf={(operation) => operation.id}
                onOpen={(operation) => go(`/bulk/${part(operation.id)}`)}
                toneOf={(operation) => (operation.state === "failed" ? "bad" : undefined)}
                empty={
                  <Empty title="No bulk operations yet.">
                    <p>
                      Filter the <Link to="/jobs">jobs</Link>, select some or all that match, and retry, cancel, refund
                      or export them. This starts a bulk operation, which runs in the background and can be aborted
                      here.
                    </p>
                  </Empty>
                }
                columns={[
                  { name: "state", head: "State", cell: (operation) => <StateOf operation={operation} /> },
                  {
                    name: "what",
                    head: "Operation",
                    cell: (operation) => (
                      <>
                        <strong>{operation.action}</strong> <span class="bulk-words">{about(operation)}</span>
                      </>
                    ),
                  },
                  {
                    name: "progress",
                    head: "Progress",
                    cell: (operation) => <Bar operation={operation} />,
                  },
                  { name: "done", head: "Succeeded", align: "right", cell: (operation) => number(operation.done) },
                  { name: "refused", head: "Refused", align: "right", cell: (operation) => number(operation.refused) },
                  { name: "actor", head: "Actor", hide: "medium", cell: (operation) => <Id id={operation.actor} /> },
                  { name: "at", head: "Created", cell: (operation) => <Ago at={operation.created_at} /> },
                  { name: "id", head: "Id", hide: "narrow", cell: (operation) => <Id id={operation.id} /> },
                ]}
              />
              <Pager next={page.next_cursor} />
            </>
          )}
        </Show>
      </Panel>
    </Page>
  );
}

function Bar({ operation }: { operation: BulkOperation }) {
  const value = share(operation);
  if (value === null) return <progress aria-label={`Progress of ${operation.id}`} />;
  return <Progress value={value} label={`Progress of ${operation.id}`} />;
}

/** Reads running operations more often than other data, while the tab is visible. */
function useFrequentReload(isRunning: boolean, reload: () => void): void {
  useEffect(() => {
    if (!isRunning) return;
    const timer = setInterval(() => !document.hidden && reload(), POLL_MS);
    return () => clearInterval(timer);
  }, [isRunning]);
}

// One

function One({ id }: { id: string }) {
  const found = useLoaded((signal) => get<BulkOperation>(`bulk/${part(id)}`, {}, signal), [id]);
  const operation = found.value;
  useFrequentReload(operation ? isLive(operation) : false, found.reload);
  return (
    <Page
      title={
        operation
          ? `${operation.action.charAt(0).toUpperCase()}${operation.action.slice(1)}: ${about(operation)}`
          : "Bulk operation"
      }
      aside={
        <>
          {operation && <StateOf operation={operation} />} <Id id={id} />
        </>
      }
      acts={operation && isLive(operation) && <Abort operation={operation} reload={found.reload} />}
    >
      <Show of={found}>
        {(shown) => (
          <>
            <Status operation={shown} />
            <Result operation={shown} />
            <Refusals operation={shown} />
            <About operation={shown} />
          </>
        )}
      </Show>
    </Page>
  );
}

function Abort({ operation, reload }: { operation: BulkOperation; reload: () => void }) {
  const because =
    refusal("operator") ?? (operation.is_aborting ? "The operation is already being aborted." : undefined);
  const abort = () =>
    ask({
      title: `Abort ${operation.action} ${shortId(operation.id)}`,
      text: (
        <p>
          The operation stops after the current batch. Changes already made ({plural(operation.done, "job")} so far) are
          kept.
        </p>
      ),
      action: "Abort",
      tone: "bad",
      act: async () => {
        await act("POST", `bulk/${part(operation.id)}/abort`);
        toast("Abort requested.");
        reload();
      },
    });
  return (
    <Button tone="bad" because={because} onClick={abort}>
      Abort…
    </Button>
  );
}

const SENTENCES: Record<BulkOperation["state"], string> = {
  waiting: "Waiting for a server to start the operation.",
  running: "In progress.",
  done: "Finished.",
  aborted: "Aborted. Changes made before the abort are kept.",
  failed: "Failed. Changes made before the failure are kept.",
};

function Status({ operation }: { operation: BulkOperation }) {
  const error = (operation.error ?? {}) as { code?: string; message?: string };
  const took = between(operation.started_at, operation.finished_at);
  return (
    <>
      {operation.state === "failed" && (
        <div class="trouble" role="alert">
          <p>
            <strong>{error.message ?? "The operation failed."}</strong>
          </p>
          {error.code && <code>{error.code}</code>}
        </div>
      )}
      <Panel class="bulk-bar">
        <p role="status">
          {SENTENCES[operation.state]} {took !== null && `Duration: ${span(took)}.`}
        </p>
        <Bar operation={operation} />
        {isLive(operation) && operation.estimate !== null && (
          <p class="soft">
            {number(processed(operation))} of about {count(operation.estimate)}
          </p>
        )}
      </Panel>
      {operation.action !== "verify" && (
        <div class="tiles">
          <Tile label="Examined" value={number(operation.examined)} />
          <Tile label="Matched" value={number(operation.matched)} />
          <Tile label="Succeeded" value={number(operation.done)} tone={operation.done ? "good" : "quiet"} />
          <Tile label="Refused" value={number(operation.refused)} tone={operation.refused ? "warn" : "quiet"} />
        </div>
      )}
    </>
  );
}

/** The result: a file to download, or whether the data is consistent. */
function Result({ operation }: { operation: BulkOperation }) {
  const made = operation.result;
  if (!made) return null;
  if (made.violations || typeof made.ok === "boolean")
    return (
      <Panel
        title="Result"
        aside={<Badge tone={made.ok ? "good" : "bad"}>{made.ok ? "consistent" : "inconsistent"}</Badge>}
      >
        {made.ok ? (
          <p>All invariants hold: ledger entries sum to the wallet balances, and every credit hold belongs to a job.</p>
        ) : (
          <Table
            label="Violations"
            rows={made.violations ?? []}
            keyOf={(each) => `${each.invariant} ${each.subject}`}
            toneOf={() => "bad"}
            columns={[
              { name: "invariant", head: "Invariant", cell: (each) => plain(each.invariant) },
              {
                name: "subject",
                head: "Subject",
                cell: (each) => (each.job_id ? <Id id={each.job_id} /> : each.subject),
              },
              { name: "detail", head: "Violation", cell: (each) => each.detail },
            ]}
          />
        )}
      </Panel>
    );
  if (!made.name) return null;
  return (
    <Panel title="Export file">
      <div class="acts">
        {made.url ? (
          <a class="button main" href={made.url} download={made.name}>
            Download {made.name}
          </a>
        ) : (
          <span class="soft">{made.name} is no longer kept.</span>
        )}
        <span class="soft">
          {typeof made.rows === "number" && `${plural(made.rows, "row")}, `}
          {bytes(made.size ?? 0)}
          {made.expires_at && (
            <>
              , kept until <Instant at={made.expires_at} />
            </>
          )}
        </span>
      </div>
    </Panel>
  );
}

function Refusals({ operation }: { operation: BulkOperation }) {
  if (!operation.refusals.length) return null;
  return (
    <Panel title="Refused">
      <Table
        label="Refused jobs by reason"
        rows={operation.refusals}
        keyOf={(each) => `${each.code} ${each.message}`}
        columns={[
          { name: "count", head: "Jobs", align: "right", cell: (each) => number(each.count) },
          { name: "why", head: "Reason", cell: (each) => each.message },
          { name: "code", head: "Code", hide: "narrow", cell: (each) => <code>{each.code}</code> },
          { name: "sample", head: "Example", cell: (each) => <Id id={each.sample} tenant={operation.tenant} /> },
        ]}
      />
    </Panel>
  );
}

function About({ operation }: { operation: BulkOperation }) {
  const { ids, ...filter } = operation.filter;
  const given = Object.entries(operation.arguments).filter(([, value]) => value !== null && value !== "");
  const words = Object.fromEntries(Object.entries(filter).filter(([, value]) => value)) as Record<string, string>;
  return (
    <Panel title="Details">
      <Facts>
        <Fact name="Jobs">
          {operation.action === "verify" || ids ? (
            about(operation)
          ) : (
            <Link to="/jobs" query={words} class="bulk-words">
              {about(operation)}
            </Link>
          )}
        </Fact>
        {given.map(([name, value]) => (
          <Fact key={name} name={name.charAt(0).toUpperCase() + plain(name).slice(1)}>
            {String(value)}
          </Fact>
        ))}
        <Fact name="Tenant">{operation.tenant ?? "all"}</Fact>
        <Fact name="Actor">
          <Id id={operation.actor} />
        </Fact>
        <Fact name="Created">
          <Instant at={operation.created_at} />
        </Fact>
        <Fact name="Started">
          <Instant at={operation.started_at} none="not yet" />
        </Fact>
        <Fact name="Ended">
          <Instant at={operation.finished_at} none="not yet" />
        </Fact>
      </Facts>
    </Panel>
  );
}
