// Charts over time, by uPlot; and sparklines, which are a path.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { shade } from "../theme";
import { day, number } from "../words";

const DAY = 86_400;
/** Steps of an axis that counts: there is no half job. */
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

export interface Line {
  label: string;
  values: readonly (number | null)[];
  /** A colour of style.css: `good`, `bad`, `main`, `info`, `warn`, `soft`. */
  tone: string;
  isArea?: boolean;
  dash?: number[];
}

interface ChartProps {
  label: string;
  /** Seconds since 1970. */
  at: readonly number[];
  lines: readonly Line[];
  height?: number;
  format?: (value: number) => string;
  /** The least that the top of the chart stands for. */
  least?: number;
}

function colour(tone: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${tone}`).trim() || "#888";
}

/** A time below a chart: the day where the ticks are days apart, else the hour. */
function tick(seconds: number, step: number): string {
  const [date, time] = day(new Date(seconds * 1000)).split(", ");
  return (step >= DAY ? date : time) ?? "";
}

/** Values without a neighbour, which no line would show. */
function lonely(values: ArrayLike<number | null | undefined>): number[] {
  const isThere = (index: number) => values[index] !== null && values[index] !== undefined;
  return Array.from({ length: values.length }, (_, index) => index).filter(
    (index) => isThere(index) && !isThere(index - 1) && !isThere(index + 1),
  );
}

/** A chart that grows with its place, in the colours of the theme. */
export function Chart({ label, at, lines, height = 180, format = number, least = 1 }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shape = `${shade.value} ${height} ${lines.map((line) => `${line.label}:${line.tone}`).join()}`;
  const data = [at, ...lines.map((line) => line.values)] as uPlot.AlignedData;

  useEffect(() => {
    const home = box.current;
    if (!home) return;
    const axis = {
      stroke: colour("soft"),
      grid: { stroke: colour("line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui",
    };
    const made = new uPlot(
      {
        width: home.clientWidth || 300,
        height,
        padding: [8, 8, 0, 0],
        legend: { show: true, live: true },
        cursor: { y: false },
        scales: { y: { range: (_plot, _low, high) => [0, Math.max(least, (high ?? 0) * 1.1)] } },
        axes: [
          {
            ...axis,
            size: 28,
            values: (_plot, splits, _axis, _space, step) => splits.map((value) => tick(value, step)),
          },
          {
            ...axis,
            size: 52,
            ...(format === number ? { incrs: WHOLE } : {}),
            values: (_plot, splits) => splits.map((value) => format(value)),
          },
        ],
        series: [
          { label: "at", value: (_plot, value) => (value === null ? "now" : day(new Date(value * 1000))) },
          ...lines.map((line) => ({
            label: line.label,
            stroke: colour(line.tone),
            width: 1.75,
            points: { show: true, size: 4, filter: (drawn: uPlot, index: number) => lonely(drawn.data[index] ?? []) },
            ...(line.isArea ? { fill: `${colour(line.tone)}22` } : {}),
            ...(line.dash ? { dash: line.dash } : {}),
            value: (drawn: uPlot, value: number | null, index: number, point: number | null) => {
              const shown = point === null ? drawn.data[index]?.at(-1) : value;
              return shown === null || shown === undefined ? "–" : format(shown);
            },
          })),
        ],
      },
      data,
      home,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: home.clientWidth, height }));
    watch.observe(home);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [JSON.stringify(data)]);

  return <div class="chart" ref={box} role="img" aria-label={`${label}: ${told(lines, format)}`} />;
}

/** A chart in words, for who does not see it. */
function told(lines: readonly Line[], format: (value: number) => string): string {
  return lines
    .map((line) => {
      const known = line.values.filter((value): value is number => value !== null);
      const last = known.at(-1);
      return last === undefined
        ? `${line.label} nothing yet`
        : `${line.label} ${format(last)} lately, ${format(Math.max(...known))} at most`;
    })
    .join("; ");
}

export function Spark({ values, label, tone = "bad" }: { values: readonly number[]; label: string; tone?: string }) {
  const most = Math.max(1, ...values);
  const width = Math.max(1, values.length);
  return (
    <svg class={`spark ${tone}`} viewBox={`0 0 ${width} 20`} preserveAspectRatio="none" role="img" aria-label={label}>
      {values.map((value, index) => {
        const height = value ? Math.max(1.5, (value / most) * 20) : 0;
        return <rect key={index} x={index + 0.1} y={20 - height} width={0.8} height={height} />;
      })}
    </svg>
  );
}
