// The timeline of a job: its waits, its attempts with their stages, and its delivery.

import { useState } from "preact/hooks";
import type { Span } from "../wire";
import { between, clock, plain, span } from "../words";
import { useNow } from "./basics";
import { Table } from "./table";

const LANE = 30;
const BAR = 20;
const FOOT = 22;
const LANES_MAX = 8;
const TICKS = 4;
/** From the first share of the width on, a bar has room for a label; below the second, it would not be visible. */
const LABEL_SHARE_MIN = 0.09;
const SHARE_MIN = 0.004;

interface Bar extends Span {
  lane: string;
  start: number;
  share: number;
  description: string;
}

/** The labels of bars without a stage. */
const SHORT: Record<string, string> = { waiting: "waiting", ready: "ready", leased: "running" };

const PHASES: Record<string, string> = {
  waiting: "waiting (scheduled)",
  ready: "ready",
  leased: "running",
  parked: "parked, waiting for an answer",
  delivering: "delivering its result",
};

export function Timeline({ spans, isOver }: { spans: readonly Span[]; isOver: boolean }) {
  const now = useNow(isOver ? 60_000 : 250);
  const [detail, setDetail] = useState<string | null>(null);
  const bars = laid(spans, now);
  const [first] = bars;
  if (!first) return <p class="soft">No events yet.</p>;
  const lanes = [...new Set(bars.map((bar) => bar.lane))];
  const whole = between(first.from, last(spans, now)) ?? 0;
  const height = lanes.length * LANE + FOOT;
  return (
    <>
      <div class="job-lanes">
        <ul aria-hidden="true">
          {lanes.map((lane) => (
            <li key={lane}>{lane}</li>
          ))}
        </ul>
        <svg class="job-time" height={height} role="group" aria-label={`Timeline of ${span(whole)}`}>
          <title>{`Timeline of ${span(whole)}`}</title>
          {lanes.map((lane, index) => (
            <rect key={lane} class="job-track" x="0" y={index * LANE} width="100%" height={BAR} rx={4} />
          ))}
          {Array.from({ length: TICKS + 1 }, (_, index) => (
            <g key={index}>
              <line
                class="job-tick"
                x1={percent(index / TICKS)}
                x2={percent(index / TICKS)}
                y1={0}
                y2={lanes.length * LANE}
              />
              <text
                class={`job-tick-word ${index % 2 ? "odd" : ""}`}
                x={percent(index / TICKS)}
                y={height - 4}
                text-anchor={index === 0 ? "start" : index === TICKS ? "end" : "middle"}
              >
                {index ? `+${span((whole * index) / TICKS)}` : clock(first.from)}
              </text>
            </g>
          ))}
          {bars.map((bar, index) => (
            <Piece
              key={`${bar.from}${index}`}
              bar={bar}
              y={lanes.indexOf(bar.lane) * LANE}
              isOdd={index % 2 > 0}
              onShow={setDetail}
            />
          ))}
        </svg>
      </div>
      <p class="soft job-span-detail" aria-hidden="true">
        {detail ?? `Total ${span(whole)}. Hover over a bar, or focus it with Tab, for details.`}
      </p>
      <details class="job-as-table">
        <summary>As a table</summary>
        <Table
          label="Timeline"
          rows={bars}
          keyOf={(bar) => `${bar.from} ${bar.phase} ${bar.stage}`}
          columns={[
            { name: "from", head: "Started", cell: (bar) => clock(bar.from) },
            { name: "for", head: "Duration", align: "right", cell: (bar) => span(between(bar.from, bar.to ?? now)) },
            { name: "phase", head: "Phase", cell: (bar) => PHASES[bar.phase] ?? bar.phase },
            { name: "stage", head: "Stage", cell: (bar) => (bar.stage ? plain(bar.stage) : "–") },
            { name: "attempt", head: "Attempt", align: "right", cell: (bar) => bar.attempt || "–" },
          ]}
        />
      </details>
    </>
  );
}

interface PieceProps {
  bar: Bar;
  y: number;
  isOdd: boolean;
  onShow: (description: string | null) => void;
}

/** One bar. Its description is shown while it is hovered or focused. */
function Piece({ bar, y, isOdd, onShow }: PieceProps) {
  const [x, width] = [percent(bar.start), percent(bar.share)];
  return (
    // biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: focusing it only shows its description
    <g
      class={`job-span ${bar.phase} ${isOdd ? "odd" : ""}`}
      role="img"
      tabIndex={0}
      aria-label={bar.description}
      onPointerEnter={() => onShow(bar.description)}
      onPointerLeave={() => onShow(null)}
      onFocus={() => onShow(bar.description)}
      onBlur={() => onShow(null)}
    >
      <rect x={x} y={y} width={width} height={BAR} rx={3} />
      {bar.share > LABEL_SHARE_MIN && (
        <svg x={x} y={y} width={width} height={BAR} aria-hidden="true">
          <text x={6} y={14}>
            {plain(bar.stage ?? SHORT[bar.phase] ?? bar.phase)}
          </text>
        </svg>
      )}
    </g>
  );
}

function percent(share: number): string {
  return `${(share * 100).toFixed(3)}%`;
}

function last(spans: readonly Span[], now: Date): Date {
  const ends = spans.map((each) => (each.to ? new Date(each.to) : now).getTime());
  return new Date(Math.max(...ends));
}

function laneOf(each: Span): string {
  if (each.phase === "leased") return each.attempt < LANES_MAX ? `Attempt ${each.attempt}` : `Attempt ${LANES_MAX}…`;
  if (each.phase === "parked") return "Parked";
  return each.phase === "delivering" ? "Delivery" : "Waiting";
}

function laid(spans: readonly Span[], now: Date): Bar[] {
  const [first] = spans;
  if (!first) return [];
  const whole = Math.max(0.001, between(first.from, last(spans, now)) ?? 0);
  return spans
    .filter((each) => each.phase !== "ended")
    .map((each) => {
      const length = Math.max(0, between(each.from, each.to ?? now) ?? 0);
      const start = Math.min(1 - SHARE_MIN, (between(first.from, each.from) ?? 0) / whole);
      const share = Math.min(1 - start, Math.max(SHARE_MIN, length / whole));
      const what = each.stage ? `${plain(each.stage)}, ` : "";
      const attempt = each.phase === "leased" ? `attempt ${each.attempt}, ` : "";
      const description = `${what}${PHASES[each.phase] ?? each.phase}: ${attempt}${span(length)}${each.to ? "" : " so far"}, from ${clock(each.from)}`;
      return { ...each, lane: laneOf(each), start, share, description };
    });
}
