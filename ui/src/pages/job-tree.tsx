// The children of a job: how they ended, what the budget has left, and the tree of jobs below it. A job may have 10,000
// children: they are read page by page, and the children of a child only when somebody opens it.

import { useRef, useState } from "preact/hooks";
import { get } from "../api";
import { useLoaded } from "../live";
import { Ago, Credits, Instant, Panel, Skeleton, StateBadge, Trouble } from "../parts/basics";
import { Link, part } from "../router";
import type { Budget, ChildCounts, Children as ChildrenPage, Job, JobComposition } from "../wire";
import { credits, number, plural, shortId } from "../words";
import "./job-tree.css";

const ROWS = 50;

export function Children({ job, composition }: { job: Job; composition: JobComposition }) {
  const { counts, budget } = composition;
  if (!counts.submitted && !budget) return null;
  return (
    <Panel title="Children" aside={<span class="numeric">{number(counts.submitted)}</span>}>
      {counts.submitted > 0 && <Counts counts={counts} />}
      {budget && <BudgetLine budget={budget} isOver={job.outcome !== null} />}
      {counts.submitted > 0 ? (
        <div class="job-tree-box" tabIndex={0} role="group" aria-label="Tree">
          <Branch parent={job} label="Children of this job" />
        </div>
      ) : (
        <p class="soft">The job has not submitted any children{job.outcome ? "" : " yet"}.</p>
      )}
    </Panel>
  );
}

const ENDS = ["succeeded", "failed", "canceled"] as const;

function Counts({ counts }: { counts: ChildCounts }) {
  const open = counts.submitted - counts.ended;
  const parts = [...ENDS.map((name) => ({ name, value: counts[name] })), { name: "not ended", value: open }];
  return (
    <Shares
      label={`${number(counts.ended)} of ${plural(counts.submitted, "child", "children")} ${counts.ended === 1 ? "has" : "have"} ended`}
      parts={parts}
    />
  );
}

function BudgetLine({ budget, isOver }: { budget: Budget; isOver: boolean }) {
  const left = budget.amount - budget.spent - budget.reserved;
  const parts = [
    { name: "spent", value: budget.spent },
    { name: "reserved", value: budget.reserved },
    { name: isOver ? "released" : "left", value: left },
  ];
  return <Shares label={`Budget of ${credits(budget.amount)}`} parts={parts} />;
}

interface SharesProps {
  label: string;
  parts: readonly { name: string; value: number }[];
}

/** Parts of a whole as a bar, and in words. */
function Shares({ label, parts }: SharesProps) {
  const shown = parts.filter((each) => each.value > 0);
  return (
    <div class="job-shares">
      <p>{label}</p>
      <div class="job-shares-bar" aria-hidden="true">
        {shown.map((each) => (
          <span key={each.name} class={each.name.replace(" ", "-")} style={{ flexGrow: each.value }} />
        ))}
      </div>
      <ul>
        {shown.map((each) => (
          <li key={each.name}>
            <span class={`job-shares-dot ${each.name.replace(" ", "-")}`} aria-hidden="true" />
            {number(each.value)} {each.name}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** The children of one job: the pages that were asked for, one after the other. */
function Branch({ parent, label }: { parent: Job; label: string }) {
  const [cursors, setCursors] = useState<readonly (string | null)[]>([null]);
  return (
    <ul class="job-tree" aria-label={label}>
      {cursors.map((cursor, index) => (
        <Rows
          key={cursor ?? ""}
          parent={parent}
          cursor={cursor}
          isLast={index === cursors.length - 1}
          onMore={(next) => setCursors((before) => [...before, next])}
        />
      ))}
    </ul>
  );
}

interface RowsProps {
  parent: Job;
  cursor: string | null;
  isLast: boolean;
  onMore: (cursor: string) => void;
}

/** One page. It is read again and again until nothing on it can change. */
function Rows({ parent, cursor, isLast, onMore }: RowsProps) {
  const isFinal = useRef(false);
  const found = useLoaded(
    (signal) =>
      get<ChildrenPage>(`jobs/${part(parent.id)}/children`, { tenant: parent.tenant, cursor, limit: ROWS }, signal),
    [parent.id, parent.tenant, cursor],
    { live: !isFinal.current },
  );
  const page = found.value;
  if (!page)
    return <li>{found.problem ? <Trouble problem={found.problem} retry={found.reload} /> : <Skeleton lines={3} />}</li>;
  isFinal.current =
    page.data.every((job) => job.outcome !== null) && (page.next_cursor !== null || parent.outcome !== null);
  const next = page.next_cursor;
  return (
    <>
      {page.data.map((job) => (
        <Row key={job.id} job={job} hasChildren={page.parents.includes(job.id)} />
      ))}
      {isLast && next && (
        <li>
          <button type="button" class="small" onClick={() => onMore(next)}>
            Show {ROWS} more
          </button>
        </li>
      )}
    </>
  );
}

function Row({ job, hasChildren }: { job: Job; hasChildren: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const name = `${job.kind} ${shortId(job.id)}`;
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowRight") setOpen(true);
    if (event.key === "ArrowLeft") setOpen(false);
  };
  return (
    <li>
      <div class="job-tree-row">
        {hasChildren ? (
          <button
            type="button"
            class="job-tree-toggle"
            aria-expanded={isOpen}
            aria-label={`Children of ${name}`}
            onClick={() => setOpen(!isOpen)}
            onKeyDown={press}
          >
            <svg viewBox="0 0 16 16" class="icon" aria-hidden="true">
              <path d="M6 3.5l4.5 4.5L6 12.5" />
            </svg>
          </button>
        ) : (
          <span class="job-tree-toggle" />
        )}
        <Link to={`/jobs/${part(job.id)}`} query={{ of: job.tenant }} title={job.id}>
          {job.kind} <code>{shortId(job.id)}</code>
        </Link>
        <span class="job-tree-state">
          <StateBadge state={job.state} phase={job.phase} outcome={job.outcome} />
          <Wait job={job} />
        </span>
        <span class="job-tree-cost">
          <Cost job={job} />
        </span>
      </div>
      {isOpen && <Branch parent={job} label={`Children of ${name}`} />}
    </li>
  );
}

function Cost({ job }: { job: Job }) {
  if (!job.price) return <span class="soft">free</span>;
  if (job.outcome) return <Credits value={job.captured ?? 0} />;
  return (
    <span class="soft">
      up to <Credits value={job.price} />
    </span>
  );
}

const WAITS = { children: "for children", time: "for a time", question: "for an answer" };

/** What a parked job waits for; the time is known of a single job. */
export function Wait({ job, wakesAt = null }: { job: Job; wakesAt?: string | null }) {
  if (job.phase !== "parked") return null;
  if (job.waits_for === "time" && wakesAt)
    return (
      <span>
        waits until <Instant at={wakesAt} /> (<Ago at={wakesAt} />)
      </span>
    );
  return <span>waits {WAITS[job.waits_for ?? "question"]}</span>;
}
