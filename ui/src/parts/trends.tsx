// Charts of throughput and durations over time, for all jobs or for one kind.

import { get } from "../api";
import { useLoaded } from "../live";
import type { Series } from "../wire";
import { number, span } from "../words";
import { Panel, Show } from "./basics";
import { Chart, type Line } from "./chart";
import { chosenTenant } from "./frame";
import { type Choice, chosen, Spans } from "./spans";
import "./trends.css";

const SPAN: Choice = { name: "span", choices: ["1h", "6h", "24h", "7d", "30d"], preset: "1h" };

interface Trend {
  title: string;
  lines: (series: Series) => Line[];
  format: (value: number) => string;
  least: number;
}

const TRENDS: readonly Trend[] = [
  {
    title: "Throughput and failures",
    format: number,
    least: 1,
    lines: (series) => [
      { label: "submitted", values: series.submitted, tone: "info" },
      { label: "succeeded", values: series.succeeded, tone: "good", isArea: true },
      { label: "failed", values: sum(series.failed, series.expired), tone: "bad", isArea: true },
    ],
  },
  {
    title: "Wait time",
    format: span,
    least: 0.04,
    lines: (series) => [
      { label: "p50", values: series.wait_p50, tone: "main" },
      { label: "p90", values: series.wait_p90, tone: "warn", dash: [6, 4] },
    ],
  },
  {
    title: "Run time",
    format: span,
    least: 0.04,
    lines: (series) => [
      { label: "p50", values: series.run_p50, tone: "main" },
      { label: "p90", values: series.run_p90, tone: "warn", dash: [6, 4] },
    ],
  },
  {
    title: "Credits captured",
    format: number,
    least: 1,
    lines: (series) => [{ label: "captured", values: series.captured, tone: "main", isArea: true }],
  },
];

function sum(one: readonly number[], other: readonly number[]): number[] {
  return one.map((value, index) => value + (other[index] ?? 0));
}

/** The charts of the time range in the URL. */
export function Trends({ kind }: { kind?: string }) {
  const asked = { span: chosen(SPAN), kind, ...chosenTenant() };
  const series = useLoaded((signal) => get<Series>("board/series", asked, signal), [asked]);
  return (
    <>
      <div class="trends-head">
        <h2>Trends</h2>
        <Spans of={SPAN} label="Time range" />
      </div>
      <div class="grid">
        {TRENDS.map(({ title, lines, ...scale }) => (
          <Panel key={title} title={title}>
            <Show of={series}>{(found) => <Chart label={title} at={found.at} lines={lines(found)} {...scale} />}</Show>
          </Panel>
        ))}
      </div>
    </>
  );
}
