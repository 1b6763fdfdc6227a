// Queues: the health of each with its reason, and a button to pause or resume it.

import { act, refusal } from "../api";
import { refresh } from "../live";
import { Link, part } from "../router";
import type { QueueInfo } from "../wire";
import { count, plural, span } from "../words";
import { Ago, Button, Verdict } from "./basics";
import { ask } from "./dialogs";
import { Table } from "./table";
import { toast } from "./toasts";
import "./queues.css";

/** Why the session may not pause a queue; undefined if it may. */
function forbidden(): string | undefined {
  return refusal("operator", { ofAll: true });
}

function pause(queue: QueueInfo): Promise<boolean> {
  return ask({
    title: `Pause ${queue.queue}`,
    text: (
      <>
        <p>
          No job of this queue starts until the queue is resumed. {plural(queue.ready, "ready job")}{" "}
          {queue.ready === 1 ? "waits" : "wait"}, and so do new jobs. {plural(queue.leased, "running job")}{" "}
          {queue.leased === 1 ? "continues" : "continue"}. Submits are still accepted, and their price is held.
        </p>
        <p class="soft">Recorded in the audit log.</p>
      </>
    ),
    action: "Pause",
    tone: "bad",
    act: () => change(queue, "pause", "paused"),
  });
}

function resume(queue: QueueInfo): Promise<boolean> {
  return ask({
    title: `Resume ${queue.queue}`,
    text: (
      <>
        <p>
          Workers start its jobs again immediately: {plural(queue.ready, "job")} {queue.ready === 1 ? "is" : "are"}{" "}
          ready.
        </p>
        <p class="soft">Recorded in the audit log.</p>
      </>
    ),
    action: "Resume",
    act: () => change(queue, "resume", "resumed"),
  });
}

async function change(queue: QueueInfo, verb: "pause" | "resume", done: string): Promise<void> {
  await act<QueueInfo>("POST", `queues/${part(queue.queue)}/${verb}`);
  toast(`Queue ${queue.queue} ${done}.`);
  await refresh();
}

export function QueueTable({ queues, label = "Queues" }: { queues: readonly QueueInfo[]; label?: string }) {
  return (
    <Table
      label={label}
      rows={queues}
      keyOf={(row) => row.queue}
      toneOf={(row) => (row.verdict === "stuck" || row.verdict === "unserved" ? "bad" : undefined)}
      columns={[
        {
          name: "queue",
          head: "Queue",
          cell: (row) => (
            <>
              <Link to="/kinds" query={{ queue: row.queue }}>
                {row.queue}
              </Link>{" "}
              <Verdict verdict={row.verdict} />
              <small class="queues-reason soft">{row.reason}</small>
            </>
          ),
        },
        { name: "depth", head: "Ready", align: "right", cell: (row) => count(row.ready) },
        {
          name: "oldest",
          head: "Oldest",
          align: "right",
          cell: (row) => (row.oldest_wait_seconds === null ? "–" : span(row.oldest_wait_seconds)),
        },
        { name: "running", head: "Running", align: "right", cell: (row) => count(row.leased) },
        {
          name: "later",
          head: "Waiting",
          align: "right",
          hide: "medium",
          cell: (row) => <span title="Scheduled jobs and parked jobs">{later(row)}</span>,
        },
        {
          name: "workers",
          head: "Workers",
          align: "right",
          hide: "narrow",
          cell: (row) => (
            <span title="Live workers that serve this queue, and others that hold its jobs">{count(row.workers)}</span>
          ),
        },
        {
          name: "act",
          head: <span class="unseen">Pause or resume</span>,
          align: "right",
          cell: (row) => <Act queue={row} />,
        },
      ]}
    />
  );
}

/** Queues that have jobs or a problem; idle queues are collapsed. */
export function BusyQueues({ queues }: { queues: readonly QueueInfo[] }) {
  const isIdle = (queue: QueueInfo) =>
    queue.verdict === "ok" && !(queue.ready + queue.waiting + queue.leased + queue.parked);
  const idle = queues.filter(isIdle);
  const busy = queues.filter((queue) => !isIdle(queue));
  return (
    <>
      {busy.length > 0 ? <QueueTable queues={busy} /> : <p class="soft">All queues are empty.</p>}
      {idle.length > 0 && (
        <details class="queues-idle">
          <summary>{plural(idle.length, "idle queue")}</summary>
          <QueueTable queues={idle} label="Idle queues" />
        </details>
      )}
    </>
  );
}

function later(queue: QueueInfo): string {
  return count(queue.waiting + queue.parked);
}

function Act({ queue }: { queue: QueueInfo }) {
  const because = forbidden();
  return queue.paused_at ? (
    <span class="queues-paused">
      <small class="soft">
        paused <Ago at={queue.paused_at} />
      </small>
      <Button tone="small" because={because} aria-label={`Resume ${queue.queue}`} onClick={() => resume(queue)}>
        Resume
      </Button>
    </span>
  ) : (
    <Button tone="small" because={because} aria-label={`Pause ${queue.queue}`} onClick={() => pause(queue)}>
      Pause
    </Button>
  );
}
